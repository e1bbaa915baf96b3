import ipaddr from "ipaddr.js";
import * as z from "zod";
import { DAY_SECONDS, MINUTE_SECONDS } from "../time.ts";
import { cloudEndpoints } from "./clouds.ts";

/** Texts that describe the format of each setting, with bounds and unit. docs/settings.md is generated from them. */
export const VALUE_FORMATS = z.registry<{ form: string }>();

const text = z.string().trim().min(1).register(VALUE_FORMATS, { form: "a text" });
/** @param unit - Such as "days". */
const integer = (minimum: number, maximum: number, unit = "") =>
  z
    .string()
    .regex(/^-?\d+$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(minimum).max(maximum))
    .register(VALUE_FORMATS, { form: `${minimum} to ${maximum} ${unit}`.trim() });
const flag = z
  .enum(["true", "false"])
  .transform((value) => value === "true")
  .register(VALUE_FORMATS, { form: "true or false" });
const list = z.string().transform((value) =>
  value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== ""),
);
const httpsUrl = z
  .url({ protocol: /^https$/, error: "must be an https:// address" })
  .transform((value) => value.replace(/\/+$/, ""))
  .register(VALUE_FORMATS, { form: "an https:// address" });
const httpUrl = z.url({ protocol: /^https?$/ }).register(VALUE_FORMATS, { form: "an https:// or http:// address" });
const schedule = z
  .string()
  .regex(/^(\S+\s+){4,5}\S+$/, "must be an NCRONTAB expression of five or six fields")
  .transform((value) => value.trim())
  .register(VALUE_FORMATS, { form: "an NCRONTAB expression, in UTC" });
const email = z.email().register(VALUE_FORMATS, { form: "an e-mail address" });

/** Schema of a list of keys: comma-separated pairs of key ID and base64, `kid:base64`. The first key signs, all keys verify. */
const keyRing = ({ isValidSize, size }: { isValidSize(bytes: number): boolean; size: string }) =>
  z
    .string()
    .transform((value) => value.split(",").map((pair) => pair.trim()))
    .pipe(
      z
        .array(
          z.string().transform((pair, context) => {
            const [kid, encoded] = [pair.slice(0, pair.indexOf(":")), pair.slice(pair.indexOf(":") + 1)];
            const key = Buffer.from(encoded, "base64");
            if (!/^[\w.-]{1,64}$/.test(kid) || !isValidSize(key.length)) {
              context.addIssue(`must be a list of kid:base64 with ${size} bytes in each key`);
              return z.NEVER;
            }
            return { kid, key: new Uint8Array(key) };
          }),
        )
        .min(1),
    )
    .register(VALUE_FORMATS, { form: `kid:base64 pairs, comma separated, ${size} bytes in each key` });

/** Keys for HMAC with SHA-256, for which RFC 7518 §3.2 requires at least 32 bytes. */
const tokenKeys = keyRing({ isValidSize: (bytes) => bytes >= 32, size: "at least 32" });
/** Ed25519 private keys, which are 32 bytes (RFC 8032 §5.1.5). */
const auditKeys = keyRing({ isValidSize: (bytes) => bytes === 32, size: "exactly 32" });

const guid = z.guid("must be a GUID").register(VALUE_FORMATS, { form: "a GUID" });
const guids = list.pipe(z.array(guid)).register(VALUE_FORMATS, { form: "GUIDs, comma separated" });
const domain = z
  .string()
  .trim()
  .regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/, "must be a domain such as vault.azure.net")
  .register(VALUE_FORMATS, { form: "a domain" });

/** Storage of the service's state: a connection string, or addresses and an identity. */
const storage = {
  AzureWebJobsStorage: text
    .optional()
    .describe("Connection string of the storage account. Required if neither of the next two is set."),
  AzureWebJobsStorage__accountName: text
    .optional()
    .describe("Name of the storage account. The identity needs read and write access."),
  AzureWebJobsStorage__tableServiceUri: httpsUrl
    .optional()
    .describe("Address of the tables, instead of the account's name. Also set the address of the queues."),
  AzureWebJobsStorage__queueServiceUri: httpsUrl.optional().describe("Address of the queues."),
  AzureWebJobsStorage__clientId: guid
    .optional()
    .describe("User-assigned identity with which the platform reads queues. The service itself uses AZURE_CLIENT_ID."),
};

/** The inventoried cloud, and the identity that reads it. */
const cloud = {
  AZURE_CLOUD: z
    .enum(["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"])
    .default("AzureCloud")
    .describe("Azure cloud. Decides the addresses below that are not set."),
  AZURE_AUTHORITY_HOST: httpsUrl.optional().describe("Address of Entra."),
  AZURE_RESOURCE_MANAGER_ENDPOINT: httpsUrl.optional().describe("Address of the resource manager."),
  AZURE_KEY_VAULT_SUFFIX: domain.optional().describe("Domain that every key vault's address must be in."),
  AZURE_APP_CONFIGURATION_SUFFIX: domain
    .optional()
    .describe("Domain that every App Configuration store's address must be in."),
  AZURE_RESOURCE_DOMAINS: list
    .pipe(z.array(domain))
    .register(VALUE_FORMATS, { form: "domains, comma separated" })
    .optional()
    .describe(
      "Domains of other Azure resources. A rotation tests a new key, and an audit stream sends its events, only if the resource's address is in one of them.",
    ),
  AZURE_MAPS_ENDPOINT: httpsUrl.optional().describe("Address of Azure Maps, with which a rotation tests a new key."),
  AZURE_GRAPH_ENDPOINT: httpsUrl.optional().describe("Address of Microsoft Graph."),
  LOG_ANALYTICS_ENDPOINT: httpsUrl.optional().describe("Address of Log Analytics queries."),
  AZURE_TENANT_ID: guid.optional().describe("Tenant of the application below, and the tenant that a license can name."),
  AZURE_CLIENT_ID: guid
    .optional()
    .describe("Client id of a user-assigned identity, or of the application of AZURE_CLIENT_SECRET."),
  AZURE_CLIENT_SECRET: text
    .optional()
    .describe("Client secret of an application, if there is no managed identity. Also set its tenant and client id."),
  AZURE_SUBSCRIPTION_IDS: guids.default([]).describe("Subscriptions to watch in addition to those added by the API."),
  OWNER_TAG: text
    .max(512)
    .default("owner")
    .describe("Tag of secrets, keys, certificates and vaults that names the owner."),
  PROTECT_UNTIL_TAG: text
    .max(512)
    .default("protectUntil")
    .describe(
      "Tag of keys and certificates with the year (2040) or the date (2040-06-30) until which their data must stay protected.",
    ),
  PROTECTION_YEARS: integer(0, 100, "years")
    .default(10)
    .describe("Years from today for which the data of keys without the tag must stay protected."),
};

/** Other services that this service reads or writes. */
const services = {
  SERVICE_KEY_VAULT_URL: httpsUrl
    .optional()
    .describe(
      "The service's own key vault, for secrets that users configure and the anchor of the audit log. It is never a source or target. Features that need a secret don't work without it.",
    ),
  HANDOVER_KEY_VAULT_URL: httpsUrl
    .optional()
    .describe("Key vault in which a rotation hands over a new secret if it writes to none of its matches."),
  LOG_ANALYTICS_WORKSPACE_IDS: list
    .pipe(z.array(guid).max(20))
    .transform((ids) => [...new Set(ids.map((id) => id.toLowerCase()))])
    .register(VALUE_FORMATS, { form: "up to 20 GUIDs, comma separated" })
    .default([])
    .describe("Workspace ids of the Log Analytics workspaces with logs of key vaults and application sign-ins."),
  ARI_DIRECTORIES: list
    .pipe(
      z.array(
        z.string().transform((pair, context) => {
          const [issuer, directory] = [
            pair.slice(0, pair.indexOf("=")).trim(),
            pair.slice(pair.indexOf("=") + 1).trim(),
          ];
          if (issuer !== "" && URL.canParse(directory) && new URL(directory).protocol === "https:")
            return { issuer, directory };
          context.addIssue("must be a list of issuer=https://address");
          return z.NEVER;
        }),
      ),
    )
    .register(VALUE_FORMATS, { form: "issuer=https://address pairs, comma separated" })
    .default([])
    .describe(
      "Certificate authorities that suggest when to renew a certificate (RFC 9773): a part of the issuer's name, and the ACME directory. Scans ask only these. Example: `Let's Encrypt=https://acme-v02.api.letsencrypt.org/directory`.",
    ),
  AZURE_DEVOPS_ENDPOINT: httpsUrl
    .optional()
    .describe("Address instead of https://dev.azure.com, such as that of an Azure DevOps Server."),
  AWS_ENDPOINT_URL: httpUrl.optional().describe("Address of the AWS services."),
  GITHUB_API_URL: httpsUrl
    .optional()
    .describe("Address instead of https://api.github.com, such as that of GitHub Enterprise."),
  GOOGLE_SECRET_MANAGER_ENDPOINT: httpsUrl.optional().describe("Address of Google Secret Manager."),
  APP_CONFIGURATION_CONNECTION_STRING: text
    .optional()
    .describe("Connection string of the App Configuration store with runtime settings."),
  APP_CONFIGURATION_ENDPOINT: httpsUrl
    .optional()
    .describe("Address of the store, read with the identity if no connection string is set."),
};

/** Recipients and channels of notifications. */
const alerts = {
  COMMUNICATION_CONNECTION_STRING: text
    .optional()
    .describe("Connection string of Communication Services. Without it and the next setting, no mail is sent."),
  COMMUNICATION_ENDPOINT: httpsUrl
    .optional()
    .describe("Address of Communication Services, used with the identity if no connection string is set."),
  ALERT_SENDER_ADDRESS: email.optional().describe("Sender address of mails. Without it, no mail is sent."),
  MAIL_PER_MINUTE: integer(0, 1000, "mails")
    .default(5)
    .describe(
      "Maximum mails in any minute, all instances together. 0 turns the limit off. The default is Azure's limit for a managed domain.",
    ),
  MAIL_PER_HOUR: integer(0, 5000, "mails").default(10).describe("Maximum in any hour."),
  ALERT_OWNER_DOMAINS: list
    .transform((names) => names.map((name) => name.toLowerCase()))
    .pipe(z.array(domain))
    .register(VALUE_FORMATS, { form: "domains, comma separated" })
    .default([])
    .describe(
      "Domains of owner tags. An address in such a domain gets the alerts about its assets. Without domains, addresses in tags are ignored.",
    ),
  OPERATOR_ADDRESSES_SET: flag
    .optional()
    .describe(
      "Whether the deployment has addresses for alerts about the service itself. If `false`, the page warns administrators.",
    ),
  OWNER_MAIL_PER_DAY: integer(1, 1000, "mails")
    .default(10)
    .describe("Maximum mails to one owner in 24 hours. Further alerts go to the rule's recipients."),
  PUBLIC_BASE_URL: httpUrl
    .optional()
    .describe(
      "Address of this service for its users: for links in mails and webhooks, for single sign-on, and to reject requests of other sites.",
    ),
  ALLOW_PRIVATE_WEBHOOK_ADDRESSES: flag.default(false).describe("Allows alert rules to post to private addresses."),
  PRIVATE_TARGET_HOSTS: list
    .pipe(z.array(z.string().regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, "must be a list of host:port")))
    .register(VALUE_FORMATS, { form: "host:port pairs, comma separated" })
    .default([])
    .describe("Private hosts that users can configure as identity provider, sync target or certificate authority."),
  ACME_DNS_ZONE_IDS: list
    .pipe(
      z.array(
        z
          .string()
          .regex(
            /^\/subscriptions\/[^/"\s]+\/resourceGroups\/[^/"\s]+\/providers\/Microsoft\.Network\/dnszones\/[^/"\s]+$/i,
            "must be a list of resource ids of DNS zones",
          ),
      ),
    )
    .register(VALUE_FORMATS, { form: "resource ids of public DNS zones, comma separated" })
    .default([])
    .describe(
      "DNS zones in which the service may write the records that certificate authorities ask for. Without zones, no certificate is renewed over ACME.",
    ),
  ACME_DNS_SERVERS: list
    .pipe(
      z.array(
        z
          .string()
          .refine(
            (server) => ipaddr.isValid(server.replace(/:\d{1,5}$/, "")),
            "must be a list of IPv4 addresses such as 10.0.0.4 or 10.0.0.4:53",
          ),
      ),
    )
    .register(VALUE_FORMATS, { form: "IPv4 addresses with an optional port, comma separated" })
    .default([])
    .describe(
      "DNS servers that the service asks for these records. Without servers: the name servers of the zone, for which the network must allow DNS.",
    ),
  ENDPOINT_PORTS: list
    .pipe(
      z.array(
        z
          .string()
          .regex(/^\d{1,5}$/, "must be a list of port numbers")
          .transform(Number)
          .pipe(z.number().min(1).max(65_535)),
      ),
    )
    .register(VALUE_FORMATS, { form: "ports, comma separated" })
    .default([])
    .describe("Ports besides 443 at which users can have the service check a certificate."),
  ENDPOINT_PRIVATE_RANGES: list
    .pipe(
      z.array(z.string().refine((range) => ipaddr.isValidCIDR(range), "must be a list of ranges such as 10.1.0.0/16")),
    )
    .register(VALUE_FORMATS, { form: "ranges of addresses, comma separated" })
    .default([])
    .describe(
      "Private addresses at which users can have the service check a certificate, such as `10.1.0.0/16`. Without ranges, only public addresses.",
    ),
  ENDPOINT_AUTHORITIES: text
    .regex(
      /^\s*(-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+$/,
      "must be PEM certificates",
    )
    .register(VALUE_FORMATS, { form: "PEM certificates" })
    .optional()
    .describe(
      "Root certificates of private authorities. If they are set, a served chain that leads neither to them nor to a public root is incomplete. Otherwise only chains of public certificates are checked.",
    ),
  OUTBOUND_IP_ADDRESS: z
    .ipv4("must be an IPv4 address")
    .register(VALUE_FORMATS, { form: "an IPv4 address" })
    .optional()
    .describe("Fixed public address of this service's calls. Fixes for vaults with a firewall allow the address."),
  OUTBOUND_SUBNET_ID: z
    .string()
    .regex(
      /^\/subscriptions\/[^/"\s]+\/resourceGroups\/[^/"\s]+\/providers\/Microsoft\.Network\/virtualNetworks\/[^/"\s]+\/subnets\/[^/"\s]+$/i,
      "must be the resource id of a subnet",
    )
    .register(VALUE_FORMATS, { form: "the resource id of a subnet" })
    .optional()
    .describe(
      "Subnet of this service, with the service endpoint Microsoft.KeyVault. Fixes for vaults with a firewall allow the subnet. OUTBOUND_IP_ADDRESS takes precedence.",
    ),
};

/** Sign-in, licensing and rate limits. */
const access = {
  JWT_SIGNING_KEYS: tokenKeys.describe(
    "Signing keys of the service's own tokens. The first signs, all verify. A secret.",
  ),
  JWT_ISSUER: text.default("credential-lifecycle").describe("`iss` of the service's own tokens."),
  JWT_AUDIENCE: text.default("credential-lifecycle-api").describe("`aud` of the service's own tokens."),
  BOOTSTRAP_ADMIN_USERNAME: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$/, "must be 1 to 128 letters, digits or . _ @ -")
    .register(VALUE_FORMATS, { form: "1 to 128 letters, digits or . _ @ -" })
    .optional()
    .describe("Name of the first administrator, who is created if there is no user with this name."),
  BOOTSTRAP_ADMIN_PASSWORD: z
    .string()
    .min(12)
    .max(256)
    .register(VALUE_FORMATS, { form: "12 to 256 characters" })
    .optional()
    .describe("Password of the first administrator. A changed value resets it at the next start. A secret."),
  DEPLOYER_OBJECT_ID: guid
    .optional()
    .describe("Object id in Entra of who deployed. This identity can set the first administrator's password, once."),
  SERVICE_KEY_VAULT_ID: z
    .string()
    .regex(
      /^\/subscriptions\/[^/"\s]+\/resourceGroups\/[^/"\s]+\/providers\/Microsoft\.KeyVault\/vaults\/[^/"\s]+$/i,
      "must be the resource id of a key vault",
    )
    .register(VALUE_FORMATS, { form: "the resource id of a key vault" })
    .optional()
    .describe("The service's own key vault, on which DEPLOYER_OBJECT_ID proves its identity."),
  ENTRA_API_CLIENT_ID: guid
    .optional()
    .describe("Client id of this API's app registration in Entra. Without it, Entra access tokens are rejected."),
  ENTRA_TENANT_IDS: guids.default([]).describe("Tenants whose access tokens are accepted. Also set the registration."),
  ENTRA_API_SCOPE: text.default("access_as_user").describe("Scope that a person's access token must have."),
  SSO_TOKEN_MAX_IDLE_DAYS: integer(1, 365, "days")
    .default(30)
    .describe("An SSO user's API tokens are rejected after this time without an SSO sign-in."),
  LICENSE_KEY: text.optional().describe("License key. Without one, the tier is core."),
  TRUSTED_PROXY_HOPS: integer(1, 10, "proxies")
    .default(1)
    .describe(
      "Number of trusted proxies in front of the app, the platform's own included. The caller's address is at this position from the right of X-Forwarded-For.",
    ),
  RATE_LIMIT_PER_MINUTE: integer(0, 10_000, "requests")
    .default(60)
    .describe("Maximum requests of one caller in any minute, all instances together. 0 turns the limit off."),
  RATE_LIMIT_PER_HOUR: integer(0, 10_000, "requests").default(1000).describe("Maximum in any hour."),
};

const audit = {
  AUDIT_SIGNING_KEYS: auditKeys
    .optional()
    .describe(
      "Ed25519 private keys that seal the audit log. The first signs, all verify. Without keys, the log is not sealed. A secret.",
    ),
  AUDIT_MINIMUM_RETENTION_DAYS: integer(1, 3650, "days")
    .default(90)
    .describe("Minimum age of purged entries, also if AUDIT_RETENTION_DAYS is lower."),
};

/** Named as in OpenTelemetry. The library itself reads OTEL_EXPORTER_OTLP_HEADERS. */
const telemetry = {
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl
    .transform((value) => value.replace(/\/+$/, ""))
    .optional()
    .describe(
      "Address of the OpenTelemetry collector. Without it, no telemetry is recorded. OTEL_EXPORTER_OTLP_HEADERS is used too.",
    ),
  OTEL_BSP_SCHEDULE_DELAY: integer(100, 60_000, "milliseconds")
    .default(5_000)
    .describe("Time between two exports of spans."),
  OTEL_METRIC_EXPORT_INTERVAL: integer(100, 600_000, "milliseconds")
    .default(60_000)
    .describe("Time between two exports of metrics."),
};

/** Schedules of the timers. */
const schedules = {
  DELTA_SCAN_SCHEDULE: schedule.default("0 0 */6 * * *").describe("Start of delta scans."),
  FULL_SCAN_SCHEDULE: schedule.default("0 30 1 * * *").describe("Start of full scans."),
  DETAIL_REFRESH_DAYS: integer(1, 30, "days")
    .default(7)
    .describe("Maximum age of details that can change without notice. Scheduled full scans refresh them when due."),
  FIRST_SCAN: z
    .enum(["on", "off"])
    .default("on")
    .describe("Starts one full scan when the store is empty. `off` leaves the first scan to the schedule."),
  SCHEDULE_JITTER_SECONDS: integer(0, 600, "seconds")
    .default(300)
    .describe("Longest random wait before a scheduled scan begins, so that many deployments don't start as one."),
  RECONCILIATION_SCHEDULE: schedule.default("0 20 * * * *").describe("Start or continuation of the reconciliation."),
  APPLICATIONS_SCHEDULE: schedule.default("0 45 2 * * *").describe("Read all applications and their credentials."),
  APPLICATION_CHANGES_SCHEDULE: schedule.default("0 10 */2 * * *").describe("Read changed applications."),
  ROTATION_SCHEDULE: schedule.default("0 */10 * * * *").describe("Continue waiting rotations and start due ones."),
  SYNC_SCHEDULE: schedule.default("30 */10 * * * *").describe("Run due sync records."),
  DEPENDENCIES_SCHEDULE: schedule.default("0 15 4 * * 0").describe("Read all dependencies."),
  DEPENDENCY_CHANGES_SCHEDULE: schedule.default("0 40 * * * *").describe("Read dependencies that may have changed."),
  ENDPOINT_CHECKS_SCHEDULE: schedule.default("0 50 * * * *").describe("Check the endpoints of certificates."),
  CERTIFICATE_RENEWAL_SCHEDULE: schedule
    .default("45 */10 * * * *")
    .describe("Continue waiting renewals of certificates and start due ones."),
  DEPENDENCY_LITERAL_SCAN: flag
    .default(false)
    .describe("Searches app settings for plaintext copies of secrets when all dependencies are read."),
  B2C_SCHEDULE: schedule.default("15 */10 * * * *").describe("Discover due B2C tenants."),
};

/**
 * Runtime settings from the environment, one of their four sources. Only their format is checked here. The settings module
 * defines their meanings and defaults.
 */
const runtime = {
  DISCOVERY_MAX_WORKERS: integer(1, 200).optional(),
  DISCOVERY_SCAN_TIMEOUT: integer(MINUTE_SECONDS, DAY_SECONDS).optional(),
  ENABLE_NOTIFICATIONS: flag.optional(),
  ENABLE_COMPLIANCE_SCANNING: flag.optional(),
  LOG_LEVEL: z.enum(["DEBUG", "INFO", "WARNING", "ERROR"]).optional(),
  DEFAULT_THRESHOLD_DAYS: integer(1, 365).optional(),
  CRITICAL_EXPIRY_DAYS: integer(0, 365).optional(),
  WARNING_EXPIRY_DAYS: integer(1, 730).optional(),
  UNUSED_SECRET_DAYS: integer(7, 365).optional(),
  AUDIT_RETENTION_DAYS: integer(1, 3650).optional(),
  ROTATION_RETENTION_DAYS: integer(1, 3650).optional(),
  SCAN_RETENTION_DAYS: integer(1, 3650).optional(),
  WATCH_ALL: flag.optional(),
  REQUIRE_PASSWORD_CHANGE: flag.optional(),
  UNUSED_PASSWORD_DAYS: integer(1, 365).optional(),
  REQUIRE_SECOND_FACTOR: z.enum(["none", "administrators", "everyone"]).optional(),
  REQUIRE_STEP_UP: flag.optional(),
  REQUIRE_APPROVAL: flag.optional(),
  OUT_OF_SCOPE_RETENTION_DAYS: integer(1, 3650).optional(),
  ROTATION_TRIGGER_DAYS: integer(1, 365).optional(),
  DEFAULT_VALIDITY_DAYS: integer(1, 730).optional(),
};

/** All settings except the runtime settings, in the groups of docs/settings.md. */
export const GROUPS = { storage, cloud, services, alerts, access, audit, telemetry, schedules } as const;

/** Schema of the environment variables. `loadConfig` parses the environment with it. */
export const Environment = z
  .object({
    ...storage,
    ...cloud,
    ...services,
    ...alerts,
    ...access,
    ...audit,
    ...telemetry,
    ...schedules,
    ...runtime,
  })
  .transform((env) => ({ ...env, cloud: cloudEndpoints(env) }));
