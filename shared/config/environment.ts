import * as z from "zod";
import { DAY_SECONDS, MINUTE_SECONDS } from "../time.ts";
import { cloudEndpoints } from "./clouds.ts";

/** What a value looks like, in words, with its bounds and unit: docs/settings.md is made of these and the descriptions. */
export const FORMS = z.registry<{ form: string }>();

const text = z.string().trim().min(1).register(FORMS, { form: "a text" });
/** @param unit - Such as "days". */
const integer = (minimum: number, maximum: number, unit = "") =>
  z
    .string()
    .regex(/^-?\d+$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(minimum).max(maximum))
    .register(FORMS, { form: `${minimum} to ${maximum} ${unit}`.trim() });
const flag = z
  .enum(["true", "false"])
  .transform((value) => value === "true")
  .register(FORMS, { form: "true or false" });
const list = z.string().transform((value) =>
  value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== ""),
);
const httpsUrl = z
  .url({ protocol: /^https$/, error: "must be an https:// address" })
  .transform((value) => value.replace(/\/+$/, ""))
  .register(FORMS, { form: "an https:// address" });
const httpUrl = z.url({ protocol: /^https?$/ }).register(FORMS, { form: "an https:// or http:// address" });
const schedule = z
  .string()
  .regex(/^(\S+\s+){4,5}\S+$/, "must be an NCRONTAB expression of five or six fields")
  .transform((value) => value.trim())
  .register(FORMS, { form: "an NCRONTAB expression, in UTC" });
const email = z.email().register(FORMS, { form: "an e-mail address" });

/** `kid:base64` pairs, comma separated. The first signs, all verify. */
const keyRing = ({ fits, size }: { fits(bytes: number): boolean; size: string }) =>
  z
    .string()
    .transform((value) => value.split(",").map((pair) => pair.trim()))
    .pipe(
      z
        .array(
          z.string().transform((pair, context) => {
            const [kid, encoded] = [pair.slice(0, pair.indexOf(":")), pair.slice(pair.indexOf(":") + 1)];
            const key = Buffer.from(encoded, "base64");
            if (!/^[\w.-]{1,64}$/.test(kid) || !fits(key.length)) {
              context.addIssue(`must be a list of kid:base64 with ${size} bytes in each key`);
              return z.NEVER;
            }
            return { kid, key: new Uint8Array(key) };
          }),
        )
        .min(1),
    )
    .register(FORMS, { form: `kid:base64 pairs, comma separated, ${size} bytes in each key` });

/** Keys for HMAC with SHA-256, for which RFC 7518 §3.2 asks for no fewer bytes. */
const tokenKeys = keyRing({ fits: (bytes) => bytes >= 32, size: "at least 32" });
/** Ed25519 private keys, which are 32 bytes (RFC 8032 §5.1.5). */
const auditKeys = keyRing({ fits: (bytes) => bytes === 32, size: "exactly 32" });

const guid = z.guid("must be a GUID").register(FORMS, { form: "a GUID" });
const guids = list.pipe(z.array(guid)).register(FORMS, { form: "GUIDs, comma separated" });
const domain = z
  .string()
  .trim()
  .regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/, "must be a domain such as vault.azure.net")
  .register(FORMS, { form: "a domain" });

/** Where the service's state lies: a connection string, or the accounts' addresses and the identity. */
const storage = {
  AzureWebJobsStorage: text
    .optional()
    .describe("The storage account's connection string. Needed, where neither of the next two is set."),
  AzureWebJobsStorage__accountName: text
    .optional()
    .describe("The storage account, which the identity may read and write."),
  AzureWebJobsStorage__tableServiceUri: httpsUrl
    .optional()
    .describe("The address of its tables, in place of the account's name; together with that of its queues."),
  AzureWebJobsStorage__queueServiceUri: httpsUrl.optional().describe("The address of its queues."),
  AzureWebJobsStorage__clientId: guid
    .optional()
    .describe(
      "The user-assigned identity that the platform reads its queues with; the service's own is AZURE_CLIENT_ID.",
    ),
};

/** Which cloud is watched, and with whose rights. */
const cloud = {
  AZURE_CLOUD: z
    .enum(["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"])
    .default("AzureCloud")
    .describe("The cloud, which decides the addresses below where none is set."),
  AZURE_AUTHORITY_HOST: httpsUrl.optional().describe("Another address of Entra."),
  AZURE_RESOURCE_MANAGER_ENDPOINT: httpsUrl.optional().describe("Another address of the resource manager."),
  AZURE_KEY_VAULT_SUFFIX: domain.optional().describe("Another domain that every key vault's address must lie under."),
  AZURE_APP_CONFIGURATION_SUFFIX: domain
    .optional()
    .describe("Another domain that every App Configuration store's address must lie under."),
  AZURE_GRAPH_ENDPOINT: httpsUrl.optional().describe("Another address of Microsoft Graph."),
  LOG_ANALYTICS_ENDPOINT: httpsUrl.optional().describe("Another address where Log Analytics is queried."),
  AZURE_TENANT_ID: guid.optional().describe("The tenant of the application below, and the one a licence may name."),
  AZURE_CLIENT_ID: guid
    .optional()
    .describe("The client id of a user-assigned identity, or of the application that AZURE_CLIENT_SECRET is of."),
  AZURE_CLIENT_SECRET: text
    .optional()
    .describe("An application's secret, where there is no managed identity; together with its tenant and client id."),
  AZURE_SUBSCRIPTION_IDS: guids.default([]).describe("Subscriptions that are watched beside those added by the API."),
  OWNER_TAG: text
    .max(512)
    .default("owner")
    .describe("The tag of secrets, keys, certificates and vaults that names the owner."),
};

/** What else the service reads or writes. */
const services = {
  SERVICE_KEY_VAULT_URL: httpsUrl
    .optional()
    .describe(
      "The service's own key vault: what people give as secrets, and the anchor of the audit log. Never a source or target of anything else. Without it, what needs a secret can't be made.",
    ),
  HANDOVER_KEY_VAULT_URL: httpsUrl
    .optional()
    .describe("The key vault that new secrets are handed over in when a rotation writes to none of its matches."),
  LOG_ANALYTICS_WORKSPACE_IDS: list
    .pipe(z.array(guid).max(20))
    .transform((ids) => [...new Set(ids.map((id) => id.toLowerCase()))])
    .register(FORMS, { form: "up to 20 GUIDs, comma separated" })
    .default([])
    .describe(
      "The workspaces that the logs of key vaults, and of sign-ins of applications, go to: their workspace ids.",
    ),
  AZURE_DEVOPS_ENDPOINT: httpsUrl
    .optional()
    .describe("Stands in place of https://dev.azure.com, such as an Azure DevOps Server."),
  AWS_ENDPOINT_URL: httpUrl.optional().describe("Another address of AWS's services than their own."),
  GITHUB_API_URL: httpsUrl
    .optional()
    .describe("Another address than https://api.github.com, such as GitHub Enterprise's."),
  GOOGLE_SECRET_MANAGER_ENDPOINT: httpsUrl
    .optional()
    .describe("Another address of Google's Secret Manager than its own."),
  APP_CONFIGURATION_CONNECTION_STRING: text
    .optional()
    .describe("The App Configuration store that runtime settings are read from."),
  APP_CONFIGURATION_ENDPOINT: httpsUrl
    .optional()
    .describe("The store's address, which is read with the identity, where no connection string is set."),
};

/** Who is told, and how. */
const alerts = {
  COMMUNICATION_CONNECTION_STRING: text
    .optional()
    .describe("Communication Services, which send mail. Without it and the address no mail is sent."),
  COMMUNICATION_ENDPOINT: httpsUrl
    .optional()
    .describe("Mail is sent with the identity to this address, where no connection string is set."),
  ALERT_SENDER_ADDRESS: email.optional().describe("The address that mails are from. Without it no mail is sent."),
  MAIL_PER_MINUTE: integer(0, 1000, "mails")
    .default(5)
    .describe(
      "Mails sent in any minute, all instances together; 0 turns the limit off. What Azure allows a managed domain.",
    ),
  MAIL_PER_HOUR: integer(0, 5000, "mails").default(10).describe("The same, in any hour."),
  ALERT_OWNER_DOMAINS: list
    .transform((names) => names.map((name) => name.toLowerCase()))
    .pipe(z.array(domain))
    .register(FORMS, { form: "domains, comma separated" })
    .default([])
    .describe(
      "Domains whose addresses, where a tag names one as the owner, get the alerts of what they own. None: no tag is believed.",
    ),
  OWNER_MAIL_PER_DAY: integer(1, 1000, "mails")
    .default(10)
    .describe(
      "Mails that owners' tags can bring one address in 24 hours; what is beyond goes to the rule's recipients.",
    ),
  PUBLIC_BASE_URL: httpUrl
    .optional()
    .describe(
      "Where people reach this service: in the links of mails and webhooks, for single sign-on, and to tell other sites' requests.",
    ),
  ALLOW_PRIVATE_WEBHOOK_ADDRESSES: flag
    .default(false)
    .describe("Whether alert rules may post to addresses in the service's own network."),
  PRIVATE_TARGET_HOSTS: list
    .pipe(z.array(z.string().regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, "must be a list of host:port")))
    .register(FORMS, { form: "host:port pairs, comma separated" })
    .default([])
    .describe("Exact hosts in the service's own network that addresses which people give may name nevertheless."),
};

/** Who may come in, and how often they may call. */
const access = {
  JWT_SIGNING_KEYS: tokenKeys.describe(
    "What the service's own tokens are signed with: the first signs, all verify. A secret.",
  ),
  JWT_ISSUER: text.default("credential-lifecycle").describe("`iss` of the service's own tokens."),
  JWT_AUDIENCE: text.default("credential-lifecycle-api").describe("`aud` of the service's own tokens."),
  BOOTSTRAP_ADMIN_USERNAME: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$/, "must be 1 to 128 letters, digits or . _ @ -")
    .register(FORMS, { form: "1 to 128 letters, digits or . _ @ -" })
    .optional()
    .describe("The first administrator, who is made when there is none of that name."),
  BOOTSTRAP_ADMIN_PASSWORD: z
    .string()
    .min(12)
    .max(256)
    .register(FORMS, { form: "12 to 256 characters" })
    .optional()
    .describe("That administrator's password. Another value than before resets it at the next start. A secret."),
  ENTRA_API_CLIENT_ID: guid
    .optional()
    .describe("The application registration of this API in Entra. Without it no access token of Entra is taken."),
  ENTRA_TENANT_IDS: guids
    .default([])
    .describe("The tenants whose access tokens are taken; together with the registration."),
  ENTRA_API_SCOPE: text.default("access_as_user").describe("The scope that a person's access token must have."),
  SSO_TOKEN_MAX_IDLE_DAYS: integer(1, 365, "days")
    .default(30)
    .describe("Without a sign-in by SSO for so long, an SSO user's API tokens are refused."),
  LICENSE_KEY: text.optional().describe("The licence. Without one the tier is core."),
  TRUSTED_PROXY_HOPS: integer(1, 10, "proxies")
    .default(1)
    .describe(
      "In front of the app, the platform's own among them: so far from the right of X-Forwarded-For stands the caller.",
    ),
  RATE_LIMIT_PER_MINUTE: integer(0, 10_000, "requests")
    .default(60)
    .describe("Of one caller in any minute, all instances together; 0 turns the limit off."),
  RATE_LIMIT_PER_HOUR: integer(0, 10_000, "requests").default(1000).describe("The same, in any hour."),
};

const audit = {
  AUDIT_SIGNING_KEYS: auditKeys
    .optional()
    .describe(
      "Ed25519 private keys that the audit log is sealed with: the first signs, all verify. Without them it is not sealed. A secret.",
    ),
  AUDIT_MINIMUM_RETENTION_DAYS: integer(1, 3650, "days")
    .default(90)
    .describe("Younger entries are never purged, whatever AUDIT_RETENTION_DAYS says."),
};

/** By the names of OpenTelemetry. The library itself reads OTEL_EXPORTER_OTLP_HEADERS. */
const telemetry = {
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl
    .transform((value) => value.replace(/\/+$/, ""))
    .optional()
    .describe("The collector's address; without it nothing is recorded. OTEL_EXPORTER_OTLP_HEADERS is read as well."),
  OTEL_BSP_SCHEDULE_DELAY: integer(100, 60_000, "milliseconds")
    .default(5_000)
    .describe("Between two sendings of spans."),
  OTEL_METRIC_EXPORT_INTERVAL: integer(100, 600_000, "milliseconds")
    .default(60_000)
    .describe("Between two sendings of figures."),
};

/** When timers do their work. */
const schedules = {
  DELTA_SCAN_SCHEDULE: schedule.default("0 0 */6 * * *").describe("When a delta scan begins."),
  FULL_SCAN_SCHEDULE: schedule.default("0 30 1 * * *").describe("When a full scan begins."),
  DETAIL_REFRESH_DAYS: integer(1, 30, "days")
    .default(7)
    .describe("How old details may become that change without a sign. Scheduled full scans read what is due."),
  FIRST_SCAN: z
    .enum(["on", "off"])
    .default("on")
    .describe("Whether a full scan starts by itself, once, when no scan was ever started in this store."),
  SCHEDULE_JITTER_SECONDS: integer(0, 600, "seconds")
    .default(300)
    .describe("Longest random wait before a scheduled scan begins, so that many deployments don't start as one."),
  RECONCILIATION_SCHEDULE: schedule
    .default("0 20 * * * *")
    .describe("When the reconciliation goes on with its walk, or begins the next one."),
  APPLICATIONS_SCHEDULE: schedule
    .default("0 45 2 * * *")
    .describe("When all applications and their credentials are read."),
  APPLICATION_CHANGES_SCHEDULE: schedule.default("0 10 */2 * * *").describe("When those are read that changed since."),
  ROTATION_SCHEDULE: schedule
    .default("0 */10 * * * *")
    .describe("When rotations that wait are gone on with, and due ones begun."),
  SYNC_SCHEDULE: schedule.default("30 */10 * * * *").describe("When sync records that are due are run."),
  DEPENDENCIES_SCHEDULE: schedule.default("0 15 4 * * 0").describe("When all dependencies are read."),
  DEPENDENCY_CHANGES_SCHEDULE: schedule
    .default("0 40 * * * *")
    .describe("When those are read that may have changed since."),
  DEPENDENCY_LITERAL_SCAN: flag
    .default(false)
    .describe("Whether readings of dependencies compare the settings of apps with the values of secrets."),
  B2C_SCHEDULE: schedule.default("15 */10 * * * *").describe("When B2C tenants that are due are discovered."),
};

/**
 * One of the four sources of runtime settings. What they mean, and their defaults, is in the settings room; here they are
 * only well formed.
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
  OUT_OF_SCOPE_RETENTION_DAYS: integer(1, 3650).optional(),
  ROTATION_TRIGGER_DAYS: integer(1, 365).optional(),
  DEFAULT_VALIDITY_DAYS: integer(1, 730).optional(),
};

/** Every setting but the runtime ones, as the page of settings groups them. */
export const GROUPS = { storage, cloud, services, alerts, access, audit, telemetry, schedules } as const;

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
