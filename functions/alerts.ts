import * as z from "zod";
import {
  AlertRule,
  AlertRuleWithSecret,
  AlertTestResult,
  alertTestView,
  changedRuleView,
  HistoryEntry,
  historyView,
  NewRule,
  NewSnooze,
  RuleChange,
  ruleView,
  Snooze,
  snoozeView,
  ulid,
} from "../shared/alerts/api.ts";
import { DELIVERY_QUEUE, DELIVERY_STATUSES, DeliveryMessage, EVALUATION_QUEUE } from "../shared/alerts/delivery.ts";
import { unpackItems } from "../shared/alerts/items.ts";
import { pageOf, pageParameters, pageRequest, queryInstant } from "../shared/http/paging.ts";
import { notFound } from "../shared/http/problem.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/http/reply.ts";
import { endpoint, poison, queue, timer } from "./kit.ts";

const tag = "Alerts";
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
  responds: { 201: AlertRuleWithSecret },
  handle: async ({ body, caller, services }) => {
    const made = await services.alerts.rules.create(body, caller);
    return created(changedRuleView(made), `/alerts/rules/${made.rule.ruleId}`);
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
  responds: { 200: pageOf(AlertRule, "AlertRuleList") },
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
  responds: { 200: AlertRule },
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
  responds: { 200: AlertRuleWithSecret },
  handle: async ({ params, body, caller, ifMatch, services }) =>
    resource(changedRuleView(await services.alerts.rules.change(params.rule_id, body, caller, ifMatch))),
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
  responds: { 200: AlertTestResult },
  handle: async ({ params, caller, services }) => ok(alertTestView(await services.alerts.test(params.rule_id, caller))),
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
  responds: { 200: AlertRuleWithSecret },
  handle: async ({ params, caller, ifMatch, services }) =>
    resource(changedRuleView(await services.alerts.rules.rotateSecret(params.rule_id, caller, ifMatch))),
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
    return ok({ ...page, items: page.items.map((delivery) => historyView(delivery, delivery.firstNews)) });
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
    return ok(historyView(delivery, unpackItems(delivery.news)));
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
  createAlertRule,
  listAlertRules,
  getAlertRule,
  updateAlertRule,
  deleteAlertRule,
  testAlertRule,
  rotateAlertRuleSecret,
  listAlertHistory,
  getAlertHistoryEntry,
  createAlertSnooze,
  listAlertSnoozes,
  deleteAlertSnooze,
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
    handle: ({ services, requestId }) => services.alerts.cleanUp({ actor: "system", requestId }),
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
