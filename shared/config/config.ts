import * as z from "zod";
import { wordsOf } from "../invalid.ts";
import { cloudEndpoints } from "./clouds.ts";

/**
 * Everything the environment says, parsed once. `loadConfig` names every bad value at once and the start stops there:
 * a service that runs on half a configuration fails later and less clearly. The runtime settings (those an administrator
 * may override through the API) have their bounds in the settings room; here they are only checked to be well formed.
 */
export type Config = z.output<typeof Environment>;

const text = z.string().trim().min(1);
const integer = (minimum: number, maximum: number) =>
  z
    .string()
    .regex(/^-?\d+$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(minimum).max(maximum));
const flag = z.enum(["true", "false"]).transform((value) => value === "true");
const list = z.string().transform((value) =>
  value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== ""),
);
const httpsUrl = z
  .url({ protocol: /^https$/, error: "must be an https:// address" })
  .transform((value) => value.replace(/\/+$/, ""));
const schedule = z
  .string()
  .regex(/^(\S+\s+){4,5}\S+$/, "must be an NCRONTAB expression of five or six fields")
  .transform((value) => value.trim());

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
    );

/** Keys for HMAC with SHA-256, for which RFC 7518 §3.2 asks for no fewer bytes. */
const tokenKeys = keyRing({ fits: (bytes) => bytes >= 32, size: "at least 32" });
/** Ed25519 private keys, which are 32 bytes (RFC 8032 §5.1.5). */
const auditKeys = keyRing({ fits: (bytes) => bytes === 32, size: "exactly 32" });

const guid = z.guid("must be a GUID");
const domain = text.regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/, "must be a domain such as vault.azure.net");

const Environment = z
  .object({
    // Storage. A connection string, or the accounts' addresses and the identity.
    AzureWebJobsStorage: text.optional(),
    AzureWebJobsStorage__accountName: text.optional(),
    AzureWebJobsStorage__tableServiceUri: httpsUrl.optional(),
    AzureWebJobsStorage__queueServiceUri: httpsUrl.optional(),
    AzureWebJobsStorage__clientId: guid.optional(),

    // Cloud.
    AZURE_CLOUD: z.enum(["AzureCloud", "AzureChinaCloud", "AzureUSGovernment"]).default("AzureCloud"),
    AZURE_AUTHORITY_HOST: httpsUrl.optional(),
    AZURE_RESOURCE_MANAGER_ENDPOINT: httpsUrl.optional(),
    AZURE_KEY_VAULT_SUFFIX: domain.optional(),
    AZURE_APP_CONFIGURATION_SUFFIX: domain.optional(),
    AZURE_TENANT_ID: guid.optional(),
    AZURE_CLIENT_ID: guid.optional(),
    AZURE_CLIENT_SECRET: text.optional(),
    AZURE_SUBSCRIPTION_IDS: list.pipe(z.array(guid)).default([]),
    AZURE_GRAPH_ENDPOINT: httpsUrl.optional(),
    /** Stands in place of https://dev.azure.com, such as an Azure DevOps Server. */
    AZURE_DEVOPS_ENDPOINT: httpsUrl.optional(),
    OWNER_TAG: text.max(512).default("owner"),
    SERVICE_KEY_VAULT_URL: httpsUrl.optional(),
    /** The key vault that new secrets are handed over in when a rotation writes to none of its matches. */
    HANDOVER_KEY_VAULT_URL: httpsUrl.optional(),
    /** Other addresses of the sync providers than their public ones. */
    AWS_ENDPOINT_URL: z.url({ protocol: /^https?$/ }).optional(),
    GITHUB_API_URL: httpsUrl.optional(),
    GOOGLE_SECRET_MANAGER_ENDPOINT: httpsUrl.optional(),
    COMMUNICATION_CONNECTION_STRING: text.optional(),
    /** Mail is sent with the identity to this address, where no connection string is set. */
    COMMUNICATION_ENDPOINT: httpsUrl.optional(),
    ALERT_SENDER_ADDRESS: z.email().optional(),
    APP_CONFIGURATION_CONNECTION_STRING: text.optional(),
    APP_CONFIGURATION_ENDPOINT: httpsUrl.optional(),
    ALLOW_PRIVATE_WEBHOOK_ADDRESSES: flag.default(false),
    /** Where people reach this service: in the links of mails and webhooks, for single sign-on, and to tell other sites' requests. */
    PUBLIC_BASE_URL: z.url({ protocol: /^https?$/ }).optional(),
    /** Exact `host:port` pairs in the service's own network that addresses which people give may name nevertheless. */
    PRIVATE_TARGET_HOSTS: list
      .pipe(z.array(z.string().regex(/^[A-Za-z0-9.-]+:\d{1,5}$/, "must be a list of host:port")))
      .default([]),

    // Access.
    JWT_SIGNING_KEYS: tokenKeys,
    JWT_ISSUER: text.default("credential-lifecycle"),
    JWT_AUDIENCE: text.default("credential-lifecycle-api"),
    BOOTSTRAP_ADMIN_USERNAME: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$/, "must be 1 to 128 letters, digits or . _ @ -")
      .optional(),
    BOOTSTRAP_ADMIN_PASSWORD: z.string().min(12).max(256).optional(),
    /** The application registration of this API in Entra, and the tenants whose access tokens are taken. */
    ENTRA_API_CLIENT_ID: guid.optional(),
    ENTRA_TENANT_IDS: list.pipe(z.array(guid)).default([]),
    ENTRA_API_SCOPE: text.default("access_as_user"),
    /** Days without a sign-in by SSO after which an SSO user's API tokens are refused. */
    SSO_TOKEN_MAX_IDLE_DAYS: integer(1, 365).default(30),
    LICENSE_KEY: text.optional(),
    TRUSTED_PROXY_HOPS: integer(1, 10).default(1),
    RATE_LIMIT_PER_MINUTE: integer(0, 10_000).default(60),
    RATE_LIMIT_PER_HOUR: integer(0, 10_000).default(1000),

    // Audit.
    AUDIT_SIGNING_KEYS: auditKeys.optional(),
    AUDIT_MINIMUM_RETENTION_DAYS: integer(1, 3650).default(90),

    // Telemetry, by the names of OpenTelemetry.
    /** The collector's address; without it nothing is recorded. The library itself reads OTEL_EXPORTER_OTLP_HEADERS. */
    OTEL_EXPORTER_OTLP_ENDPOINT: z
      .url({ protocol: /^https?$/ })
      .transform((value) => value.replace(/\/+$/, ""))
      .optional(),
    /** Milliseconds between two sendings of spans, and of metrics. */
    OTEL_BSP_SCHEDULE_DELAY: integer(100, 60_000).default(5_000),
    OTEL_METRIC_EXPORT_INTERVAL: integer(100, 600_000).default(60_000),

    // Schedules, NCRONTAB in UTC.
    DELTA_SCAN_SCHEDULE: schedule.default("0 0 */6 * * *"),
    FULL_SCAN_SCHEDULE: schedule.default("0 30 1 * * *"),
    /** When the reconciliation goes on with its walk, or begins the next one. */
    RECONCILIATION_SCHEDULE: schedule.default("0 20 * * * *"),
    /** When applications and their credentials are read: all of them, and what changed since. */
    APPLICATIONS_SCHEDULE: schedule.default("0 45 2 * * *"),
    APPLICATION_CHANGES_SCHEDULE: schedule.default("0 10 */2 * * *"),
    /** When rotations that wait are gone on with, and due ones begun. */
    ROTATION_SCHEDULE: schedule.default("0 */10 * * * *"),
    /** When sync records that are due are run. */
    SYNC_SCHEDULE: schedule.default("30 */10 * * * *"),
    /** When dependencies are read: all of them, and what may have changed since. */
    DEPENDENCIES_SCHEDULE: schedule.default("0 15 4 * * 0"),
    DEPENDENCY_CHANGES_SCHEDULE: schedule.default("0 40 * * * *"),
    /** When B2C tenants that are due are discovered. */
    B2C_SCHEDULE: schedule.default("15 */10 * * * *"),
    /** Longest random wait before a scheduled scan begins, in seconds, so that many deployments don't start as one. */
    SCHEDULE_JITTER_SECONDS: integer(0, 600).default(300),

    // Runtime settings: the values here are one of their four sources (see shared/settings).
    DISCOVERY_MAX_WORKERS: integer(1, 200).optional(),
    DISCOVERY_SCAN_TIMEOUT: integer(60, 86_400).optional(),
    ENABLE_NOTIFICATIONS: flag.optional(),
    ENABLE_COMPLIANCE_SCANNING: flag.optional(),
    LOG_LEVEL: z.enum(["DEBUG", "INFO", "WARNING", "ERROR"]).optional(),
    DEFAULT_THRESHOLD_DAYS: integer(1, 365).optional(),
    CRITICAL_EXPIRY_DAYS: integer(0, 365).optional(),
    WARNING_EXPIRY_DAYS: integer(1, 730).optional(),
    AUDIT_RETENTION_DAYS: integer(1, 3650).optional(),
    ROTATION_RETENTION_DAYS: integer(1, 3650).optional(),
    SCAN_RETENTION_DAYS: integer(1, 3650).optional(),
    ROTATION_TRIGGER_DAYS: integer(1, 365).optional(),
    DEFAULT_VALIDITY_DAYS: integer(1, 730).optional(),
  })
  .transform((env) => ({ ...env, cloud: cloudEndpoints(env) }));

/** The names of every setting that is read, in the order above. */
export const SETTING_NAMES: readonly string[] = Object.keys(Environment.in.shape);

type Given = Record<string, string | undefined>;

/** https://learn.microsoft.com/azure/app-service/app-service-key-vault-references#troubleshoot-key-vault-references */
const UNRESOLVED_REFERENCE =
  "is a Key Vault reference that the platform could not resolve: check that the secret exists and that the app's system-assigned identity has the role Key Vault Secrets User";

/** What is wrong only beside something else. Looked at in any case, so that one start names every problem. */
function contradictions(given: Given): [name: string, message: string][] {
  const found: [string, string][] = [];
  const together = (a: string, b: string) => {
    if (!given[a] !== !given[b]) found.push([given[a] ? b : a, `must be set together with ${given[a] ? a : b}`]);
  };
  if (
    !given.AzureWebJobsStorage &&
    !given.AzureWebJobsStorage__accountName &&
    !given.AzureWebJobsStorage__tableServiceUri
  ) {
    found.push([
      "AzureWebJobsStorage",
      "is missing: set a connection string, or AzureWebJobsStorage__accountName with an identity",
    ]);
  }
  together("AzureWebJobsStorage__tableServiceUri", "AzureWebJobsStorage__queueServiceUri");
  together("BOOTSTRAP_ADMIN_USERNAME", "BOOTSTRAP_ADMIN_PASSWORD");
  together("ENTRA_API_CLIENT_ID", "ENTRA_TENANT_IDS");
  for (const [name, value] of Object.entries(given)) {
    // The platform leaves the reference itself in place where it can't resolve it: as a password it would be no secret.
    if (value?.startsWith("@Microsoft.KeyVault(")) found.push([name, UNRESOLVED_REFERENCE]);
  }
  if (given.AZURE_CLIENT_SECRET && !(given.AZURE_CLIENT_ID && given.AZURE_TENANT_ID)) {
    found.push(["AZURE_CLIENT_SECRET", "needs AZURE_CLIENT_ID and AZURE_TENANT_ID beside it"]);
  }
  const warning = Number(given.WARNING_EXPIRY_DAYS ?? 30);
  if (Number(given.CRITICAL_EXPIRY_DAYS ?? 7) >= warning) {
    found.push(["CRITICAL_EXPIRY_DAYS", `must be below WARNING_EXPIRY_DAYS (${warning})`]);
  }
  return found;
}

/** The environment is not usable; the message has one line per bad value and never the value itself. */
export class ConfigError extends Error {
  constructor(problems: readonly (readonly [name: string, message: string])[]) {
    super(
      ["The configuration is not valid:", ...problems.map(([name, message]) => `  ${name}: ${message}`)].join("\n"),
    );
    this.name = "ConfigError";
  }
}

/** @throws {ConfigError} naming every problem. An empty value counts as not set, as Bicep and Terraform write them. */
export function loadConfig(environment: Given): Config {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ""),
  ) as Given;
  const result = Environment.safeParse(given, { error: wordsOf });
  const invalid = result.success
    ? []
    : result.error.issues.map((issue) => [String(issue.path[0] ?? ""), issue.message] as const);
  const problems = [...invalid, ...contradictions(given)];
  if (!result.success || problems.length > 0) throw new ConfigError(problems);
  return result.data;
}
