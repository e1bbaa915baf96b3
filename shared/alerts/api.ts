import * as z from "zod";
import { queryInstant } from "../http/paging.ts";
import { singleLine } from "../http/text.ts";
import type { Row } from "../storage/entity.ts";
import { ULID } from "../ulid.ts";
import { attemptsOf, DELIVERY_STATUSES, type DeliveryRecord, type DeliverySummary, type Part } from "./delivery.ts";
import { type Item, unpackItems } from "./items.ts";
import {
  ALERT_TYPES,
  type ChangedRule,
  DELIVERY_METHODS,
  DELIVERY_MODES,
  DIGEST_FREQUENCIES,
  MAX_RECIPIENTS,
  MAX_THRESHOLD_DAYS,
  MAX_THRESHOLDS,
  RuleFilters,
  type RuleRecord,
} from "./rule.ts";
import { type SnoozeRecord, snoozeId } from "./snooze.ts";

/** Alert rules, snoozes and the history as the API takes and shows them. */

const threshold = z.int().min(1).max(MAX_THRESHOLD_DAYS);

const fields = {
  name: singleLine(128),
  alertType: z.enum(ALERT_TYPES).meta({
    description:
      "`serviceCredentialExpiry`: what the service itself or its users sign in with, such as API tokens, 30, 14 and 3 days before it ends. `breakGlass`: a sign-in with a password while single sign-on has them switched off. `rotationDue`: client secrets that end within `rotationTriggerDays` and a day, and old ones that wait for somebody to remove them. `rotationDone`, `rotationFailed`: what became of rotations, and policies that can't be followed. `syncFailed`: records of sync that fail or have drifted. `referenceUnresolved`: references to a vault that the platform, such as App Service, can't follow.",
  }),
  thresholdDays: threshold.meta({
    description:
      "For `expiration` and `credentialExpiry`: the days before an asset expires at which it is told of. The simple form of thresholds.",
  }),
  thresholds: z.array(threshold).min(1).max(MAX_THRESHOLDS).meta({
    description:
      "For `expiration` and `credentialExpiry`: several thresholds in days. Each asset is told of once per threshold.",
  }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({
    description: "For `digest`: every day at 06:00 UTC, or every Monday.",
  }),
  recipients: z
    .array(z.email().max(254))
    .max(MAX_RECIPIENTS)
    .meta({ description: "E-mail addresses; a mail goes to at most 50 of them." }),
  webhookUrl: z
    .url()
    .max(4096)
    .meta({ description: "Write-only: kept in the service's key vault. For `webhook`, `teams` and `slack`." }),
  enabled: z.boolean(),
};

const { name, alertType, ...others } = fields;

export const NewRule = z
  .strictObject({ name, alertType, ...z.object(others).partial().shape })
  .meta({ id: "NewAlertRule" });
export type NewRule = z.infer<typeof NewRule>;

export const RuleChange = z.strictObject(z.object(fields).partial().shape).meta({ id: "AlertRuleChange" });
export type RuleChange = z.infer<typeof RuleChange>;

const instant = z.iso.datetime();
export const ulid = z.string().regex(ULID, "must be an id (26 letters and digits)");

const ruleFields = {
  id: z.string(),
  name: z.string(),
  alertType: z.enum(ALERT_TYPES),
  thresholdDays: z.int().nullable().meta({ description: "The highest of thresholds; null unless about expiration." }),
  thresholds: z.array(z.int()),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES),
  recipients: z.array(z.string()),
  webhookHost: z.string().nullable().meta({ description: "All that is shown of webhookUrl." }),
  enabled: z.boolean(),
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
        "Shown this once, where the call made it: the key that signs the rule's webhooks, as the Standard Webhooks specification says.",
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
  createdAt: rule.createdAt,
  createdBy: rule.createdBy,
  updatedAt: rule.updatedAt,
  updatedBy: rule.updatedBy,
  etag: rule.etag,
});
export const changedRuleView = ({ rule, webhookSecret }: ChangedRule): z.infer<typeof AlertRuleWithSecret> => ({
  ...ruleView(rule),
  ...(webhookSecret === undefined ? {} : { webhookSecret }),
});

const Recipient = z
  .object({
    recipient: z.string().meta({ description: "An e-mail address, or the webhook's host." }),
    status: z
      .enum(["pending", "accepted", "delivered", "failed", "cancelled"])
      .meta({ description: "Of an e-mail address: what became of the mail that went to it and up to 49 others." }),
    attempts: z.int(),
    error: z.string().nullable(),
    finishedAt: instant.nullable(),
    mayBeRepeated: z.boolean().meta({
      description: "It was sent again after an attempt of which it is not known whether it was received.",
    }),
  })
  .meta({ id: "AlertRecipient" });
const AlertItem = z
  .object({
    kind: z.enum(["asset", "violation", "scan", "credential", "breakGlass", "automation"]),
    id: z.string(),
    thresholdDays: z.int().nullable().meta({ description: "The lowest threshold it had crossed; 0 when expired." }),
    expiresOn: instant.nullable(),
  })
  .meta({ id: "AlertItem" });
const entryFields = {
  id: z.string(),
  ruleId: z.string(),
  ruleName: z.string(),
  alertType: z.enum(ALERT_TYPES),
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean(),
  status: z.enum(DELIVERY_STATUSES),
  createdAt: instant,
  finishedAt: instant.nullable(),
  nextAttemptAt: instant.nullable(),
  attempts: z.int(),
  error: z.string().nullable().meta({ description: "The first of the recipients' errors." }),
  recipients: z.array(Recipient),
  itemsTotal: z.int(),
};
export const HistoryEntry = z
  .object({ ...entryFields, items: z.array(AlertItem).meta({ description: "What it tells; in lists the first ten." }) })
  .meta({ id: "AlertHistoryEntry" });
export const AlertTestResult = z
  .object({
    delivered: z.boolean(),
    message: z.string(),
    receiver: z
      .object({ status: z.int(), body: z.string().meta({ description: "The beginning." }) })
      .nullable()
      .meta({ description: "What a webhook's receiver answered." }),
    delivery: HistoryEntry,
  })
  .meta({ id: "AlertTestResult" });

const recipientsOf = (part: Part): z.infer<typeof Recipient>[] =>
  part.recipients.map((recipient) => ({
    recipient,
    status: part.status === "waiting" || part.status === "sending" ? "pending" : part.status,
    attempts: part.attempts,
    error: part.error ?? null,
    finishedAt: part.finishedAt ?? null,
    mayBeRepeated: part.mayBeRepeated ?? false,
  }));
const itemOf = (item: Item): z.infer<typeof AlertItem> => ({
  kind: item.kind,
  id: item.id,
  thresholdDays: "threshold" in item ? item.threshold : null,
  expiresOn: "expiresOn" in item ? new Date(item.expiresOn * 1000).toISOString() : null,
});
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
  recipients: delivery.parts.flatMap(recipientsOf),
  itemsTotal: delivery.newsTotal,
  items: items.map(itemOf),
});

export function alertTestView(delivery: DeliveryRecord): z.infer<typeof AlertTestResult> {
  const entry = historyView(delivery, unpackItems(delivery.news));
  const receiver = delivery.parts[0]?.answer ?? null;
  const accepted = delivery.parts.every(({ status }) => status === "accepted" || status === "delivered");
  const messages = {
    delivered: "It was delivered.",
    partial: `Some recipients were reached, others not: ${entry.error}`,
    failed: entry.error ?? "It failed.",
    cancelled: entry.error ?? "It was cancelled.",
    pending: accepted
      ? "The mail provider has accepted it; the history will say what became of it."
      : `It is not known yet whether it arrived; the history will say. ${entry.error ?? ""}`.trim(),
  };
  return { delivered: delivery.status === "delivered", message: messages[delivery.status], receiver, delivery: entry };
}

export const Snooze = z
  .object({
    id: z.string(),
    ruleId: z.string(),
    assetId: z.string(),
    reason: z.string(),
    until: instant,
    createdAt: instant,
    createdBy: z.string(),
  })
  .meta({ id: "AlertSnooze" });
export const snoozeView = (snooze: SnoozeRecord): z.infer<typeof Snooze> => ({
  id: snoozeId(snooze),
  ruleId: snooze.ruleId,
  assetId: snooze.assetId,
  reason: snooze.reason,
  until: snooze.until,
  createdAt: snooze.createdAt,
  createdBy: snooze.createdBy,
});
export const NewSnooze = z
  .strictObject({
    ruleId: ulid,
    assetId: z.string().min(1).max(300).meta({ description: "`<vault>.<type>.<name>`" }),
    reason: singleLine(500),
    until: queryInstant("end").meta({ description: "An instant, or a date whose end it is.", type: "string" }),
  })
  .meta({ id: "NewAlertSnooze" });
