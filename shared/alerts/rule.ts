import * as z from "zod";
import { ASSET_TYPES, type AssetSource, type Credential, SOURCES, sourceOf } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import { entity, type Row } from "../storage/entity.ts";
import { keyText } from "../storage/keys.ts";

export const ALERT_TYPES = [
  "expiration",
  "expired",
  "credentialExpiry",
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
] as const;
export type AlertType = (typeof ALERT_TYPES)[number];
/** The types that are about assets and their expiry. */
export const isAboutExpiry = (type: AlertType): boolean => type === "expired" || hasThresholds(type);
/** `credentialExpiry` is about credentials of applications alone, and tells of the expired ones too. */
export const hasThresholds = (type: AlertType): boolean => type === "expiration" || type === "credentialExpiry";

/** The types whose items are followed from the message that tells of them to their end. */
export const isFollowed = (type: AlertType): boolean =>
  isAboutExpiry(type) || type === "complianceViolation" || type === "scanFailure";

/** The types that tell of what this service does by itself, or found out by itself between other systems. */
export const isAboutAutomation = (type: AlertType): boolean =>
  type.startsWith("rotation") || ["syncFailed", "referenceUnresolved", "unexpectedReader"].includes(type);

export const DELIVERY_METHODS = ["email", "webhook", "teams", "slack", "pagerDuty", "serviceNow"] as const;
export type DeliveryMethod = (typeof DELIVERY_METHODS)[number];
export const DELIVERY_MODES = ["immediate", "digest"] as const;
export const DIGEST_FREQUENCIES = ["daily", "weekly"] as const;
export type DigestFrequency = (typeof DIGEST_FREQUENCIES)[number];

/** From the most to the least severe, as the compliance room names them. */
export const SEVERITIES = ["critical", "high", "medium", "low"] as const;
export type Severity = (typeof SEVERITIES)[number];

export const MAX_THRESHOLDS = 10;
export const MAX_THRESHOLD_DAYS = 365;
/** Ten mails of 50 recipients. */
export const MAX_RECIPIENTS = 500;

export const RuleFilters = z
  .strictObject({
    vault: z
      .string()
      .regex(/^[a-zA-Z0-9-]{1,127}$/, "must be a vault name")
      .optional()
      .meta({ description: "Only this vault." }),
    type: z.enum(ASSET_TYPES).optional().meta({ description: "Only assets of this type." }),
    subscription: z
      .guid("must be a subscription id (a GUID)")
      .optional()
      .meta({ description: "Only what this subscription holds, by its id." }),
    source: z.enum(SOURCES).optional().meta({ description: "Only what key vaults hold, or what applications hold." }),
    tag: z.string().min(1).max(512).optional().meta({ description: "`name` or `name=value`." }),
    owner: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .meta({ description: "The value of the tag that OWNER_TAG names, or an owner of the application." }),
    severity: z
      .enum(SEVERITIES)
      .optional()
      .meta({ description: "For `complianceViolation`: this severity or a higher one." }),
  })
  .meta({ id: "AlertRuleFilters", description: "All that are given must fit; none means everything." });
export type RuleFilters = z.infer<typeof RuleFilters>;

/** Days without an acknowledgement after which a rule may escalate. */
export const MAX_ESCALATION_DAYS = 90;

/** The second step of a rule: to whom that goes which nobody acknowledged. */
export const Escalation = z.object({
  /** Since it was first told. */
  afterDays: z.int(),
  /** E-mail addresses; empty where `ruleId` is given. */
  recipients: z.array(z.string()),
  /** The rule by whose delivery method and address it goes out: a webhook of its own, for example. */
  ruleId: z.string().optional(),
});
export type Escalation = z.infer<typeof Escalation>;

/** What a new rule has where it says nothing. */
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
  /** Days, falling; empty unless the type is `expiration` or `credentialExpiry`. */
  thresholds: z.array(z.int()),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES),
  recipients: z.array(z.string()),
  escalation: Escalation.optional(),
  /** Whether it tells of renewals and recoveries. Absent, as in rows of earlier versions: it does. */
  tellRecovery: z.boolean().optional(),
  /** Host of the webhook's address; the address itself is in the service's key vault. */
  webhookHost: z.string().optional(),
  /** The version of the rule's secret in the service's key vault that holds the address and the signing keys. */
  webhookVersion: z.string().optional(),
  enabled: z.boolean(),
  /** Raised when what the rule is about changes: everything in its scope is then looked at once more. */
  generation: z.int(),
  /** Since when it has been enabled: what happened before is not told. */
  activeSince: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string(),
});
export type RuleRecord = z.infer<typeof RuleRecord>;

/** All rules are in one partition, so that a rule and its name change in one transaction. */
export const Rules = entity("AlertRules", RuleRecord);
/** Keeps a name from being given twice. */
export const RuleNames = entity("AlertRules", z.object({ ruleId: z.string() }));
export const RULES = "rules";
export const RULE_PREFIX = "r|";
export const ruleKey = (ruleId: string): string => `${RULE_PREFIX}${ruleId}`;
export const ruleNameKey = (name: string): string => `n|${keyText(name.toLowerCase())}`;

/** Says that a rule's secret is in the key vault, or may be. */
export const RuleSecretRows = entity("AlertRules", z.object({ ruleId: z.string(), since: z.string() }));
export const SECRET_PREFIX = "s|";
export const ruleSecretKey = (ruleId: string): string => `${SECRET_PREFIX}${ruleId}`;

/** A rule as it is now, and its signing key where it was made by this very call. */
export interface ChangedRule {
  rule: Row<RuleRecord>;
  webhookSecret?: string;
}

export const posts = (method: DeliveryMethod): boolean => method !== "email";
/** The methods that open an incident for each item and close it when that has ended. */
export const opensIncidents = (method: DeliveryMethod): boolean => method === "pagerDuty" || method === "serviceNow";

/** What a rule signs in with where it opens incidents. */
export const RuleCredentials = z.object({
  /** Of PagerDuty: the integration key of a service's Events API v2. */
  routingKey: z.string().optional(),
  /** Of ServiceNow: basic authentication, or with `clientId` OAuth's password grant. */
  username: z.string().optional(),
  password: z.string().optional(),
  /** Of ServiceNow: OAuth; without a username its client credentials grant. */
  clientId: z.string().optional(),
  clientSecret: z.string().optional(),
});
export type RuleCredentials = z.infer<typeof RuleCredentials>;

/** What the service's key vault keeps of a rule that posts. */
export const WebhookSecret = z.object({
  url: z.string(),
  /** Signing keys, the newest first, each with the instant until which messages are signed with it as well. */
  keys: z.array(z.object({ key: z.string(), until: z.string().optional() })),
  credentials: RuleCredentials.optional(),
});
export type WebhookSecret = z.infer<typeof WebhookSecret>;
export const secretName = (ruleId: string): string => `alert-rule-${ruleId.toLowerCase()}`;

/** Name and value of a filter by tag; the value is undefined when the name alone decides. */
export function tagOf(text: string): { name: string; value: string | undefined } {
  const at = text.indexOf("=");
  return at < 1 ? { name: text, value: undefined } : { name: text.slice(0, at), value: text.slice(at + 1) };
}

/** What filters can be about; absent members fit no filter that asks for them. */
export interface Subject {
  vaultName?: string | undefined;
  type?: string | undefined;
  subscriptionId?: string | undefined;
  tags?: Record<string, string> | undefined;
  source?: AssetSource | undefined;
  credential?: Credential | undefined;
  severity?: Severity | undefined;
}

export function fits(filters: RuleFilters, subject: Subject, ownerTag: string): boolean {
  const { vault, type, subscription, source, tag, owner, severity } = filters;
  const tagValue = (name: string) =>
    subject.tags && Object.hasOwn(subject.tags, name) ? subject.tags[name] : undefined;
  if (vault !== undefined && subject.vaultName?.toLowerCase() !== vault.toLowerCase()) return false;
  if (type !== undefined && subject.type !== type) return false;
  if (subscription !== undefined && subject.subscriptionId?.toLowerCase() !== subscription.toLowerCase()) return false;
  if (source !== undefined && sourceOf(subject) !== source) return false;
  if (owner !== undefined && !ownersOf(subject, ownerTag).includes(owner)) return false;
  if (tag !== undefined) {
    const wanted = tagOf(tag);
    const value = tagValue(wanted.name);
    if (value === undefined || (wanted.value !== undefined && value !== wanted.value)) return false;
  }
  if (severity !== undefined && subject.severity !== undefined) {
    if (SEVERITIES.indexOf(subject.severity) > SEVERITIES.indexOf(severity)) return false;
  }
  return true;
}
