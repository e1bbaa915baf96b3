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
import type { Repeat } from "../shared/platform/http/endpoint.ts";
import {
  PageQuery,
  pageOf,
  pageParameters,
  pageRequest,
  pageView,
  queryInstant,
  requireOrder,
} from "../shared/platform/http/paging.ts";
import { previewQuery } from "../shared/platform/http/parse-request.ts";
import { notFound } from "../shared/platform/http/problem.ts";
import { queryBoolean } from "../shared/platform/http/query-boolean.ts";
import { created, Deleted, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { endpoint, exampleDay, poison, queue, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints, timers and queue handlers of alerts. A rule selects assets or violations and says whom to notify. A delivery is
 * one message of a rule, and an entry of the alert history. A snooze pauses alerts until a date. An acknowledgement stops the
 * escalation of an alert.
 */

const tag = "Alerts";
/** The example of a rule. The rule is disabled, so that trying out the example in `/docs` sends no alerts. */
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

const ruleParams = z.object({ rule_id: z.string().meta({ description: "ID of the rule." }) });

const createAlertRule = endpoint({
  name: "createAlertRule",
  method: "POST",
  route: "alerts/rules",
  summary: "Create an alert rule",
  description:
    "`expiration` sends an alert before an asset expires, `expired` after it expired, `complianceViolation` for each violation, and `scanFailure` for each vault or subscription that scans can't read, repeated weekly while the failure lasts. The first evaluation reports everything that applies at that time, in one message if it fits; later evaluations report only new alerts. Each asset is reported once per threshold, and again when its expiry date changes. Disabled assets are excluded. The rule also notifies when an alert is resolved, unless `tellRecovery` is false.",
  tag,
  access: "admin",
  tier: "core",
  body: NewRule,
  example: { body: NEW_RULE },
  responds: { 201: AlertRuleWithSecret },
  handle: async ({ body, caller, services }) => {
    const createdRule = await services.alerts.rules.create(body, caller);
    return created(changedRuleView(createdRule), `/alerts/rules/${createdRule.rule.ruleId}`);
  },
});

const listAlertRules = endpoint({
  name: "listAlertRules",
  method: "GET",
  route: "alerts/rules",
  summary: "List alert rules by name",
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: pageOf(AlertRule, "AlertRuleList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.rules.list(pageRequest(query));
    return ok(pageView(page, ruleView));
  },
});

const getAlertRule = endpoint({
  name: "getAlertRule",
  method: "GET",
  route: "alerts/rules/{rule_id}",
  summary: "Get an alert rule",
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
  summary: "Update an alert rule",
  description: "Accepts any subset of the fields. `filters` are replaced as a whole.",
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
  description: "The history of the rule is kept. Pending deliveries are cancelled.",
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
  summary: "Send a test message for an alert rule",
  description:
    "Sends one message, whether or not the rule is enabled, and returns the response of the receiver or the mail provider.",
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
  summary: "Rotate the signing key of a webhook rule",
  description: "For 24 hours, messages also carry a signature made with the previous key.",
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
  summary: "Preview the alerts that a new rule would send",
  description:
    "Sends and saves nothing. The preview shows the first evaluation of the rule, which reports everything that applies now.",
  tag,
  access: "operator",
  tier: "core",
  body: NewRule,
  example: { body: NEW_RULE },
  harmlessRepeat: true,
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
  summary: "Preview the next alerts of a rule",
  description: "Works whether or not the rule is enabled or due. Sends and saves nothing.",
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
  summary: "Preview the alerts of a rule with changes",
  description:
    "Accepts the same fields as the update. Sends and saves nothing. Alerts that the rule has already sent are not sent again.",
  tag,
  access: "operator",
  tier: "core",
  params: ruleParams,
  body: RuleChange,
  example: { body: { thresholdDays: 30 } },
  harmlessRepeat: true,
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
  summary: "List unresolved alerts of a rule",
  description:
    "Lists expiring assets, the earliest expiry first, then violations and scan failures. Alerts sent by versions of the service that did not track them are not included.",
  tag,
  access: "user",
  tier: "core",
  params: ruleParams,
  query: z.strictObject({
    acknowledged: queryBoolean()
      .optional()
      .meta({ description: "`true` lists only acknowledged alerts, `false` only the others." }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(OpenAlertEntry, "OpenAlertList") },
  handle: async ({ params, query, services }) => {
    const page = await services.alerts.acknowledgements.listOpen(
      params.rule_id,
      { acknowledged: query.acknowledged },
      pageRequest(query),
    );
    return ok(pageView(page, openAlertView));
  },
});

const acknowledgeAlerts = endpoint({
  name: "acknowledgeAlerts",
  method: "POST",
  route: "alerts/acknowledgements",
  summary: "Acknowledge one alert or all alerts of a message",
  description:
    "An acknowledged alert is not escalated. The acknowledgement ends when the alert is resolved: the asset was renewed, the violation was fixed, or the scan can read the resource again.",
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
  // All acknowledgments of one request have the same rule and time.
  repeat: {
    idOf: ({ items: [first] }) => (first ? `${first.ruleId} ${first.acknowledgedAt}` : null),
    async answer({ id, services }) {
      const [ruleId = "", acknowledgedAt] = id.split(" ");
      const ofRule = [...(await services.alerts.acknowledgements.ofRule(ruleId)).values()];
      const acknowledged = ofRule.filter((acknowledgement) => acknowledgement.acknowledgedAt === acknowledgedAt);
      if (acknowledged.length === 0) throw notFound("The acknowledgment");
      return acknowledgedView(acknowledged);
    },
  },
  handle: async ({ body, caller, services }) => {
    const acknowledged = await services.alerts.acknowledgements.create(body, caller);
    return created(acknowledgedView(acknowledged), `/alerts/acknowledgements?rule_id=${body.ruleId}`);
  },
});

const listAcknowledgements = endpoint({
  name: "listAlertAcknowledgements",
  method: "GET",
  route: "alerts/acknowledgements",
  summary: "List acknowledgements of unresolved alerts",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({ rule_id: ulid.optional(), ...pageParameters }),
  responds: { 200: pageOf(Acknowledgement, "AlertAcknowledgementList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.acknowledgements.list({ ruleId: query.rule_id }, pageRequest(query));
    return ok(pageView(page, acknowledgementView));
  },
});

const deleteAcknowledgement = endpoint({
  name: "deleteAlertAcknowledgement",
  method: "DELETE",
  route: "alerts/acknowledgements/{acknowledgement_id}",
  summary: "Remove an acknowledgement",
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
  summary: "List the alert history, newest first",
  description:
    "With `asset_id`, returns the notifications of expiry rules about that asset: about its current expiry date, about open alerts, and about resolved and escalated alerts. It reads up to 1,000 rules, and returns up to the newest 1,000 notifications. Their `items` are only those about the asset. Without it, `items` are the first ten.",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    start_date: queryInstant("start").optional(),
    end_date: queryInstant("end").optional(),
    status: z.enum(DELIVERY_STATUSES).optional(),
    rule_id: ulid.optional(),
    asset_id: z.string().min(1).max(300).optional().meta({
      description: "ID of an asset, such as `<vault>.<type>.<name>`, also of a deleted one.",
    }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(HistoryEntry, "AlertHistory") },
  handle: async ({ query, services }) => {
    requireOrder({ start_date: query.start_date, end_date: query.end_date });
    const filter = { start: query.start_date, end: query.end_date, status: query.status, ruleId: query.rule_id };
    if (query.asset_id !== undefined) {
      const assetId = query.asset_id.toLowerCase();
      const page = await services.alerts.assetNotifications.list(assetId, filter, pageRequest(query));
      return ok(
        pageView(page, (delivery) =>
          historyView(
            delivery,
            itemsIn(delivery).filter((item) => ("of" in item ? item.of : item).id.toLowerCase() === assetId),
          ),
        ),
      );
    }
    const page = await services.alerts.history.list(filter, pageRequest(query));
    // The list shows only the first items of each message. `getAlertHistoryEntry` returns all of them.
    return ok(pageView(page, (delivery) => historyView(delivery, delivery.firstNews)));
  },
});

/** @throws {Problem} notFound */
async function historyEntry(id: string, services: Services): Promise<z.infer<typeof HistoryEntry>> {
  const delivery = await services.alerts.history.get(id);
  if (!delivery) throw notFound(`The history entry ${id.slice(0, 64)}`);
  return historyView(delivery, itemsIn(delivery));
}

const getAlertHistoryEntry = endpoint({
  name: "getAlertHistoryEntry",
  method: "GET",
  route: "alerts/history/{entry_id}",
  summary: "Get a history entry with all its items",
  tag,
  access: "user",
  tier: "core",
  params: z.object({ entry_id: z.string() }),
  responds: { 200: HistoryEntry },
  handle: async ({ params, services }) => ok(await historyEntry(params.entry_id, services)),
});

/** A repeat of a decision about a held notification returns the current history entry. */
const repeatOfHeld: Repeat<Services, unknown, z.infer<typeof HistoryEntry>> = {
  idOf: ({ id }) => id,
  answer: ({ id, services }) => historyEntry(id, services),
};

/** Members that the declarations of the two decisions about a held notification share. */
const heldDecision = {
  method: "POST",
  tag,
  access: "operator",
  tier: "core",
  params: z.object({ entry_id: z.string().meta({ description: "ID of the history entry." }) }),
  problems: ["notFound", "conflict"],
  responds: { 200: HistoryEntry },
  repeat: repeatOfHeld,
} as const;

const sendHeldAlert = endpoint({
  ...heldDecision,
  name: "sendHeldAlert",
  route: "alerts/history/{entry_id}/send",
  summary: "Send a held notification",
  description:
    "After the tables were restored from a backup, notifications that the service may have sent before are held: their status is `inDoubt`. Sends one now. Returns 409 for any other status. A mail that the provider already has is not sent again.",
  handle: async ({ params, caller, services }) => {
    const delivery = await services.alerts.held.send(params.entry_id, caller);
    return ok(historyView(delivery, itemsIn(delivery)));
  },
});

const dropHeldAlert = endpoint({
  ...heldDecision,
  name: "dropHeldAlert",
  route: "alerts/history/{entry_id}/drop",
  summary: "Drop a held notification",
  description:
    "The notification is not sent, and its status becomes `cancelled`. Returns 409 unless its status is `inDoubt`.",
  handle: async ({ params, caller, services }) => {
    const delivery = await services.alerts.held.drop(params.entry_id, caller);
    return ok(historyView(delivery, itemsIn(delivery)));
  },
});

const createAlertSnooze = endpoint({
  name: "createAlertSnooze",
  method: "POST",
  route: "alerts/snoozes",
  summary: "Snooze one asset, or all assets that match filters",
  description:
    "With `filters`, the snooze also covers assets that match later, for one rule or for every expiry rule. When the snooze ends, the rule reports the lowest threshold that each asset crossed in the meantime. Renewals are reported during a snooze.",
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
  repeat: {
    idOf: ({ id }) => id,
    answer: async ({ id, services }) => snoozeView(await services.alerts.snoozes.get(id)),
  },
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
  summary: "List active snoozes",
  tag,
  access: "user",
  tier: "core",
  query: z.strictObject({
    rule_id: ulid
      .optional()
      .meta({ description: "ID of a rule. Returns the snoozes of this rule and those that apply to every rule." }),
    ended: queryBoolean()
      .optional()
      .meta({ description: "`true` also returns snoozes that ended in the last 30 days." }),
    ...pageParameters,
  }),
  responds: { 200: pageOf(Snooze, "AlertSnoozeList") },
  handle: async ({ query, services }) => {
    const page = await services.alerts.snoozes.list(
      { ruleId: query.rule_id, ended: query.ended === true },
      pageRequest(query),
    );
    return ok(pageView(page, snoozeView));
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
  summary: "List alert recipients by owner",
  description:
    "An alert about an asset with an owner tag is mailed to the owner only: to the address that this table lists for the tag value, or to the tag value itself if it is an address in one of `ALERT_OWNER_DOMAINS`. All other alerts, and alerts that could not be delivered to the owner, go to the recipients of the rule, with the reason.",
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: OwnerList },
  handle: async ({ query, services }) =>
    resource(ownersView(await services.alerts.owners.table(), pageRequest(query), services.config.OWNER_TAG)),
});

const replaceAlertOwners = endpoint({
  name: "replaceAlertOwners",
  method: "PUT",
  route: "alerts/owners",
  summary: "Replace the list of alert recipients by owner",
  description: "An empty list removes all entries. Returns the first page of the new list.",
  tag,
  access: "admin",
  tier: "core",
  query: previewQuery("returns the current list."),
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
    return resource(ownersView(table, pageRequest({}), services.config.OWNER_TAG));
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
  sendHeldAlert,
  dropHeldAlert,
  createAlertSnooze,
  listAlertSnoozes,
  deleteAlertSnooze,
  listAlertOwners,
  replaceAlertOwners,
];

export const timers = [
  timer({
    name: "evaluateAlerts",
    // An idle evaluation makes only a few storage requests. Each evaluation also completes work that a crash interrupted.
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
    // The timer `evaluateAlerts` evaluates all rules again within 15 minutes.
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
