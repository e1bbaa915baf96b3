import * as z from "zod";
import {
  attemptsOf,
  DELIVERY_QUEUE,
  DELIVERY_STATUSES,
  DeliveryMessage,
  type DeliveryRecord,
  type DeliverySummary,
  EVALUATION_QUEUE,
  type Part,
} from "../shared/alerts/delivery.ts";
import { type News, unpackNews } from "../shared/alerts/news.ts";
import {
  ALERT_TYPES,
  DELIVERY_METHODS,
  DELIVERY_MODES,
  DIGEST_FREQUENCIES,
  RuleFilters,
  type RuleRecord,
} from "../shared/alerts/rule.ts";
import { type ChangedRule, NewRule, RuleChange } from "../shared/alerts/rules.ts";
import { type SnoozeRecord, snoozeId } from "../shared/alerts/snoozes.ts";
import { pageOf, pageParameters, pageRequest, queryInstant } from "../shared/http/paging.ts";
import { notFound } from "../shared/http/problem.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/http/reply.ts";
import { singleLine } from "../shared/http/text.ts";
import type { Row } from "../shared/storage/entity.ts";
import { endpoint, poison, queue, timer } from "./kit.ts";

const tag = "Alerts";
const instant = z.iso.datetime();
const ulid = z.string().regex(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/, "must be an id (26 letters and digits)");

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
const Rule = z.object(ruleFields).meta({ id: "AlertRule" });
const RuleWithSecret = z
  .object({
    ...ruleFields,
    webhookSecret: z.string().optional().meta({
      description:
        "Shown this once, where the call made it: the key that signs the rule's webhooks, as the Standard Webhooks specification says.",
    }),
  })
  .meta({ id: "AlertRuleWithSecret" });

const ruleView = (rule: Row<RuleRecord>): z.infer<typeof Rule> => ({
  ...{ id: rule.ruleId, name: rule.name, alertType: rule.alertType },
  ...{ thresholdDays: rule.thresholds[0] ?? null, thresholds: rule.thresholds, filters: rule.filters },
  ...{ deliveryMethod: rule.deliveryMethod, deliveryMode: rule.deliveryMode, digestFrequency: rule.digestFrequency },
  ...{ recipients: rule.recipients, webhookHost: rule.webhookHost ?? null, enabled: rule.enabled },
  ...{ createdAt: rule.createdAt, createdBy: rule.createdBy, updatedAt: rule.updatedAt, updatedBy: rule.updatedBy },
  etag: rule.etag,
});
const changedView = ({ rule, webhookSecret }: ChangedRule): z.infer<typeof RuleWithSecret> => ({
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
const Item = z
  .object({
    kind: z.enum(["asset", "violation", "scan"]),
    id: z.string(),
    thresholdDays: z
      .int()
      .nullable()
      .meta({ description: "The lowest threshold the asset had crossed; 0 when expired." }),
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
const HistoryEntry = z
  .object({ ...entryFields, items: z.array(Item).meta({ description: "What it tells; in lists the first ten." }) })
  .meta({ id: "AlertHistoryEntry" });
const TestResult = z
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
    ...{ attempts: part.attempts, error: part.error ?? null, finishedAt: part.finishedAt ?? null },
    mayBeRepeated: part.mayBeRepeated ?? false,
  }));
const itemOf = (news: News): z.infer<typeof Item> => ({
  ...{ kind: news.kind, id: news.id },
  thresholdDays: news.kind === "asset" ? news.threshold : null,
  expiresOn: news.kind === "asset" ? new Date(news.expiresOn * 1000).toISOString() : null,
});
const entryView = (
  delivery: Omit<DeliverySummary, "firstNews">,
  news: readonly News[],
): z.infer<typeof HistoryEntry> => ({
  ...{ id: delivery.deliveryId, ruleId: delivery.ruleId, ruleName: delivery.ruleName, alertType: delivery.alertType },
  ...{ deliveryMethod: delivery.deliveryMethod, deliveryMode: delivery.deliveryMode, test: delivery.test },
  ...{ status: delivery.status, createdAt: delivery.createdAt, finishedAt: delivery.finishedAt ?? null },
  nextAttemptAt: delivery.status === "pending" ? delivery.nextAt : null,
  attempts: attemptsOf(delivery.parts),
  error: delivery.parts.find(({ error }) => error !== undefined)?.error ?? null,
  recipients: delivery.parts.flatMap(recipientsOf),
  itemsTotal: delivery.newsTotal,
  items: news.map(itemOf),
});

function testView(delivery: DeliveryRecord): z.infer<typeof TestResult> {
  const entry = entryView(delivery, unpackNews(delivery.news));
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

const Snooze = z
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
const snoozeView = (snooze: SnoozeRecord): z.infer<typeof Snooze> => ({
  ...{ id: snoozeId(snooze), ruleId: snooze.ruleId, assetId: snooze.assetId, reason: snooze.reason },
  ...{ until: snooze.until, createdAt: snooze.createdAt, createdBy: snooze.createdBy },
});
const NewSnooze = z
  .strictObject({
    ruleId: ulid,
    assetId: z.string().min(1).max(300).meta({ description: "`<vault>.<type>.<name>`" }),
    reason: singleLine(500),
    until: queryInstant("end").meta({ description: "An instant, or a date whose end it is.", type: "string" }),
  })
  .meta({ id: "NewAlertSnooze" });

const ruleParams = z.object({ rule_id: z.string().meta({ description: "The rule's id." }) });

const createAlertRule = endpoint({
  name: "createAlertRule",
  method: "POST",
  route: "alerts/rules",
  summary: "Create an alert rule",
  description:
    "`expiration` tells of assets before they expire, `expired` once they have, `complianceViolation` of new violations, `scanFailure` of scans that did not complete. Each asset is told of once per threshold, and again when its expiry changes. Disabled assets are left out.",
  tag,
  access: "admin",
  tier: "core",
  body: NewRule,
  responds: { 201: RuleWithSecret },
  handle: async ({ body, caller, services }) => {
    const made = await services.alerts.rules.create(body, caller);
    return created(changedView(made), `/alerts/rules/${made.rule.ruleId}`);
  },
});

const listAlertRules = endpoint({
  name: "listAlertRules",
  method: "GET",
  route: "alerts/rules",
  summary: "The alert rules, by name",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: pageOf(Rule, "AlertRuleList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.rules.list(pageRequest(query));
    return ok({ ...page, items: page.items.map(ruleView) });
  },
});

const getAlertRule = endpoint({
  name: "getAlertRule",
  method: "GET",
  route: "alerts/rules/{rule_id}",
  summary: "One alert rule",
  tag,
  access: "user",
  tier: "core",
  params: ruleParams,
  responds: { 200: Rule },
  handle: async ({ params, services }) => resource(ruleView(await services.alerts.rules.get(params.rule_id))),
});

const updateAlertRule = endpoint({
  name: "updateAlertRule",
  method: "PUT",
  route: "alerts/rules/{rule_id}",
  summary: "Change an alert rule",
  description: "Any subset of the fields. `filters` are replaced as a whole.",
  tag,
  access: "admin",
  tier: "core",
  params: ruleParams,
  body: RuleChange,
  conditional: true,
  responds: { 200: RuleWithSecret },
  handle: async ({ params, body, caller, ifMatch, services }) =>
    resource(changedView(await services.alerts.rules.change(params.rule_id, body, caller, ifMatch))),
});

const deleteAlertRule = endpoint({
  name: "deleteAlertRule",
  method: "DELETE",
  route: "alerts/rules/{rule_id}",
  summary: "Delete an alert rule",
  description: "Its history stays. Deliveries that wait to be sent are cancelled.",
  tag,
  access: "admin",
  tier: "core",
  params: ruleParams,
  conditional: true,
  responds: { 200: Deleted },
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.alerts.rules.remove(params.rule_id, caller, ifMatch);
    return deleted();
  },
});

const testAlertRule = endpoint({
  name: "testAlertRule",
  method: "POST",
  route: "alerts/rules/{rule_id}/test",
  summary: "Send an example by an alert rule",
  description:
    "Really delivers, once, whether the rule is enabled or not, and answers what the receiver or the mail provider said.",
  tag,
  access: "operator",
  tier: "core",
  params: ruleParams,
  responds: { 200: TestResult },
  handle: async ({ params, caller, services }) => ok(testView(await services.alerts.test(params.rule_id, caller))),
});

const rotateAlertRuleSecret = endpoint({
  name: "rotateAlertRuleSecret",
  method: "POST",
  route: "alerts/rules/{rule_id}/rotate-secret",
  summary: "Give a webhook a new signing key",
  description: "For 24 hours messages carry a signature by the old key too.",
  tag,
  access: "admin",
  tier: "core",
  params: ruleParams,
  conditional: true,
  responds: { 200: RuleWithSecret },
  handle: async ({ params, caller, ifMatch, services }) =>
    resource(changedView(await services.alerts.rules.rotateSecret(params.rule_id, caller, ifMatch))),
});

const listAlertHistory = endpoint({
  name: "listAlertHistory",
  method: "GET",
  route: "alerts/history",
  summary: "What was told, newest first",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    start_date: queryInstant("start").optional(),
    end_date: queryInstant("end").optional(),
    status: z.enum(DELIVERY_STATUSES).optional(),
    rule_id: ulid.optional(),
    ...pageParameters,
  }),
  responds: { 200: pageOf(HistoryEntry, "AlertHistory") },
  handle: async ({ query, services }) => {
    const filter = { start: query.start_date, end: query.end_date, status: query.status, ruleId: query.rule_id };
    const page = await services.alerts.history.list(filter, pageRequest(query));
    return ok({ ...page, items: page.items.map((delivery) => entryView(delivery, delivery.firstNews)) });
  },
});

const getAlertHistoryEntry = endpoint({
  name: "getAlertHistoryEntry",
  method: "GET",
  route: "alerts/history/{entry_id}",
  summary: "One entry of the history, with all it told",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ entry_id: z.string() }),
  responds: { 200: HistoryEntry },
  handle: async ({ params, services }) => {
    const delivery = await services.alerts.history.get(params.entry_id);
    if (!delivery) throw notFound(`The history entry ${params.entry_id.slice(0, 64)}`);
    return ok(entryView(delivery, unpackNews(delivery.news)));
  },
});

const createAlertSnooze = endpoint({
  name: "createAlertSnooze",
  method: "POST",
  route: "alerts/snoozes",
  summary: "Silence a rule for one asset for a while",
  description: "When it ends, the rule tells of the lowest threshold the asset has crossed meanwhile.",
  tag,
  access: "operator",
  tier: "core",
  body: NewSnooze,
  problems: ["notFound"],
  responds: { 201: Snooze },
  handle: async ({ body, caller, services }) =>
    created(snoozeView(await services.alerts.snoozes.create(body, caller)), `/alerts/snoozes?rule_id=${body.ruleId}`),
});

const listAlertSnoozes = endpoint({
  name: "listAlertSnoozes",
  method: "GET",
  route: "alerts/snoozes",
  summary: "The snoozes that last",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({ rule_id: ulid.optional(), ...pageParameters }),
  responds: { 200: pageOf(Snooze, "AlertSnoozeList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.snoozes.list({ ruleId: query.rule_id }, pageRequest(query));
    return ok({ ...page, items: page.items.map(snoozeView) });
  },
});

const deleteAlertSnooze = endpoint({
  name: "deleteAlertSnooze",
  method: "DELETE",
  route: "alerts/snoozes/{snooze_id}",
  summary: "End a snooze now",
  tag,
  access: "operator",
  tier: "core",
  params: z.object({ snooze_id: z.string() }),
  responds: { 200: Deleted },
  handle: async ({ params, caller, services }) => {
    await services.alerts.snoozes.end(params.snooze_id, caller);
    return deleted();
  },
});

export const endpoints = [
  ...[createAlertRule, listAlertRules, getAlertRule, updateAlertRule, deleteAlertRule],
  ...[testAlertRule, rotateAlertRuleSecret],
  ...[listAlertHistory, getAlertHistoryEntry],
  ...[createAlertSnooze, listAlertSnoozes, deleteAlertSnooze],
];

export const timers = [
  timer({
    name: "evaluateAlerts",
    // Every quarter of an hour: an idle run costs a handful of requests, and it finishes what a crash left half done.
    schedule: () => "0 */15 * * * *",
    handle: ({ services }) => services.alerts.evaluate(),
  }),
  timer({
    name: "cleanUpAlerts",
    schedule: () => "0 41 3 * * *",
    handle: ({ services }) => services.alerts.cleanUp(),
  }),
];

export const queues = [
  queue({
    name: "evaluateAlertsSoon",
    queue: EVALUATION_QUEUE,
    message: z.object({}),
    handle: (_message, { services }) => services.alerts.evaluate(),
  }),
  poison({
    name: "evaluateAlertsSoonFailed",
    of: EVALUATION_QUEUE,
    message: z.object({}),
    // The timer evaluates them all again within a quarter of an hour.
  }),
  queue({
    name: "deliverAlert",
    queue: DELIVERY_QUEUE,
    message: DeliveryMessage,
    handle: ({ deliveryId }, { services }) => services.alerts.deliver(deliveryId),
  }),
  poison({
    name: "deliverAlertFailed",
    of: DELIVERY_QUEUE,
    message: DeliveryMessage,
    handle: ({ deliveryId }, { services }) => services.alerts.reviveDelivery(deliveryId),
  }),
];
