import * as z from "zod";
import { entityTag } from "../http/conditional.ts";
import { type PageRequest, pageOf, pageOfAll, queryInstant } from "../http/paging.ts";
import { singleLine } from "../http/text.ts";
import { titleOfCredential } from "../inventory/asset.ts";
import type { Row } from "../storage/entity.ts";
import { ULID } from "../ulid.ts";
import {
  attemptsOf,
  DELIVERY_STATUSES,
  type DeliveryRecord,
  type DeliverySummary,
  itemsIn,
  type Part,
} from "./delivery.ts";
import { ITEM_KINDS, type Item } from "./items.ts";
import { MAX_OWNER_CHARACTERS, MAX_OWNERS, type OwnersTable } from "./owners.ts";
import {
  ALERT_TYPES,
  type ChangedRule,
  DELIVERY_METHODS,
  DELIVERY_MODES,
  DIGEST_FREQUENCIES,
  MAX_ESCALATION_DAYS,
  MAX_RECIPIENTS,
  MAX_THRESHOLD_DAYS,
  MAX_THRESHOLDS,
  NEW_RULE_DEFAULTS,
  RuleFilters,
  type RuleRecord,
} from "./rule.ts";
import { SnoozeFilters, type SnoozeRecord, snoozeIdOf } from "./snooze.ts";

/** Alert rules, snoozes and the history as the API takes and shows them. */

const threshold = z.int().min(1).max(MAX_THRESHOLD_DAYS);

const NewEscalation = z
  .strictObject({
    afterDays: z
      .int()
      .min(1)
      .max(MAX_ESCALATION_DAYS)
      .meta({ description: "Days after the rule first sent the alert." }),
    recipients: z
      .array(z.email().max(254))
      .max(MAX_RECIPIENTS)
      .optional()
      .meta({ description: "E-mail addresses that receive the escalated alert." }),
    ruleId: z.string().regex(ULID, "must be an id (26 letters and digits)").optional().meta({
      description: "Another rule whose delivery method and address are used instead of recipients.",
    }),
  })
  .meta({
    id: "NewAlertEscalation",
    description: "Second recipient of the rule's alerts that are neither acknowledged nor resolved.",
  });
export type NewEscalation = z.infer<typeof NewEscalation>;

const secretText = z.string().min(1).max(1024);
const RuleCredentialsGiven = z
  .strictObject({
    routingKey: z
      .string()
      .regex(/^[A-Za-z0-9]{32}$/, "must be an integration key of 32 letters and digits")
      .meta({ description: "For `pagerDuty`: integration key of a service (Events API v2)." }),
    username: secretText.meta({ description: "For `serviceNow`: user who can read, create and change incidents." }),
    password: secretText.meta({ description: "For `serviceNow`: password of the user. Never returned." }),
    clientId: secretText.meta({
      description:
        "For `serviceNow`: OAuth client. With a username, the password grant is used; otherwise client credentials.",
    }),
    clientSecret: secretText.meta({ description: "For `serviceNow`: OAuth client secret. Never returned." }),
  })
  .partial()
  .meta({
    id: "AlertRuleCredentials",
    description:
      "Credentials for `pagerDuty` and `serviceNow`. Write-only; stored in the service's key vault. A new webhookUrl requires them again.",
  });

const fields = {
  name: singleLine(128),
  alertType: z.enum(ALERT_TYPES).meta({
    description:
      "`serviceCredentialExpiry`: what the service itself or its users sign in with, such as API tokens, 30, 14 and 3 days before it ends. `breakGlass`: a sign-in with a password while single sign-on has them switched off. `rotationDue`: client secrets that end within `rotationTriggerDays` and a day, and old ones that wait for somebody to remove them. `rotationDone`, `rotationFailed`: what became of rotations, and policies that can't be followed. `syncFailed`: records of sync that fail or have drifted. `referenceUnresolved`: references to a vault that the platform, such as App Service, can't follow. `unexpectedReader`: who was seen in a log to read an asset, and is neither known to use it nor to be allowed to; once for each reader and asset.",
  }),
  thresholdDays: threshold.meta({
    description:
      "For `expiration` and `credentialExpiry`: days before expiry at which the alert is sent. Short form of `thresholds`.",
  }),
  thresholds: z.array(threshold).min(1).max(MAX_THRESHOLDS).meta({
    description:
      "For `expiration` and `credentialExpiry`: several thresholds in days. Each asset is reported once per threshold.",
  }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({
    description: "For `digest`: daily at 06:00 UTC, or weekly on Monday.",
  }),
  recipients: z
    .array(z.email().max(254))
    .max(MAX_RECIPIENTS)
    .meta({ description: "E-mail addresses. Each mail has up to 50 recipients." }),
  webhookUrl: z.url().max(4096).meta({
    description:
      "Write-only; stored in the service's key vault. For `webhook`, `teams` and `slack`: the URL. For `serviceNow`: the address of the instance, such as https://acme.service-now.com. For `pagerDuty`: only if it differs from https://events.pagerduty.com/v2/enqueue.",
  }),
  credentials: RuleCredentialsGiven,
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({
    description:
      "Whether to notify when an alert is resolved: the asset was renewed, the violation was fixed, or the scan can read the resource again. Default for new rules: true.",
  }),
  escalation: NewEscalation.nullable().meta({ description: "Null removes the escalation." }),
};

const { name, alertType, ...others } = fields;
const optional = z.object(others).partial().shape;

export const NewRule = z
  .strictObject({
    name,
    alertType,
    ...optional,
    deliveryMethod: optional.deliveryMethod.meta({ default: NEW_RULE_DEFAULTS.deliveryMethod }),
    deliveryMode: optional.deliveryMode.meta({ default: NEW_RULE_DEFAULTS.deliveryMode }),
    digestFrequency: optional.digestFrequency.meta({ default: NEW_RULE_DEFAULTS.digestFrequency }),
    enabled: optional.enabled.meta({ default: NEW_RULE_DEFAULTS.enabled }),
    tellRecovery: optional.tellRecovery.meta({ default: true }),
  })
  .meta({ id: "NewAlertRule" });
export type NewRule = z.infer<typeof NewRule>;

export const RuleChange = z.strictObject(z.object(fields).partial().shape).meta({ id: "AlertRuleChange" });
export type RuleChange = z.infer<typeof RuleChange>;

const instant = z.iso.datetime();
export const ulid = z.string().regex(ULID, "must be an id (26 letters and digits)");

const AlertEscalation = z
  .object({
    afterDays: z.int().meta({ description: "Days after the rule first sent the alert." }),
    recipients: z.array(z.string()),
    ruleId: z.string().nullable().meta({ description: "Rule whose delivery method and address are used." }),
  })
  .meta({ id: "AlertEscalation" });

const ruleFields = {
  id: z.string(),
  name: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "Type of alerts that the rule sends." }),
  thresholdDays: z
    .int()
    .nullable()
    .meta({ description: "Highest threshold in days. Null unless the rule is about expiry." }),
  thresholds: z.array(z.int()).meta({ description: "Days before expiry at which alerts are sent, highest first." }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({ description: "How often the digest is sent." }),
  recipients: z.array(z.string()),
  webhookHost: z.string().nullable().meta({ description: "Masked form of webhookUrl." }),
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({ description: "Whether to notify when an alert is resolved." }),
  escalation: AlertEscalation.nullable().meta({ description: "Null when alerts are not escalated." }),
  createdAt: instant,
  createdBy: z.string(),
  updatedAt: instant,
  updatedBy: z.string(),
  etag: z.string(),
};
export const AlertRule = z.object(ruleFields).meta({ id: "AlertRule" });
export const AlertRuleWithSecret = z
  .object({
    ...ruleFields,
    webhookSecret: z.string().optional().meta({
      description:
        "Signing key of the rule's webhooks, as defined by the Standard Webhooks specification. Returned only by the call that created it.",
    }),
  })
  .meta({ id: "AlertRuleWithSecret" });

export const ruleView = (rule: Row<RuleRecord>): z.infer<typeof AlertRule> => ({
  id: rule.ruleId,
  name: rule.name,
  alertType: rule.alertType,
  thresholdDays: rule.thresholds[0] ?? null,
  thresholds: rule.thresholds,
  filters: rule.filters,
  deliveryMethod: rule.deliveryMethod,
  deliveryMode: rule.deliveryMode,
  digestFrequency: rule.digestFrequency,
  recipients: rule.recipients,
  webhookHost: rule.webhookHost ?? null,
  enabled: rule.enabled,
  tellRecovery: rule.tellRecovery ?? true,
  escalation: rule.escalation ? { ...rule.escalation, ruleId: rule.escalation.ruleId ?? null } : null,
  createdAt: rule.createdAt,
  createdBy: rule.createdBy,
  updatedAt: rule.updatedAt,
  updatedBy: rule.updatedBy,
  etag: entityTag(rule),
});
export const changedRuleView = ({ rule, webhookSecret }: ChangedRule): z.infer<typeof AlertRuleWithSecret> => ({
  ...ruleView(rule),
  ...(webhookSecret === undefined ? {} : { webhookSecret }),
});

const Recipient = z
  .object({
    recipient: z.string().meta({ description: "E-mail address, or host of the webhook." }),
    status: z
      .enum(["pending", "accepted", "delivered", "failed", "cancelled"])
      .meta({ description: "For an e-mail address: delivery status of the mail, which has up to 50 recipients." }),
    owner: z.string().nullable().meta({
      description:
        "For a mail to an owner: value of the owner tag. The owner receives the items of their assets; the recipients of the rule receive the rest.",
    }),
    reason: z
      .string()
      .nullable()
      .meta({ description: "Reason why the recipients of the rule receive the items instead of an owner." }),
    itemsTotal: z.int().meta({ description: "Number of items for this recipient." }),
    attempts: z.int(),
    error: z.string().nullable().meta({ description: "Reason why the delivery failed. Null if it succeeded." }),
    notBefore: instant.nullable().meta({ description: "For a pending delivery: earliest time of the next attempt." }),
    waitsFor: z.string().nullable().meta({
      description: "Reason for a delayed mail: the limit `MAIL_PER_MINUTE` or `MAIL_PER_HOUR`.",
    }),
    replaced: z
      .boolean()
      .meta({ description: "The mail could not be delivered to an owner and was sent to the recipients of the rule." }),
    finishedAt: instant.nullable(),
    mayBeRepeated: z.boolean().meta({
      description:
        "Sent again because the result of an earlier attempt is unknown. The receiver may have received it twice.",
    }),
  })
  .meta({ id: "AlertRecipient" });
export const AlertItem = z
  .object({
    kind: z.enum(ITEM_KINDS).meta({
      description:
        "State of the item. `scanFailure`: scans can't read a vault, a subscription or anything. For an alert that was sent before: `renewed`, `recovered`, `stillFailing` (a week later) or `escalated` (not acknowledged).",
    }),
    id: z.string().meta({ description: "ID of the item, such as the asset ID." }),
    credentialTitle: z.string().nullable().meta({
      description: "For a directory credential: its owner object and name, since its ID contains only IDs.",
    }),
    thresholdDays: z
      .int()
      .nullable()
      .meta({ description: "Lowest threshold that the asset has crossed, in days. 0 when expired." }),
    expiresOn: instant.nullable().meta({ description: "For a renewed asset: its new expiry date." }),
    since: instant.nullable().meta({ description: "For an alert that was sent before: time since when it applies." }),
  })
  .meta({ id: "AlertItem" });
const entryFields = {
  id: z.string(),
  ruleId: z.string(),
  ruleName: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "Alert type of the rule." }),
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean().meta({ description: "True for a test message." }),
  status: z
    .enum(DELIVERY_STATUSES)
    .meta({ description: "`pending`: delivery is in progress. `partial`: delivery to some recipients failed." }),
  createdAt: instant,
  finishedAt: instant.nullable(),
  nextAttemptAt: instant
    .nullable()
    .meta({ description: "Time of the next attempt. Null when the delivery is complete." }),
  attempts: z.int(),
  error: z.string().nullable().meta({ description: "First error of the recipients." }),
  recipients: z.array(Recipient),
  itemsTotal: z.int().meta({ description: "Number of items." }),
  escalatedFrom: z.string().nullable().meta({
    description: "For an escalation: rule whose alerts were not acknowledged.",
  }),
};
export const HistoryEntry = z
  .object({
    ...entryFields,
    items: z.array(AlertItem).meta({ description: "Items of the message. Lists contain the first ten." }),
  })
  .meta({ id: "AlertHistoryEntry" });
export const AlertTestResult = z
  .object({
    delivered: z.boolean().meta({ description: "Whether the message was delivered." }),
    message: z.string().meta({ description: "Result of the delivery, in a sentence." }),
    receiver: z
      .object({
        status: z.int().meta({ description: "HTTP status of the response." }),
        body: z.string().meta({ description: "Beginning of the response body." }),
      })
      .nullable()
      .meta({ description: "Response of the webhook receiver." }),
    delivery: HistoryEntry.meta({ description: "Delivery as recorded in the history." }),
  })
  .meta({ id: "AlertTestResult" });

const recipientsOf = (part: Part, itemsTotal: number): z.infer<typeof Recipient>[] =>
  part.recipients.map((recipient) => ({
    recipient,
    owner: part.owner ?? null,
    reason: part.reason ?? null,
    itemsTotal: part.items?.length ?? itemsTotal,
    notBefore: part.notBefore ?? null,
    waitsFor: part.waits ?? null,
    replaced: part.replaced ?? false,
    status: part.status === "waiting" || part.status === "sending" ? "pending" : part.status,
    attempts: part.attempts,
    error: part.error ?? null,
    finishedAt: part.finishedAt ?? null,
    mayBeRepeated: part.mayBeRepeated ?? false,
  }));
export function itemView(item: Item): z.infer<typeof AlertItem> {
  const about = "of" in item ? item.of : item;
  const expiresOn = item.kind === "renewed" ? item.expiresOn : "expiresOn" in about ? about.expiresOn : undefined;
  return {
    kind: item.kind,
    id: item.id,
    credentialTitle: "credential" in about && about.credential ? titleOfCredential(about.credential) || null : null,
    thresholdDays: "threshold" in about ? about.threshold : null,
    expiresOn: expiresOn === undefined ? null : new Date(expiresOn * 1000).toISOString(),
    since: ("since" in item ? item.since : undefined) ?? null,
  };
}
export const historyView = (
  delivery: Omit<DeliverySummary, "firstNews">,
  items: readonly Item[],
): z.infer<typeof HistoryEntry> => ({
  id: delivery.deliveryId,
  ruleId: delivery.ruleId,
  ruleName: delivery.ruleName,
  alertType: delivery.alertType,
  deliveryMethod: delivery.deliveryMethod,
  deliveryMode: delivery.deliveryMode,
  test: delivery.test,
  status: delivery.status,
  createdAt: delivery.createdAt,
  finishedAt: delivery.finishedAt ?? null,
  nextAttemptAt: delivery.status === "pending" ? delivery.nextAt : null,
  attempts: attemptsOf(delivery.parts),
  error: delivery.parts.find(({ error }) => error !== undefined)?.error ?? null,
  recipients: delivery.parts.flatMap((part) => recipientsOf(part, delivery.newsTotal)),
  itemsTotal: delivery.newsTotal,
  escalatedFrom: delivery.escalatedFrom ?? null,
  items: items.map(itemView),
});

export function alertTestView(delivery: DeliveryRecord): z.infer<typeof AlertTestResult> {
  const entry = historyView(delivery, itemsIn(delivery));
  const receiver = delivery.parts[0]?.answer ?? null;
  const waiting = delivery.parts.find(({ waits }) => waits !== undefined);
  const waits = waiting ? `It waits until ${waiting.notBefore}. ${waiting.waits}` : "";
  const accepted = delivery.parts.every(({ status }) => status === "accepted" || status === "delivered");
  const messages = {
    delivered: "It was delivered.",
    partial: `Some recipients were reached, others not: ${entry.error}`,
    failed: entry.error ?? "It failed.",
    cancelled: entry.error ?? "It was cancelled.",
    pending: accepted
      ? "The mail provider has accepted it; the history will say what became of it."
      : `It is not known yet whether it arrived; the history will say. ${entry.error ?? waits}`.trim(),
  };
  return { delivered: delivery.status === "delivered", message: messages[delivery.status], receiver, delivery: entry };
}

export const Snooze = z
  .object({
    id: z.string(),
    ruleId: z.string().nullable().meta({ description: "Null when the snooze applies to every rule." }),
    assetId: z.string().nullable().meta({ description: "Null when the snooze has filters." }),
    filters: RuleFilters.nullable(),
    reason: z.string().meta({ description: "Reason for the snooze." }),
    until: instant.meta({ description: "Time until which the rule sends no alerts." }),
    createdAt: instant,
    createdBy: z.string(),
  })
  .meta({ id: "AlertSnooze" });
export const snoozeView = (snooze: SnoozeRecord): z.infer<typeof Snooze> => ({
  id: snoozeIdOf(snooze),
  ruleId: snooze.ruleId ?? null,
  assetId: snooze.assetId ?? null,
  filters: snooze.filters ?? null,
  reason: snooze.reason,
  until: snooze.until,
  createdAt: snooze.createdAt,
  createdBy: snooze.createdBy,
});
export const NewSnooze = z
  .strictObject({
    ruleId: ulid.optional().meta({
      description: "Required with assetId. With filters and without ruleId, the snooze applies to every rule.",
    }),
    assetId: z
      .string()
      .min(1)
      .max(300)
      .optional()
      .meta({ description: "`<vault>.<type>.<name>`. Specify either assetId or filters." }),
    filters: SnoozeFilters.optional(),
    reason: singleLine(500).meta({ description: "Reason for the snooze. Recorded in the audit log." }),
    until: queryInstant("end").meta({
      description: "A time, or a date at the end of which the snooze expires.",
      type: "string",
    }),
  })
  .meta({ id: "NewAlertSnooze" });

const Owner = z
  .object({
    owner: singleLine(MAX_OWNER_CHARACTERS).meta({
      description: "Tag value, not case-sensitive for A to Z.",
      example: "payments-team",
    }),
    address: z
      .email()
      .max(254)
      .meta({ description: "E-mail address that receives the alerts.", example: "payments@acme.example" }),
  })
  .meta({ id: "AlertOwner" });
export const NewOwners = z
  .strictObject({
    owners: z
      .array(z.strictObject(Owner.shape))
      .max(MAX_OWNERS)
      .meta({ description: "The complete list. Owners that are not included are removed." }),
  })
  .meta({ id: "NewAlertOwners" });
export const OwnerList = z
  .object({
    ...pageOf(Owner, "AlertOwnerPage").shape,
    updatedAt: instant.nullable(),
    updatedBy: z.string().nullable(),
    etag: z.string(),
  })
  .meta({ id: "AlertOwnerList" });
export const ownersView = (table: OwnersTable, request: PageRequest): z.infer<typeof OwnerList> => {
  const { owners, updatedAt, updatedBy, etag } = table;
  return { ...pageOfAll(owners, request, ({ owner }) => owner), updatedAt, updatedBy, etag };
};
