import * as z from "zod";
import type { Config } from "../platform/config/config.ts";
import { DAY_SECONDS, HOUR_SECONDS, MINUTE_SECONDS } from "../platform/time.ts";

// The runtime settings: names, types, limits and defaults. Administrators change them through the API without a restart.

export const LOG_LEVELS = ["DEBUG", "INFO", "WARNING", "ERROR"] as const;
/** Who must enroll a second factor. Users of single sign-on are exempt. */
export const SECOND_FACTOR_REQUIREMENTS = ["none", "administrators", "everyone"] as const;

/** The effective values of all settings. */
export interface SettingValues {
  discoveryMaxWorkers: number;
  /** Time limit of a scan in seconds. */
  discoveryScanTimeout: number;
  enableNotifications: boolean;
  enableComplianceScanning: boolean;
  watchAll: boolean;
  requirePasswordChange: boolean;
  unusedPasswordDays: number;
  requireSecondFactor: (typeof SECOND_FACTOR_REQUIREMENTS)[number];
  requireStepUp: boolean;
  requireApproval: boolean;
  logLevel: (typeof LOG_LEVELS)[number];
  defaultThresholdDays: number;
  criticalExpiryDays: number;
  warningExpiryDays: number;
  unusedSecretDays: number;
  auditRetentionDays: number;
  rotationRetentionDays: number;
  scanRetentionDays: number;
  outOfScopeRetentionDays: number;
  rotationTriggerDays: number;
  defaultValidityDays: number;
}
export type SettingKey = keyof SettingValues;
export type SettingValue = SettingValues[SettingKey];

/** The categories: their names in paths, and the names of their members in `GET /api/settings/all`. */
export const CATEGORIES = {
  performance: "performance",
  features: "features",
  logging: "logging",
  "alert-defaults": "alertDefaults",
  retention: "retention",
  "compliance-policy": "compliancePolicy",
  automation: "automation",
} as const;
export type Category = keyof typeof CATEGORIES;
export const CATEGORY_NAMES = Object.keys(CATEGORIES) as Category[];

interface CommonDefinition {
  category: Category;
  environmentVariable: keyof Config & string;
  description: string;
}
type IntegerDefinition = CommonDefinition & { type: "integer"; default: number; minimum: number; maximum: number };
type BooleanDefinition = CommonDefinition & { type: "boolean"; default: boolean };
type TextDefinition<V> = CommonDefinition & { type: "string"; default: V; allowed: readonly V[] };
/** The definition of one setting: type, limits, default and description. */
export type Definition = IntegerDefinition | BooleanDefinition | TextDefinition<string>;

type DefinitionOf<V> = [V] extends [number]
  ? IntegerDefinition
  : [V] extends [boolean]
    ? BooleanDefinition
    : TextDefinition<V>;

/** The definitions of all runtime settings. The API, the page, the docs and validation use this table. */
export const DEFINITIONS: { readonly [K in SettingKey]: DefinitionOf<SettingValues[K]> } = {
  discoveryMaxWorkers: {
    category: "performance",
    type: "integer",
    default: 10,
    minimum: 1,
    maximum: 200,
    environmentVariable: "DISCOVERY_MAX_WORKERS",
    description: "Maximum number of vaults that are read at the same time, across all service instances.",
  },
  discoveryScanTimeout: {
    category: "performance",
    type: "integer",
    default: HOUR_SECONDS,
    minimum: MINUTE_SECONDS,
    maximum: DAY_SECONDS,
    environmentVariable: "DISCOVERY_SCAN_TIMEOUT",
    description: "Seconds after which an unfinished scan ends as timed out.",
  },
  enableNotifications: {
    category: "features",
    type: "boolean",
    default: true,
    environmentVariable: "ENABLE_NOTIFICATIONS",
    description: "Sends the notifications of all alert rules. If off, no alert is sent.",
  },
  enableComplianceScanning: {
    category: "features",
    type: "boolean",
    default: true,
    environmentVariable: "ENABLE_COMPLIANCE_SCANNING",
    description: "Evaluates compliance after each scan and once a day.",
  },
  watchAll: {
    category: "features",
    type: "boolean",
    default: true,
    environmentVariable: "WATCH_ALL",
    description:
      "Monitors every subscription that the service's identity can read. If off, monitors only added subscriptions and those in the environment variable AZURE_SUBSCRIPTION_IDS.",
  },
  requirePasswordChange: {
    category: "features",
    type: "boolean",
    default: false,
    environmentVariable: "REQUIRE_PASSWORD_CHANGE",
    description:
      "New users must change the password that an administrator gave them at the first sign-in, unless the request that creates the user says otherwise.",
  },
  unusedPasswordDays: {
    category: "features",
    type: "integer",
    default: 14,
    minimum: 1,
    maximum: 365,
    environmentVariable: "UNUSED_PASSWORD_DAYS",
    description:
      "Days after which a password that an administrator gave a user expires if the user never signed in with it.",
  },
  requireSecondFactor: {
    category: "features",
    type: "string",
    default: "none",
    allowed: SECOND_FACTOR_REQUIREMENTS,
    environmentVariable: "REQUIRE_SECOND_FACTOR",
    description:
      "Users who must add a second factor before anything else after a sign-in with a password: nobody (`none`), administrators or everyone. Has no effect on single sign-on and API tokens, nor if the deployment has neither a key vault for the service nor PUBLIC_BASE_URL, because no second factor can be added then.",
  },
  requireStepUp: {
    category: "features",
    type: "boolean",
    default: false,
    environmentVariable: "REQUIRE_STEP_UP",
    description:
      "Before a request that can expose a secret, the user must have confirmed a second factor, or signed in at the identity provider, in the last ten minutes. Such requests create syncs, providers, rotation policies, API tokens of administrators, or administrators. API tokens can't send them.",
  },
  requireApproval: {
    category: "features",
    type: "boolean",
    default: false,
    environmentVariable: "REQUIRE_APPROVAL",
    description:
      "Another administrator must approve a request that can expose a secret. The user then sends the request again within 24 hours. Needs two active administrators.",
  },
  logLevel: {
    category: "logging",
    type: "string",
    default: "INFO",
    allowed: LOG_LEVELS,
    environmentVariable: "LOG_LEVEL",
    description: "Minimum level of the log lines that the service writes. Takes effect without a restart.",
  },
  defaultThresholdDays: {
    category: "alert-defaults",
    type: "integer",
    default: 30,
    minimum: 1,
    maximum: 365,
    environmentVariable: "DEFAULT_THRESHOLD_DAYS",
    description: "Days before expiry at which an alert rule notifies if the rule has no thresholds of its own.",
  },
  criticalExpiryDays: {
    category: "compliance-policy",
    type: "integer",
    default: 7,
    minimum: 0,
    maximum: 365,
    environmentVariable: "CRITICAL_EXPIRY_DAYS",
    description:
      "An asset has the status critical, which the web page calls urgent, if it expires within this many days. Must be less than the warning expiry threshold.",
  },
  warningExpiryDays: {
    category: "compliance-policy",
    type: "integer",
    default: 30,
    minimum: 1,
    maximum: 730,
    environmentVariable: "WARNING_EXPIRY_DAYS",
    description:
      "An asset has the status warning if it expires within this many days and is not critical. Must be more than the critical expiry threshold.",
  },
  unusedSecretDays: {
    category: "compliance-policy",
    type: "integer",
    default: 90,
    minimum: 7,
    maximum: 365,
    environmentVariable: "UNUSED_SECRET_DAYS",
    description:
      "A secret is unused if the vault's logs show no read for this many days. Applies only to vaults whose logs cover the whole period. Takes effect within a day.",
  },
  auditRetentionDays: {
    category: "retention",
    type: "integer",
    default: 365,
    minimum: 1,
    maximum: 3650,
    environmentVariable: "AUDIT_RETENTION_DAYS",
    description:
      "Days that entries of the audit log and the alert history are kept. Audit entries are kept at least for the days in the environment variable AUDIT_MINIMUM_RETENTION_DAYS.",
  },
  rotationRetentionDays: {
    category: "retention",
    type: "integer",
    default: 365,
    minimum: 1,
    maximum: 3650,
    environmentVariable: "ROTATION_RETENTION_DAYS",
    description: "Days that the history of rotations and syncs is kept.",
  },
  scanRetentionDays: {
    category: "retention",
    type: "integer",
    default: 90,
    minimum: 1,
    maximum: 3650,
    environmentVariable: "SCAN_RETENTION_DAYS",
    description: "Days that finished scans, their results and the changes they found are kept.",
  },
  outOfScopeRetentionDays: {
    category: "retention",
    type: "integer",
    default: 30,
    minimum: 1,
    maximum: 3650,
    environmentVariable: "OUT_OF_SCOPE_RETENTION_DAYS",
    description: "Days that vaults and assets of subscriptions that are no longer monitored are kept.",
  },
  rotationTriggerDays: {
    category: "automation",
    type: "integer",
    default: 30,
    minimum: 1,
    maximum: 365,
    environmentVariable: "ROTATION_TRIGGER_DAYS",
    description: "Days before expiry at which automatic rotation of a secret starts.",
  },
  defaultValidityDays: {
    category: "automation",
    type: "integer",
    default: 180,
    minimum: 1,
    maximum: 730,
    environmentVariable: "DEFAULT_VALIDITY_DAYS",
    description:
      "Days that a new secret is valid after a rotation, if the rotation or the policy sets no other validity.",
  },
};

export const SETTING_KEYS = Object.keys(DEFINITIONS) as SettingKey[];

/** Returns the keys of a category's settings. */
export const keysOf = (category: Category): SettingKey[] =>
  SETTING_KEYS.filter((key) => DEFINITIONS[key].category === category);

/** Returns the default values of a category. */
export const defaultsOf = (category: Category): Record<string, unknown> =>
  Object.fromEntries(keysOf(category).map((key) => [key, DEFINITIONS[key].default]));

/** Returns the key if `text` names a setting of the category, else undefined. */
export const keyIn = (category: Category, text: string): SettingKey | undefined =>
  keysOf(category).find((key) => key === text);

/** Describes the allowed values, as the end of a sentence "must be …". */
export function expectation(definition: Definition): string {
  if (definition.type === "integer") return `a whole number from ${definition.minimum} to ${definition.maximum}`;
  return definition.type === "boolean" ? "true or false" : `one of ${definition.allowed.join(", ")}`;
}

function schemaOf(definition: Definition): z.ZodType<SettingValue> {
  const { description } = definition;
  const error = `must be ${expectation(definition)}`;
  if (definition.type === "integer") {
    return z.int({ error }).min(definition.minimum, { error }).max(definition.maximum, { error }).meta({ description });
  }
  if (definition.type === "boolean") return z.boolean({ error }).meta({ description });
  return z
    .enum(definition.allowed as typeof LOG_LEVELS | typeof SECOND_FACTOR_REQUIREMENTS, { error })
    .meta({ description });
}

const SCHEMAS = Object.fromEntries(SETTING_KEYS.map((key) => [key, schemaOf(DEFINITIONS[key])])) as {
  readonly [K in SettingKey]: z.ZodType<SettingValues[K]>;
};

/** Parses a value from a table or a request. Undefined if it is not allowed. */
export function validValue(key: SettingKey, value: unknown): SettingValue | undefined {
  return SCHEMAS[key].safeParse(value).data;
}

/** Parses a value given as text, as App Configuration stores it (`10`, `true`, `INFO`). Undefined if it is not allowed. */
export function validText(key: SettingKey, text: string): SettingValue | undefined {
  const { type } = DEFINITIONS[key];
  if (type === "integer") return /^\d{1,9}$/.test(text) ? validValue(key, Number(text)) : undefined;
  if (type === "boolean") return text === "true" || text === "false" ? text === "true" : undefined;
  return validValue(key, text);
}

const changesSchema = (category: Category) =>
  z.strictObject(
    Object.fromEntries(keysOf(category).map((key) => [key, (SCHEMAS[key] as z.ZodType<SettingValue>).optional()])),
  );

const CHANGES = Object.fromEntries(CATEGORY_NAMES.map((category) => [category, changesSchema(category)])) as {
  readonly [C in Category]: ReturnType<typeof changesSchema>;
};

/** Returns the schema of any subset of a category's settings, the body of its PUT. */
export const changesOf = (category: Category) => CHANGES[category];
