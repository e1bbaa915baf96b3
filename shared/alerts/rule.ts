import * as z from "zod";
import { ASSET_TYPES, type AssetSource, type Credential, SOURCES, sourceOf } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";

/**
 * The stored record of an alert rule, its filters and its secret. A rule notifies about items of one type, such as expiring
 * assets.
 */

export const ALERT_TYPES = [
  "expiration",
  "expired",
  "credentialExpiry",
  "lateRenewal",
  "complianceViolation",
  "scanFailure",
  "serviceCredentialExpiry",
  "breakGlass",
  "rotationDue",
  "rotationDone",
  "rotationFailed",
  "syncFailed",
  "referenceUnresolved",
  "unexpectedReader",
  "rowUnreadable",
  "staleEndpoint",
  "auditStreamFailing",
] as const;
export type AlertType = (typeof ALERT_TYPES)[number];
/**
 * Returns the CloudEvents type of a rule's webhooks, which is part of the public contract with receivers. The resolution of an
 * alert has the type of the alert.
 */
export const eventTypeOf = (type: AlertType) => `lifecycle.alert.${type}` as const;
/** Returns whether a type is about the expiry of assets, or about certificates that were not renewed in time. */
export const isAboutExpiry = (type: AlertType): boolean =>
  type === "expired" || type === "lateRenewal" || hasThresholds(type);
/** Returns whether a type has thresholds. `credentialExpiry` covers only application credentials, and also expired ones. */
export const hasThresholds = (type: AlertType): boolean => type === "expiration" || type === "credentialExpiry";

/** Returns whether alerts of a type are tracked until they are resolved. */
export const isTracked = (type: AlertType): boolean =>
  isAboutExpiry(type) || type === "complianceViolation" || type === "scanFailure";

/**
 * Returns whether a type is about rotation, sync, dependency discovery, stored rows that can't be read, endpoints of certificates, or
 * audit streams.
 */
export const isAboutAutomation = (type: AlertType): boolean =>
  type.startsWith("rotation") ||
  [
    "syncFailed",
    "referenceUnresolved",
    "unexpectedReader",
    "rowUnreadable",
    "staleEndpoint",
    "auditStreamFailing",
  ].includes(type);

export const DELIVERY_METHODS = ["email", "webhook", "teams", "slack", "pagerDuty", "serviceNow"] as const;
export type DeliveryMethod = (typeof DELIVERY_METHODS)[number];
export const DELIVERY_MODES = ["immediate", "digest"] as const;
export const DIGEST_FREQUENCIES = ["daily", "weekly"] as const;
export type DigestFrequency = (typeof DIGEST_FREQUENCIES)[number];

/** From most to least severe, as in the compliance module. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const;
export type Severity = (typeof SEVERITIES)[number];

export const MAX_THRESHOLDS = 10;
export const MAX_THRESHOLD_DAYS = 365;
/** Maximum number of recipients of a rule: ten mails of 50 recipients. */
export const MAX_RECIPIENTS = 500;

export const RuleFilters = z
  .strictObject({
    vault: z
      .string()
      .regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name")
      .optional()
      .meta({ description: "Name of a vault." }),
    type: z.enum(ASSET_TYPES).optional().meta({ description: "Type of asset." }),
    subscription: z
      .guid("must be a subscription id (a GUID)")
      .optional()
      .meta({ description: "Id of a subscription." }),
    source: z
      .enum(SOURCES)
      .optional()
      .meta({ description: "Source of the asset: key vaults, Entra applications or B2C tenants." }),
    tag: z.string().min(1).max(512).optional().meta({ description: "`name` or `name=value`." }),
    owner: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .meta({ description: "Value of the tag named by OWNER_TAG, or an owner of the application." }),
    severity: z.enum(SEVERITIES).optional().meta({ description: "For `complianceViolation`: the minimum severity." }),
  })
  .meta({
    id: "AlertRuleFilters",
    description: "An item must match all given filters. Without filters, every item matches.",
  });
export type RuleFilters = z.infer<typeof RuleFilters>;

/** Maximum number of days without acknowledgment before an escalation. */
export const MAX_ESCALATION_DAYS = 90;

/** The escalation of a rule: recipients of alerts without acknowledgment. */
export const Escalation = z.object({
  /** Days since the first notification. */
  afterDays: z.int(),
  /** Email addresses. Empty if `ruleId` is given. */
  recipients: z.array(z.string()),
  /** The rule whose channel sends the escalation, such as a webhook. */
  ruleId: z.string().optional(),
});
export type Escalation = z.infer<typeof Escalation>;

/** Defaults of a new rule. */
export const NEW_RULE_DEFAULTS = {
  deliveryMethod: "email",
  deliveryMode: "immediate",
  digestFrequency: "daily",
  enabled: true,
} as const;

export const RuleRecord = z.object({
  ruleId: z.string(),
  name: z.string(),
  alertType: z.enum(ALERT_TYPES),
  /** Days, descending. Empty unless the type is `expiration` or `credentialExpiry`. */
  thresholds: z.array(z.int()),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES),
  recipients: z.array(z.string()),
  escalation: Escalation.optional(),
  /** Whether the rule notifies of resolved alerts. Undefined, as in rows of earlier versions: true. */
  tellRecovery: z.boolean().optional(),
  /** Host of the webhook URL. The URL is stored in the service's key vault. */
  webhookHost: z.string().optional(),
  /** Version of the rule's secret in the service's key vault, which contains the URL and the signing keys. */
  webhookVersion: z.string().optional(),
  enabled: z.boolean(),
  /** Incremented when the rule's scope changes. The next evaluation then checks everything in scope. */
  generation: z.int(),
  /** Time of the last activation. Earlier events cause no notification. */
  activeSince: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type RuleRecord = z.infer<typeof RuleRecord>;

/**
 * All rules are in one partition, so that one transaction can change a rule and its name. Rules are signed, because they decide
 * where alerts are sent. `adopted`: unsigned rows of earlier versions are accepted until they are signed. `listed`: the removal
 * or an older state of a row is detected.
 */
export const Rules = entity("AlertRules", RuleRecord, { signed: "adopted", listed: true });
/** Ensures unique names: `n|<name>` names the rule. */
export const RuleNames = entity("AlertRules", z.object({ ruleId: z.string() }));
export const RULES = "rules";
export const RULE_PREFIX = "r|";
export const ruleKey = (ruleId: string): string => `${RULE_PREFIX}${ruleId}`;
export const ruleNameKey = (name: string): string => `n|${keyText(name.toLowerCase())}`;

/** Records that a rule's secret exists in the key vault, or may exist. */
export const RuleSecretRows = entity("AlertRules", z.object({ ruleId: z.string(), since: z.string() }));
export const SECRET_PREFIX = "s|";
export const ruleSecretKey = (ruleId: string): string => `${SECRET_PREFIX}${ruleId}`;

/** A changed rule, and its signing key if the request created one. */
export interface ChangedRule {
  rule: Row<RuleRecord>;
  webhookSecret?: string;
}

/** Returns whether a method posts to a URL, instead of sending mails. */
export const usesWebhook = (method: DeliveryMethod): boolean => method !== "email";
/** Returns whether a method opens an incident per item and closes it when the alert is resolved. */
export const opensIncidents = (method: DeliveryMethod): boolean => method === "pagerDuty" || method === "serviceNow";

/** Credentials of a rule that opens incidents. */
export const RuleCredentials = z.object({
  /** PagerDuty: integration key of a service, Events API v2. */
  routingKey: z.string().optional(),
  /** ServiceNow: basic authentication, or with `clientId` the OAuth password grant. */
  username: z.string().optional(),
  password: z.string().optional(),
  /** ServiceNow: OAuth. Without a username, the client credentials grant. */
  clientId: z.string().optional(),
  clientSecret: z.string().optional(),
});
export type RuleCredentials = z.infer<typeof RuleCredentials>;

/** The secret of a rule with a webhook, in the service's key vault. */
export const WebhookSecret = z.object({
  url: z.string(),
  /** Signing keys, newest first. Messages are signed with each key until its `until`. The newest key has none. */
  keys: z.array(z.object({ key: z.string(), until: z.string().optional() })),
  credentials: RuleCredentials.optional(),
});
export type WebhookSecret = z.infer<typeof WebhookSecret>;
export const secretName = (ruleId: string): string => `alert-rule-${ruleId.toLowerCase()}`;

/**
 * Returns name and value of a tag filter. The value is undefined if only the name must match. A `=` at the start belongs to the
 * name, because no tag has an empty name.
 */
export function tagOf(text: string): { name: string; value: string | undefined } {
  const separator = text.indexOf("=");
  return separator < 1
    ? { name: text, value: undefined }
    : { name: text.slice(0, separator), value: text.slice(separator + 1) };
}

/**
 * The facts about an asset, a violation or another item with which filters are compared. A filter on an undefined member does not
 * match, with two exceptions. An item without a severity matches any severity. An item without a source counts as from a key
 * vault.
 */
export interface Subject {
  vaultName?: string | undefined;
  type?: string | undefined;
  subscriptionId?: string | undefined;
  tags?: Record<string, string> | undefined;
  source?: AssetSource | undefined;
  credential?: Credential | undefined;
  severity?: Severity | undefined;
}

/** Returns whether a subject matches the filters of a rule. */
export function matchesFilters(filters: RuleFilters, subject: Subject, ownerTag: string): boolean {
  const { vault, type, subscription, source, tag, owner, severity } = filters;
  const tagValue = (name: string) =>
    subject.tags && Object.hasOwn(subject.tags, name) ? subject.tags[name] : undefined;
  if (vault !== undefined && subject.vaultName?.toLowerCase() !== vault.toLowerCase()) return false;
  if (type !== undefined && subject.type !== type) return false;
  if (subscription !== undefined && subject.subscriptionId?.toLowerCase() !== subscription.toLowerCase()) return false;
  if (source !== undefined && sourceOf(subject) !== source) return false;
  if (owner !== undefined && !ownersOf(subject, ownerTag).includes(owner)) return false;
  if (tag !== undefined) {
    const required = tagOf(tag);
    const value = tagValue(required.name);
    if (value === undefined || (required.value !== undefined && value !== required.value)) return false;
  }
  if (severity !== undefined && subject.severity !== undefined) {
    if (SEVERITIES.indexOf(subject.severity) > SEVERITIES.indexOf(severity)) return false;
  }
  return true;
}
