import * as z from "zod";
import { titleOfCredential } from "../inventory/asset.ts";
import { entityTag } from "../platform/http/conditional-requests.ts";
import { type PageRequest, pageOf, pageOfAll, queryInstant } from "../platform/http/paging.ts";
import { singleLine } from "../platform/http/single-line.ts";
import type { Row } from "../platform/storage/entity.ts";
import { ULID } from "../platform/ulid.ts";
import {
  attemptsOf,
  DELIVERY_STATUSES,
  type DeliveryRecord,
  type DeliveryStatus,
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

/** API schemas and views of alert rules, snoozes and the history. */

const threshold = z.int().min(1).max(MAX_THRESHOLD_DAYS);

const NewEscalation = z
  .strictObject({
    afterDays: z
      .int()
      .min(1)
      .max(MAX_ESCALATION_DAYS)
      .meta({ description: "Days after the alert's first notification." }),
    recipients: z
      .array(z.email().max(254))
      .max(MAX_RECIPIENTS)
      .optional()
      .meta({ description: "Email addresses that receive the escalation. Required unless `ruleId` is given." }),
    ruleId: z.string().regex(ULID, "must be an id (26 letters and digits)").optional().meta({
      description: "Id of another rule, whose channel sends the escalation. Required unless `recipients` is given.",
    }),
  })
  .meta({
    id: "NewAlertEscalation",
    description: "Escalation of a rule: recipients of open alerts without acknowledgment.",
  });
export type NewEscalation = z.infer<typeof NewEscalation>;

const secretText = z.string().min(1).max(1024);
const RuleCredentialsGiven = z
  .strictObject({
    routingKey: z
      .string()
      .regex(/^[A-Za-z0-9]{32}$/, "must be an integration key of 32 letters and digits")
      .meta({ description: "For `pagerDuty`: integration key of a service, Events API v2." }),
    username: secretText.meta({ description: "For `serviceNow`: a user who can read, create and update incidents." }),
    password: secretText.meta({ description: "For `serviceNow`: the user's password. Never returned." }),
    clientId: secretText.meta({
      description:
        "For `serviceNow`: OAuth client ID. Uses the password grant with a username, otherwise client credentials.",
    }),
    clientSecret: secretText.meta({ description: "For `serviceNow`: OAuth client secret. Never returned." }),
  })
  .partial()
  .meta({
    id: "AlertRuleCredentials",
    description:
      "Write-only. Credentials for `pagerDuty` and `serviceNow`, stored in the service's key vault. Required again with a new `webhookUrl`.",
  });

/** The members of a rule that a user can set. */
const fields = {
  name: singleLine(128),
  alertType: z.enum(ALERT_TYPES).meta({
    description:
      "Trigger of the rule. `serviceCredentialExpiry`: credentials of the service and its users, such as API tokens, 30, 14 and 3 days before they expire. `lateRenewal`: certificates whose renewer did not renew them in its window. `breakGlass`: a password sign-in while passwords are turned off. `rotationDue`: client secrets that expire within `rotationTriggerDays` plus a day, and old client secrets that wait for deletion. `rotationDone`, `rotationFailed`: results of rotations, new places that a rotation left out, and policies that can't be applied. `syncFailed`: sync records that fail or drifted. `referenceUnresolved`: Key Vault references that don't resolve, for example in App Service. `unexpectedReader`: reads in logs by identities without known access, once per reader and asset. `rowUnreadable`: rows in the service's own tables that can't be read, for example because someone else changed them. `staleEndpoint`: endpoints that serve an old certificate too long, another certificate, or an incomplete chain, or can't be reached. `auditStreamFailing`: audit streams whose receiver has not accepted events for 15 minutes, or whose position another program changed.",
  }),
  thresholdDays: threshold.meta({
    description: "For `expiration` and `credentialExpiry`: days before expiry. The short form of `thresholds`.",
  }),
  thresholds: z.array(threshold).min(1).max(MAX_THRESHOLDS).meta({
    description:
      "For `expiration` and `credentialExpiry`: several thresholds in days before expiry. Each asset causes one notification per threshold.",
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
    .meta({ description: "Email addresses. One mail is sent to at most 50 of them." }),
  webhookUrl: z.url().max(4096).meta({
    description:
      "Write-only, stored in the service's key vault. URL for `webhook`, `teams` and `slack`. For `serviceNow`: the instance URL, such as https://acme.service-now.com. For `pagerDuty`: default https://events.pagerduty.com/v2/enqueue.",
  }),
  credentials: RuleCredentialsGiven,
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({
    description:
      "Whether the rule also notifies when an alert is resolved: the asset was renewed, the violation was fixed, or the scan can read the resource again. Default for a new rule: true.",
  }),
  escalation: NewEscalation.nullable().meta({
    description: "Escalation of alerts without acknowledgment. Null removes it.",
  }),
};

const { name, alertType, ...optionalFields } = fields;
const optional = z.object(optionalFields).partial().shape;

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
    afterDays: z.int().meta({ description: "Days after the alert's first notification." }),
    recipients: z.array(z.string()),
    ruleId: z
      .string()
      .nullable()
      .meta({ description: "Id of the rule whose channel sends the escalation. Null if recipients are set." }),
  })
  .meta({ id: "AlertEscalation" });

/** The members of a rule in responses. */
const ruleFields = {
  id: z.string(),
  name: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "Trigger of the rule." }),
  thresholdDays: z.int().nullable().meta({ description: "Highest threshold. Null for rules without thresholds." }),
  thresholds: z.array(z.int()).meta({ description: "Thresholds in days before expiry, highest first." }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({ description: "Frequency of the digest." }),
  recipients: z.array(z.string()),
  webhookHost: z.string().nullable().meta({ description: "Host of `webhookUrl`. The URL itself is never returned." }),
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({ description: "Whether the rule also notifies when an alert is resolved." }),
  escalation: AlertEscalation.nullable().meta({
    description: "Escalation of alerts without acknowledgment. Null if there is none.",
  }),
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
        "Key that signs the rule's webhooks, as in the Standard Webhooks specification. Returned only by the request that created the key.",
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
    recipient: z.string().meta({ description: "Email address, or the webhook's host." }),
    status: z
      .enum(["pending", "accepted", "delivered", "failed", "cancelled"])
      .meta({ description: "Delivery status. One mail can have up to 50 recipients, who then have the same status." }),
    owner: z.string().nullable().meta({
      description: "Owner tag that the recipient's address comes from. Null for recipients of the rule.",
    }),
    reason: z
      .string()
      .nullable()
      .meta({ description: "Why the items go to the rule's recipients and not to an owner." }),
    itemsTotal: z.int().meta({ description: "Number of items that are sent to this recipient." }),
    attempts: z.int(),
    error: z.string().nullable().meta({ description: "Why the delivery failed. Null if it did not fail." }),
    notBefore: instant.nullable().meta({ description: "Earliest time of the next attempt of a pending delivery." }),
    waitsFor: z.string().nullable().meta({
      description: "Why a mail is delayed by `MAIL_PER_MINUTE` or `MAIL_PER_HOUR`. Null if it is not.",
    }),
    replaced: z
      .boolean()
      .meta({ description: "Whether the mail to an owner failed and its items went to the rule's recipients." }),
    finishedAt: instant.nullable(),
    mayBeRepeated: z.boolean().meta({
      description:
        "Whether the message was resent after an attempt with an unknown outcome, so that it may have arrived twice.",
    }),
  })
  .meta({ id: "AlertRecipient" });
export const AlertItem = z
  .object({
    kind: z.enum(ITEM_KINDS).meta({
      description:
        "Kind of item. `scanFailure`: a vault or subscription that scans can't read, or a failure of scans as a whole. For alerts with an earlier notification: `renewed`, `recovered`, `stillFailing` (a week later), `escalated` (no acknowledgment).",
    }),
    id: z.string().meta({ description: "Id of the affected object, such as the asset." }),
    credentialTitle: z.string().nullable().meta({
      description:
        "Name of the application and of its credential, for credentials that expire or were renewed. Null for other items.",
    }),
    thresholdDays: z.int().nullable().meta({
      description: "Lowest threshold that was reached, in days. 0 if expired. Null for items without thresholds.",
    }),
    expiresOn: instant.nullable().meta({ description: "Expiry of the asset. For a renewed asset, the new expiry." }),
    since: instant
      .nullable()
      .meta({ description: "Time of the first notification, for alerts with an earlier notification." }),
  })
  .meta({ id: "AlertItem" });
/** The members of a history entry, without its items. */
const entryFields = {
  id: z.string(),
  ruleId: z.string(),
  ruleName: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "Trigger of the rule." }),
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean().meta({ description: "Whether a user requested this notification to test the rule." }),
  status: z.enum(DELIVERY_STATUSES).meta({
    description:
      "`pending`: in progress. `partial`: some recipients were not reached. `inDoubt`: the store was restored from a copy and the message may have been sent before, so an administrator must send or drop it with `npm run store`.",
  }),
  createdAt: instant,
  finishedAt: instant.nullable(),
  nextAttemptAt: instant
    .nullable()
    .meta({ description: "Time of the next attempt. Null if the delivery is complete." }),
  attempts: z.int(),
  error: z.string().nullable().meta({ description: "First error of the recipients." }),
  recipients: z.array(Recipient),
  itemsTotal: z.int().meta({ description: "Number of items." }),
  escalatedFrom: z.string().nullable().meta({
    description: "For an escalation: the rule whose alerts were not acknowledged.",
  }),
};
export const HistoryEntry = z
  .object({
    ...entryFields,
    items: z.array(AlertItem).meta({
      description: "Items of the notification. Lists include the first ten, or with `asset_id` those about the asset.",
    }),
  })
  .meta({ id: "AlertHistoryEntry" });
export const AlertTestResult = z
  .object({
    delivered: z.boolean().meta({ description: "Whether the test was delivered." }),
    message: z.string().meta({ description: "Result as a sentence." }),
    receiver: z
      .object({
        status: z.int().meta({ description: "HTTP status." }),
        body: z.string().meta({ description: "Start of the response body." }),
      })
      .nullable()
      .meta({ description: "Response of the webhook's receiver. Null for other methods." }),
    delivery: HistoryEntry.meta({ description: "History entry of the test." }),
  })
  .meta({ id: "AlertTestResult" });

/** Returns an entry for each recipient of a part of a delivery. A part without `items` has all items of the delivery. */
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
/**
 * Returns the API representation of an item. An item about an open alert, such as a resolution or a reminder, contains the item
 * of the earlier notification as `of`.
 */
export function itemView(item: Item): z.infer<typeof AlertItem> {
  const subject = "of" in item ? item.of : item;
  const expiresOn = item.kind === "renewed" ? item.expiresOn : "expiresOn" in subject ? subject.expiresOn : undefined;
  return {
    kind: item.kind,
    id: item.id,
    credentialTitle:
      "credential" in subject && subject.credential ? titleOfCredential(subject.credential) || null : null,
    thresholdDays: "threshold" in subject ? subject.threshold : null,
    expiresOn: expiresOn === undefined ? null : new Date(expiresOn * 1000).toISOString(),
    since: ("since" in item ? item.since : undefined) ?? null,
  };
}
/** Returns a history entry. Stored rows call the items `news`: `newsTotal` is the number of items. */
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

/** Returns the result of a test delivery. */
export function alertTestView(delivery: DeliveryRecord): z.infer<typeof AlertTestResult> {
  const entry = historyView(delivery, itemsIn(delivery));
  const receiver = delivery.parts[0]?.answer ?? null;
  const delayedPart = delivery.parts.find(({ waits }) => waits !== undefined);
  const delayText = delayedPart ? `Delayed until ${delayedPart.notBefore}. ${delayedPart.waits}` : "";
  const isAccepted = delivery.parts.every(({ status }) => status === "accepted" || status === "delivered");
  const messages = {
    delivered: "The test was delivered.",
    partial: `The test did not reach all recipients: ${entry.error}`,
    failed: entry.error ?? "The test failed.",
    cancelled: entry.error ?? "The test was canceled.",
    inDoubt: "The store was restored. The test may have been sent before.",
    pending: isAccepted
      ? "The mail provider accepted the test. The history will show whether it was delivered."
      : `The result is not known yet. The history will show it. ${entry.error ?? delayText}`.trim(),
  };
  return { delivered: delivery.status === "delivered", message: messages[delivery.status], receiver, delivery: entry };
}

export const Snooze = z
  .object({
    id: z.string(),
    ruleId: z.string().nullable().meta({ description: "Id of the rule. Null for all rules." }),
    assetId: z.string().nullable().meta({ description: "Id of the asset. Null for a snooze with filters." }),
    filters: RuleFilters.nullable(),
    reason: z.string().meta({ description: "Reason of the user." }),
    until: instant.meta({ description: "End of the snooze." }),
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
    ruleId: ulid
      .optional()
      .meta({ description: "Id of the rule. Required with `assetId`. With `filters`, default: all rules." }),
    assetId: z
      .string()
      .min(1)
      .max(300)
      .optional()
      .meta({ description: "Id of the asset, such as `<vault>.<type>.<name>`. Required unless `filters` is given." }),
    filters: SnoozeFilters.optional(),
    reason: singleLine(500).meta({ description: "Reason for the snooze. Recorded in the audit log." }),
    until: queryInstant("end").meta({
      description: "End of the snooze: a date (end of day, UTC) or a time, ISO 8601.",
      type: "string",
    }),
  })
  .meta({ id: "NewAlertSnooze" });

const Owner = z
  .object({
    owner: singleLine(MAX_OWNER_CHARACTERS).meta({
      description: "Value of the owner tag, case-insensitive.",
      example: "payments-team",
    }),
    address: z
      .email()
      .max(254)
      .meta({ description: "Email address for the owner's alerts.", example: "payments@acme.example" }),
  })
  .meta({ id: "AlertOwner" });
export const NewOwners = z
  .strictObject({
    owners: z
      .array(z.strictObject(Owner.shape))
      .max(MAX_OWNERS)
      .meta({ description: "The complete table. Owners that are not included are removed." }),
  })
  .meta({ id: "NewAlertOwners" });
export const OwnerList = z
  .object({
    ...pageOf(Owner, "AlertOwnerPage").shape,
    updatedAt: instant.nullable(),
    updatedBy: z.string().nullable(),
    ownerTag: z.string().meta({
      description: "Name of the tag whose value names an asset's owner, from OWNER_TAG.",
      example: "owner",
    }),
    etag: z.string(),
  })
  .meta({ id: "AlertOwnerList" });
export const ownersView = (table: OwnersTable, request: PageRequest, ownerTag: string): z.infer<typeof OwnerList> => {
  const { owners, updatedAt, updatedBy, etag } = table;
  return { ...pageOfAll(owners, request, ({ owner }) => owner), updatedAt, updatedBy, ownerTag, etag };
};

/** `GET /alerts/summary` counts the notifications of this many days. */
export const SUMMARY_DAYS = 7;
const count = z.int().min(0);
/** The number of notifications with each status, as a verb. */
const OUTCOMES: Record<DeliveryStatus, string> = {
  pending: "are in progress",
  delivered: "were delivered",
  partial: "did not reach some recipients",
  failed: "failed",
  cancelled: "were canceled",
  inDoubt: "wait for a decision after a restore of the store",
};
const byStatus = Object.fromEntries(
  DELIVERY_STATUSES.map((status) => [
    status,
    count.meta({ description: `Number of notifications that ${OUTCOMES[status]}.` }),
  ]),
) as Record<DeliveryStatus, typeof count>;

export const AlertSummary = z
  .object({
    rules: count.meta({ description: "Number of alert rules." }),
    enabledRules: count.meta({ description: "Number of alert rules that are enabled. 0: nobody is notified." }),
    since: z.iso.date().meta({ description: `Start of the counted period, ${SUMMARY_DAYS} days ago (UTC).` }),
    notifications: z.object(byStatus).meta({
      description: "Numbers of notifications by status, without tests. At most the newest 1,000 are counted.",
    }),
  })
  .meta({ id: "AlertSummary" });
