import * as z from "zod";
import {
  AlertRule,
  AlertRuleWithSecret,
  AlertTestResult,
  alertTestView,
  changedRuleView,
  HistoryEntry,
  historyView,
  NewOwners,
  NewRule,
  NewSnooze,
  OwnerList,
  ownersView,
  RuleChange,
  ruleView,
  Snooze,
  snoozeView,
  ulid,
} from "../shared/alerts/api.ts";
import {
  DELIVERY_QUEUE,
  DELIVERY_STATUSES,
  DeliveryMessage,
  EVALUATION_QUEUE,
  itemsIn,
} from "../shared/alerts/delivery.ts";
import {
  Acknowledged,
  Acknowledgement,
  AlertPreview,
  acknowledgedView,
  acknowledgementView,
  NewAcknowledgement,
  OpenAlertEntry,
  openAlertView,
  previewView,
} from "../shared/alerts/tracked-alerts-api.ts";
import { previewQuery } from "../shared/http/input.ts";
import { pageOf, pageParameters, pageRequest, queryInstant, requireOrder } from "../shared/http/paging.ts";
import { notFound } from "../shared/http/problem.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/http/reply.ts";
import { endpoint, exampleDay, poison, queue, timer } from "./kit.ts";

const tag = "Alerts";
/** Disabled: whoever tries it out sends nothing. */
const NEW_RULE: NewRule = {
  name: "Secrets of payments that expire",
  alertType: "expiration",
  thresholdDays: 30,
  filters: { vault: "kv-payments-prod" },
  deliveryMethod: "email",
  deliveryMode: "digest",
  recipients: ["platform@acme.example"],
  enabled: false,
};

const ruleParams = z.object({ rule_id: z.string().meta({ description: "The rule's id." }) });

const createAlertRule = endpoint({
  name: "createAlertRule",
  method: "POST",
  route: "alerts/rules",
  summary: "Create an alert rule",
  description:
    "`expiration` tells of assets before they expire, `expired` once they have, `complianceViolation` of violations, `scanFailure` of vaults and subscriptions that scans can't read, once a week while that lasts. The first evaluation tells what stands then, in one message where it holds it; later ones tell what begins. Each asset is told of once per threshold, and again when its expiry changes. Disabled assets are left out. What it told of and has ended is told too, unless `tellRecovery` is false.",
  tag,
  access: "admin",
  tier: "core",
  body: NewRule,
  example: { body: NEW_RULE },
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
  example: { body: { thresholdDays: 30 } },
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

const previewNewAlertRule = endpoint({
  name: "previewNewAlertRule",
  method: "POST",
  route: "alerts/preview",
  summary: "What a rule would tell, before it is saved",
  description: "Sends and saves nothing. It is as if the rule were made now: its first evaluation tells what stands.",
  tag,
  access: "operator",
  tier: "core",
  body: NewRule,
  example: { body: NEW_RULE },
  responds: { 200: AlertPreview },
  handle: async ({ body, caller, services }) => {
    const rule = await services.alerts.rules.planned(body, caller);
    return ok(previewView(await services.alerts.preview(rule)));
  },
});

const previewAlertRule = endpoint({
  name: "previewAlertRule",
  method: "GET",
  route: "alerts/rules/{rule_id}/preview",
  summary: "What an alert rule would tell now, and when next",
  description: "Whether it is enabled and due or not. Sends and saves nothing.",
  tag,
  access: "user",
  tier: "core",
  params: ruleParams,
  responds: { 200: AlertPreview },
  handle: async ({ params, services }) => {
    const rule = await services.alerts.rules.get(params.rule_id);
    return ok(previewView(await services.alerts.preview(rule)));
  },
});

const previewAlertRuleChange = endpoint({
  name: "previewAlertRuleChange",
  method: "POST",
  route: "alerts/rules/{rule_id}/preview",
  summary: "What an alert rule would tell, before a change of it is saved",
  description: "Takes what the change takes, and sends and saves nothing. What the rule has told is not told again.",
  tag,
  access: "operator",
  tier: "core",
  params: ruleParams,
  body: RuleChange,
  example: { body: { thresholdDays: 30 } },
  responds: { 200: AlertPreview },
  handle: async ({ params, body, caller, services }) => {
    const rule = await services.alerts.rules.plannedChange(params.rule_id, body, caller);
    return ok(previewView(await services.alerts.preview(rule)));
  },
});

const listOpenAlerts = endpoint({
  name: "listOpenAlerts",
  method: "GET",
  route: "alerts/rules/{rule_id}/open",
  summary: "What an alert rule has told and what has not ended",
  description:
    "Assets that expire, violations, and failures of scans. What the service told before it kept this is not among them.",
  tag,
  access: "user",
  tier: "core",
  params: ruleParams,
  query: z.strictObject({
    acknowledged: z
      .enum(["true", "false"])
      .optional()
      .meta({ description: "Only those that somebody acknowledged, or only the others." }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(OpenAlertEntry, "OpenAlertList") },
  handle: async ({ params, query, services }) => {
    const acknowledged = query.acknowledged === undefined ? undefined : query.acknowledged === "true";
    const page = await services.alerts.acknowledgements.open(params.rule_id, { acknowledged }, pageRequest(query));
    return ok({ ...page, items: page.items.map(openAlertView) });
  },
});

const acknowledgeAlerts = endpoint({
  name: "acknowledgeAlerts",
  method: "POST",
  route: "alerts/acknowledgements",
  summary: "Acknowledge an alert, or all of one message",
  description:
    "Somebody has seen it and sees to it, so it is not escalated. It ends with the alert: when the asset is renewed, the violation is in order, the scan can read it.",
  tag,
  access: "operator",
  tier: "core",
  body: NewAcknowledgement,
  problems: ["notFound", "alreadyExists"],
  example: {
    body: {
      ruleId: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A",
      itemId: "kv-payments-prod.secret.payments-api-client-secret",
      note: "Maria renews it today.",
    },
  },
  responds: { 201: Acknowledged },
  handle: async ({ body, caller, services }) => {
    const made = await services.alerts.acknowledgements.create(body, caller);
    return created(acknowledgedView(made), `/alerts/acknowledgements?rule_id=${body.ruleId}`);
  },
});

const listAcknowledgements = endpoint({
  name: "listAlertAcknowledgements",
  method: "GET",
  route: "alerts/acknowledgements",
  summary: "Who acknowledged which alerts that have not ended",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({ rule_id: ulid.optional(), ...pageParameters }),
  responds: { 200: pageOf(Acknowledgement, "AlertAcknowledgementList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.acknowledgements.list({ ruleId: query.rule_id }, pageRequest(query));
    return ok({ ...page, items: page.items.map(acknowledgementView) });
  },
});

const deleteAcknowledgement = endpoint({
  name: "deleteAlertAcknowledgement",
  method: "DELETE",
  route: "alerts/acknowledgements/{acknowledgement_id}",
  summary: "Take an acknowledgement back",
  tag,
  access: "operator",
  tier: "core",
  params: z.object({ acknowledgement_id: z.string() }),
  responds: { 200: Deleted },
  handle: async ({ params, caller, services }) => {
    await services.alerts.acknowledgements.remove(params.acknowledgement_id, caller);
    return deleted();
  },
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
    requireOrder({ start_date: query.start_date, end_date: query.end_date });
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
    return ok(historyView(delivery, itemsIn(delivery)));
  },
});

const createAlertSnooze = endpoint({
  name: "createAlertSnooze",
  method: "POST",
  route: "alerts/snoozes",
  summary: "Silence a rule for an asset, or for all that filters fit, for a while",
  description:
    "With `filters` it is also about what comes to fit while it lasts, for one rule or for every rule about expiry. When it ends, the rule tells of the lowest threshold that each asset has crossed meanwhile. Renewals are told although it lasts.",
  tag,
  access: "operator",
  tier: "core",
  body: NewSnooze,
  problems: ["notFound"],
  example: {
    body: {
      ruleId: "01KB9Z6Q4V3N8S7T5W2X1Y0Z9A",
      assetId: "kv-payments-prod.secret.payments-api-client-secret",
      reason: "It is renewed with the next release.",
      get until() {
        return exampleDay(14);
      },
    },
  },
  responds: { 201: Snooze },
  handle: async ({ body, caller, services }) =>
    created(
      snoozeView(await services.alerts.snoozes.create(body, caller)),
      `/alerts/snoozes${body.ruleId === undefined ? "" : `?rule_id=${body.ruleId}`}`,
    ),
});

const listAlertSnoozes = endpoint({
  name: "listAlertSnoozes",
  method: "GET",
  route: "alerts/snoozes",
  summary: "The snoozes that last",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    rule_id: ulid.optional().meta({ description: "Those of this rule, and those of every rule." }),
    ended: z
      .enum(["true", "false"])
      .optional()
      .meta({ description: "With `true` also those that ended in the last 30 days." }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(Snooze, "AlertSnoozeList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.snoozes.list(
      { ruleId: query.rule_id, ended: query.ended === "true" },
      pageRequest(query),
    );
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

const listAlertOwners = endpoint({
  name: "listAlertOwners",
  method: "GET",
  route: "alerts/owners",
  summary: "Who gets the alerts of an owner, by the owner's name",
  description:
    "Mails about what a tag names the owner of go to the owner alone: to the address that this table has for the tag's text, or to the address that the tag itself is, where its domain is one of `ALERT_OWNER_DOMAINS`. Everything else, and what does not reach its owner, goes to the rule's recipients, with the reason.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject(pageParameters),
  responds: { 200: OwnerList },
  handle: async ({ query, services }) => resource(ownersView(await services.alerts.owners.table(), pageRequest(query))),
});

const replaceAlertOwners = endpoint({
  name: "replaceAlertOwners",
  method: "PUT",
  route: "alerts/owners",
  summary: "Replace the table of owners",
  description: "An empty list empties it. Answers the first page of what it is now.",
  tag,
  access: "admin",
  tier: "core",
  query: previewQuery("the table as it is."),
  body: NewOwners,
  conditional: true,
  example: {
    query: { preview: "true" },
    body: { owners: [{ owner: "payments-team", address: "payments@acme.example" }] },
  },
  responds: { 200: OwnerList },
  handle: async ({ query, body, caller, ifMatch, services }) => {
    const { owners } = services.alerts;
    const table = query.preview ? await owners.table() : await owners.replace(body.owners, caller, ifMatch);
    return resource(ownersView(table, pageRequest({})));
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
  previewNewAlertRule,
  previewAlertRule,
  previewAlertRuleChange,
  listOpenAlerts,
  acknowledgeAlerts,
  listAcknowledgements,
  deleteAcknowledgement,
  listAlertHistory,
  getAlertHistoryEntry,
  createAlertSnooze,
  listAlertSnoozes,
  deleteAlertSnooze,
  listAlertOwners,
  replaceAlertOwners,
];

export const timers = [
  timer({
    name: "evaluateAlerts",
    // Every quarter of an hour: an idle run costs a handful of requests, and it finishes what a crash left half done.
    schedule: "0 */15 * * * *",
    handle: ({ services }) => services.alerts.evaluate(),
  }),
  timer({
    name: "cleanUpAlerts",
    schedule: "0 41 3 * * *",
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
