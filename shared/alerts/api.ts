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
      .meta({ description: "Days after the rule first told of an alert." }),
    recipients: z
      .array(z.email().max(254))
      .max(MAX_RECIPIENTS)
      .optional()
      .meta({ description: "E-mail addresses to which it then goes." }),
    ruleId: z.string().regex(ULID, "must be an id (26 letters and digits)").optional().meta({
      description: "Instead of recipients: another rule, by whose delivery method and address it then goes out.",
    }),
  })
  .meta({
    id: "NewAlertEscalation",
    description:
      "The second step of a rule: to whom its alerts go that nobody has acknowledged and that have not ended.",
  });
export type NewEscalation = z.infer<typeof NewEscalation>;

const secretText = z.string().min(1).max(1024);
const RuleCredentialsGiven = z
  .strictObject({
    routingKey: z
      .string()
      .regex(/^[A-Za-z0-9]{32}$/, "must be an integration key of 32 letters and digits")
      .meta({ description: "Of `pagerDuty`: the integration key of a service's Events API v2." }),
    username: secretText.meta({ description: "Of `serviceNow`: a user who may read, create and change incidents." }),
    password: secretText.meta({ description: "Of `serviceNow`: the user's password. Never returned." }),
    clientId: secretText.meta({
      description: "Of `serviceNow`: OAuth; with a username its password grant, else client credentials.",
    }),
    clientSecret: secretText.meta({ description: "Of `serviceNow`: the OAuth client's secret. Never returned." }),
  })
  .partial()
  .meta({
    id: "AlertRuleCredentials",
    description:
      "Write-only: kept in the service's key vault. What `pagerDuty` and `serviceNow` are signed in to with. Another webhookUrl needs them again.",
  });

const fields = {
  name: singleLine(128),
  alertType: z.enum(ALERT_TYPES).meta({
    description:
      "`serviceCredentialExpiry`: what the service itself or its users sign in with, such as API tokens, 30, 14 and 3 days before it ends. `breakGlass`: a sign-in with a password while single sign-on has them switched off. `rotationDue`: client secrets that end within `rotationTriggerDays` and a day, and old ones that wait for somebody to remove them. `rotationDone`, `rotationFailed`: what became of rotations, new places that hold an old secret and are left out, and policies that can't be followed. `syncFailed`: records of sync that fail or have drifted. `referenceUnresolved`: references to a vault that the platform, such as App Service, can't follow. `unexpectedReader`: who was seen in a log to read an asset, and is neither known to use it nor to be allowed to; once for each reader and asset.",
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
  webhookUrl: z.url().max(4096).meta({
    description:
      "Write-only: kept in the service's key vault. For `webhook`, `teams` and `slack`; for `serviceNow` the instance's address, such as https://acme.service-now.com; for `pagerDuty` only where it is not https://events.pagerduty.com/v2/enqueue.",
  }),
  credentials: RuleCredentialsGiven,
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({
    description:
      "Whether it also tells when an alert that it told of has ended: the asset was renewed, the violation is in order again, the scan can read it. True for a new rule that leaves it out.",
  }),
  escalation: NewEscalation.nullable().meta({ description: "Null takes it away." }),
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
    afterDays: z.int().meta({ description: "Days after the rule first told of an alert." }),
    recipients: z.array(z.string()),
    ruleId: z.string().nullable().meta({ description: "The rule by whose delivery method and address it goes out." }),
  })
  .meta({ id: "AlertEscalation" });

const ruleFields = {
  id: z.string(),
  name: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "What it tells of." }),
  thresholdDays: z.int().nullable().meta({ description: "The highest of thresholds; null unless about expiration." }),
  thresholds: z
    .array(z.int())
    .meta({ description: "Days before an asset expires at which it is told of, the highest first." }),
  filters: RuleFilters,
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  digestFrequency: z.enum(DIGEST_FREQUENCIES).meta({ description: "How often a digest is sent." }),
  recipients: z.array(z.string()),
  webhookHost: z.string().nullable().meta({ description: "All that is shown of webhookUrl." }),
  enabled: z.boolean(),
  tellRecovery: z.boolean().meta({ description: "Whether it also tells when an alert that it told of has ended." }),
  escalation: AlertEscalation.nullable().meta({ description: "Null where nothing is escalated." }),
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
    recipient: z.string().meta({ description: "An e-mail address, or the webhook's host." }),
    status: z
      .enum(["pending", "accepted", "delivered", "failed", "cancelled"])
      .meta({ description: "Of an e-mail address: what became of the mail that went to it and up to 49 others." }),
    owner: z.string().nullable().meta({
      description:
        "Of a mail to an owner: what the tag says. He gets what he owns, and the rule's recipients the rest.",
    }),
    reason: z.string().nullable().meta({ description: "Why it goes to the rule's recipients and not to an owner." }),
    itemsTotal: z.int().meta({ description: "How many of the items go to this recipient." }),
    attempts: z.int(),
    error: z.string().nullable().meta({ description: "Why it was not reached; null where it was." }),
    notBefore: instant.nullable().meta({ description: "Of what waits: it is not sent before." }),
    waitsFor: z.string().nullable().meta({
      description: "What holds up a mail that nothing but `MAIL_PER_MINUTE` and `MAIL_PER_HOUR` holds up.",
    }),
    replaced: z
      .boolean()
      .meta({ description: "It did not reach an owner, and went to the rule's recipients instead." }),
    finishedAt: instant.nullable(),
    mayBeRepeated: z.boolean().meta({
      description: "It was sent again after an attempt of which it is not known whether it was received.",
    }),
  })
  .meta({ id: "AlertRecipient" });
export const AlertItem = z
  .object({
    kind: z.enum(ITEM_KINDS).meta({
      description:
        "What it tells of. `scanFailure`: a vault, a subscription or everything that scans can't read. Of something told before: `renewed`, `recovered`, `stillFailing` (a week later), `escalated` (nobody acknowledged it).",
    }),
    id: z.string().meta({ description: "Of what it is about, such as the asset." }),
    credentialTitle: z.string().nullable().meta({
      description:
        "Of a directory's credential that ends or was renewed: whose it is and what it is called, as its id holds ids alone.",
    }),
    thresholdDays: z.int().nullable().meta({ description: "The lowest threshold it had crossed; 0 when expired." }),
    expiresOn: instant.nullable().meta({ description: "Of a renewed asset its new expiry." }),
    since: instant.nullable().meta({ description: "Of something told before: since when." }),
  })
  .meta({ id: "AlertItem" });
const entryFields = {
  id: z.string(),
  ruleId: z.string(),
  ruleName: z.string(),
  alertType: z.enum(ALERT_TYPES).meta({ description: "What its rule tells of." }),
  deliveryMethod: z.enum(DELIVERY_METHODS),
  deliveryMode: z.enum(DELIVERY_MODES),
  test: z.boolean().meta({ description: "Whether somebody asked for it to try the rule." }),
  status: z
    .enum(DELIVERY_STATUSES)
    .meta({ description: "`pending`: it is not over. `partial`: some recipients were not reached." }),
  createdAt: instant,
  finishedAt: instant.nullable(),
  nextAttemptAt: instant.nullable().meta({ description: "When it is tried next; null when it is over." }),
  attempts: z.int(),
  error: z.string().nullable().meta({ description: "The first of the recipients' errors." }),
  recipients: z.array(Recipient),
  itemsTotal: z.int().meta({ description: "How many things it tells of." }),
  escalatedFrom: z.string().nullable().meta({
    description: "Of an escalation: the rule whose alerts nobody acknowledged.",
  }),
};
export const HistoryEntry = z
  .object({ ...entryFields, items: z.array(AlertItem).meta({ description: "What it tells; in lists the first ten." }) })
  .meta({ id: "AlertHistoryEntry" });
export const AlertTestResult = z
  .object({
    delivered: z.boolean().meta({ description: "Whether it arrived." }),
    message: z.string().meta({ description: "What became of it, in a sentence." }),
    receiver: z
      .object({
        status: z.int().meta({ description: "The HTTP status." }),
        body: z.string().meta({ description: "The beginning." }),
      })
      .nullable()
      .meta({ description: "What a webhook's receiver answered." }),
    delivery: HistoryEntry.meta({ description: "What became of it, as the history has it." }),
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
    ruleId: z.string().nullable().meta({ description: "Null where it is about every rule." }),
    assetId: z.string().nullable().meta({ description: "Null where it has filters." }),
    filters: RuleFilters.nullable(),
    reason: z.string().meta({ description: "Why, as it was given." }),
    until: instant.meta({ description: "Until when nothing is told." }),
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
    ruleId: ulid.optional().meta({ description: "Needed with assetId. With filters and without it: every rule." }),
    assetId: z
      .string()
      .min(1)
      .max(300)
      .optional()
      .meta({ description: "`<vault>.<type>.<name>`. Either this or filters." }),
    filters: SnoozeFilters.optional(),
    reason: singleLine(500).meta({ description: "Why nothing is to be told: it stands in the audit log." }),
    until: queryInstant("end").meta({ description: "An instant, or a date whose end it is.", type: "string" }),
  })
  .meta({ id: "NewAlertSnooze" });

const Owner = z
  .object({
    owner: singleLine(MAX_OWNER_CHARACTERS).meta({
      description: "As tags write it, in any case of A to Z.",
      example: "payments-team",
    }),
    address: z.email().max(254).meta({ description: "Who gets the alerts.", example: "payments@acme.example" }),
  })
  .meta({ id: "AlertOwner" });
export const NewOwners = z
  .strictObject({
    owners: z
      .array(z.strictObject(Owner.shape))
      .max(MAX_OWNERS)
      .meta({ description: "The whole table: an owner that is left out is taken away." }),
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
