import { PAGERDUTY_ROUTING_KEY } from "simulated-cloud/incidents/pagerduty.ts";
import { SERVICENOW_CREDENTIALS } from "simulated-cloud/incidents/servicenow.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RuleStates, STATES } from "../../shared/alerts/rule-state.ts";
import { TrackedRows } from "../../shared/alerts/tracked-alerts.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { Service } from "../support/service.ts";
import { cardProblems, payloadProblems } from "./payload-schemas.ts";

/**
 * Tests alerts in a running service over HTTP, from adding a subscription to the escalation of an alert. An escalation is the
 * message to other recipients about an alert that was not acknowledged in time.
 */

let service: Service;
const BOSS = "boss@acme.example";
const TEAM = "team@acme.example";

beforeAll(async () => {
  service = await Service.start({
    company: {
      subscriptions: [
        {
          name: "Production",
          vaults: [
            { name: "kv-payments", secrets: [{ name: "db-password", expiresInDays: 200 }] },
            { name: "kv-orders", secrets: [{ name: "api-key", expiresInDays: 200 }] },
          ],
        },
        { name: "Elsewhere", vaults: [{ name: "kv-elsewhere", secrets: [{ name: "old", expiresInDays: -9 }] }] },
      ],
    },
    // Only added subscriptions are monitored.
    env: { ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true", WATCH_ALL: "false" },
    shortWaits: true,
  });
});
afterAll(() => service.stop());

/** Returns the items that a webhook received, as `<state> <id>`. A new alert has no state. */
const received = (sink: string) =>
  service.cloud.control
    .sinkRequests(sink)
    .flatMap(({ body }) => JSON.parse(body).data.items as { id: string; state?: string }[])
    .map(({ id, state }) => `${state ?? "new"} ${id}`);
const mailsTo = (address: string) =>
  service.cloud.control
    .mails()
    .filter(({ to }) => to.includes(address))
    .map(({ plainText }) => plainText ?? "");
const POLL = { interval: 100 };
/** Calls the API as administrator. Throws if the call fails. */
const call = async (method: string, path: string, body?: unknown) => {
  const answer = await service.admin(method, path, body);
  if (answer.status >= 300) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.text}`);
  return answer.body;
};
/** Returns the address of a simulated receiver. */
const receiverUrl = (path: string) => service.cloud.controlUrl.replace("/control", path);
/** Returns the address of a simulated webhook. `sinkRequests` of the cloud returns the requests that it received. */
const hookUrl = (sink: string) => receiverUrl(`/sink/${sink}`);

/** Returns the messages of each channel so far. The keys are the names of the schemas in payload-schemas.ts. */
function payloads() {
  const { control } = service.cloud;
  const sunk = (sink: string) => control.sinkRequests(sink).map(({ body }) => JSON.parse(body));
  return {
    email: control.mails().map(({ request }) => request),
    cloudEvent: sunk("hook"),
    slack: sunk("slack"),
    teams: sunk("teams"),
    pagerDuty: [...control.pagerDuty.events],
    // Without the fields that ServiceNow itself adds to a new incident.
    serviceNowIncident: control.serviceNow.incidents.map(
      ({ sys_id: _id, number: _number, state: _state, ...fields }) => fields,
    ),
  };
}

test("an expired secret and its renewal are sent on each channel, and an unacknowledged alert is escalated", async () => {
  const { control } = service.cloud;
  // 1. A subscription is added and scanned, with two assets that have not expired.
  const [production] = control.subscriptions();
  expect((await service.admin("GET", "/subscriptions")).body.items).toEqual(
    expect.not.arrayContaining([expect.objectContaining({ watched: true })]),
  );
  const { id: subscriptionId } = production!;
  const added = await call("POST", "/subscriptions", { subscriptionId, name: "Our production" });
  expect(added).toMatchObject({ watched: true, watching: { watchAll: false, subscriptions: 1 } });
  expect(await call("POST", `/subscriptions/${subscriptionId}/test`)).toMatchObject({ ok: true });
  await service.scan();
  // Wait for the evaluation after the scan. During the next scan, it would report only a part of the results.
  await service.waitForEmptyQueues();
  const changes = async (change: string): Promise<{ assetId: string }[]> =>
    (await call("GET", `/api/assets/discovery/changes?change=${change}`)).items;
  expect((await changes("added")).map(({ assetId }) => assetId).sort()).toEqual([
    "kv-orders.secret.api-key",
    "kv-payments.secret.db-password",
  ]);
  // 2. One rule for each channel is created. None has anything to notify about yet.
  const methods = {
    email: { recipients: [TEAM] },
    webhook: { webhookUrl: hookUrl("hook") },
    slack: { webhookUrl: hookUrl("slack") },
    teams: { webhookUrl: hookUrl("teams") },
    pagerDuty: {
      webhookUrl: receiverUrl("/pagerduty/v2/enqueue"),
      credentials: { routingKey: PAGERDUTY_ROUTING_KEY },
    },
    serviceNow: {
      webhookUrl: receiverUrl("/servicenow"),
      credentials: { username: SERVICENOW_CREDENTIALS.username, password: SERVICENOW_CREDENTIALS.password },
    },
  };
  const rules: Record<string, string> = {};
  for (const [deliveryMethod, methodFields] of Object.entries(methods)) {
    const escalation = deliveryMethod === "webhook" ? { afterDays: 2, recipients: [BOSS] } : undefined;
    const rule = { name: deliveryMethod, alertType: "expired", deliveryMethod, ...methodFields, escalation };
    const preview = await call("POST", "/alerts/preview", rule);
    expect(preview).toMatchObject({ total: 0, isFirst: true, next: { item: { thresholdDays: 0 } } });
    rules[deliveryMethod] = (await call("POST", "/alerts/rules", rule)).id;
  }

  // 3. Both assets expire, which every channel reports.
  control.putSecret("kv-payments", { name: "db-password", expiresInDays: -1 });
  control.putSecret("kv-orders", { name: "api-key", expiresInDays: -1 });
  await service.scan();
  expect((await changes("updated"))[0]).toMatchObject({
    subscriptionId,
    members: expect.arrayContaining(["expiresOn"]),
  });
  const payments = "kv-payments.secret.db-password";
  const orders = "kv-orders.secret.api-key";
  await expect.poll(() => received("hook").sort(), POLL).toEqual([`new ${orders}`, `new ${payments}`]);
  await expect.poll(() => mailsTo(TEAM).length, POLL).toBe(1);
  expect(mailsTo(TEAM)[0]).toContain("kv-payments/db-password");
  for (const channel of ["slack", "teams"]) {
    await expect.poll(() => control.sinkRequests(channel).length, POLL).toBe(1);
    expect(control.sinkRequests(channel)[0]!.body).toContain("kv-payments/db-password");
  }
  const alerts = () =>
    control.pagerDuty
      .alerts()
      .map(({ summary, status }) => `${summary.split(" ")[0]} ${status}`)
      .sort();
  /** Incidents of ServiceNow with their state: 1 is new, 6 is resolved. */
  const incidents = () =>
    control.serviceNow.incidents.map(({ short_description: text, state }) => `${text!.split(" ")[0]} ${state}`).sort();
  await expect.poll(alerts, POLL).toEqual(["kv-orders/api-key triggered", "kv-payments/db-password triggered"]);
  await expect.poll(incidents, POLL).toEqual(["kv-orders/api-key 1", "kv-payments/db-password 1"]);
  // The channels get their messages in any order.
  const channelsWithoutMessage = () =>
    Object.entries(payloads()).flatMap(([channel, sent]) => (sent.length === 0 ? [channel] : []));
  await expect.poll(channelsWithoutMessage, POLL).toEqual([]);
  for (const [channel, sent] of Object.entries(payloads())) {
    for (const payload of sent)
      expect(payloadProblems(channel as keyof ReturnType<typeof payloads>, payload), channel).toEqual([]);
  }
  expect(cardProblems(payloads().teams[0].attachments[0].content)).toEqual([]);
  const openAlerts = await call("GET", `/alerts/rules/${rules.webhook}/open`);
  expect(openAlerts.items.map(({ item }: { item: { id: string } }) => item.id)).toEqual([orders, payments]);

  // 4. One asset is renewed, which every channel reports. A new vault, kv-quiet, has an expired asset but is snoozed for all
  // rules.
  control.putSecret("kv-payments", { name: "db-password", expiresInDays: 90 });
  const until = new Date(Date.now() + DAY_MS).toISOString();
  const snooze = await call("POST", "/alerts/snoozes", {
    filters: { vault: "kv-quiet" },
    reason: "Maintenance",
    until,
  });
  control.putVault(subscriptionId, { name: "kv-quiet", secrets: [{ name: "old", expiresInDays: -3 }] });
  await service.scan();
  await expect.poll(() => received("hook").slice(2), POLL).toEqual([`renewed ${payments}`]);
  await expect.poll(() => mailsTo(TEAM).length, POLL).toBe(2);
  expect(mailsTo(TEAM)[1]).toMatch(/kv-payments\/db-password was renewed/);
  for (const channel of ["slack", "teams"]) await expect.poll(() => control.sinkRequests(channel).length, POLL).toBe(2);
  await expect.poll(alerts, POLL).toEqual(["kv-orders/api-key triggered", "kv-payments/db-password resolved"]);
  await expect.poll(incidents, POLL).toEqual(["kv-orders/api-key 1", "kv-payments/db-password 6"]);
  const { serviceNowIncident: _resolved, ...messages } = payloads();
  for (const [channel, sent] of Object.entries(messages)) {
    for (const payload of sent) expect(payloadProblems(channel as keyof typeof messages, payload), channel).toEqual([]);
  }
  const path = `/alerts/rules/${rules.webhook}/preview`;
  expect((await call("GET", path)).total).toBe(0);
  // A changed rule does not repeat notifications that a new rule would send.
  const changedRule = { name: "Orders only", filters: { vault: "kv-orders" } };
  expect(await call("POST", path, changedRule)).toMatchObject({ total: 0, isFirst: false });
  const newRule = { ...changedRule, alertType: "expired", recipients: [BOSS] };
  expect((await call("POST", "/alerts/preview", newRule)).items).toMatchObject([{ id: orders }]);
  expect((await call("GET", `/alerts/rules/${rules.webhook}`)).name).toBe("webhook");
  await call("DELETE", `/alerts/snoozes/${snooze.id}`);
  expect((await call("GET", `/alerts/rules/${rules.webhook}/preview`)).items).toMatchObject([
    { id: "kv-quiet.secret.old", kind: "asset" },
  ]);

  // 5. The snooze has ended, so the alert about kv-quiet is sent. It is escalated; the alert about kv-orders is acknowledged.
  await service.scan();
  await expect.poll(() => received("hook").at(-1), POLL).toBe("new kv-quiet.secret.old");
  await service.waitUntilIdle();
  await makeNotificationsOlder(rules.webhook!, 3 * DAY_MS);
  const acknowledged = await call("POST", "/alerts/acknowledgements", { ruleId: rules.webhook, itemId: orders });
  expect(acknowledged).toMatchObject({ acknowledged: 1, items: [{ acknowledgedBy: "admin", itemId: orders }] });
  await service.scan();
  await expect.poll(() => mailsTo(BOSS).length, POLL).toBe(1);
  expect(mailsTo(BOSS)[0]).toContain("kv-quiet/old");
  expect(mailsTo(BOSS)[0]).not.toContain("kv-orders");
  const history = await call("GET", `/alerts/history?rule_id=${rules.webhook}`);
  expect(history.items[0]).toMatchObject({ escalatedFrom: rules.webhook, items: [{ kind: "escalated" }] });

  // 6. The history of one asset has the notifications of all rules about it, with only its own items.
  const kindsAbout = async (assetId: string) => {
    const { items, nextCursor } = await call("GET", `/alerts/history?asset_id=${assetId}&limit=1000`);
    expect(nextCursor).toBeNull();
    for (const { items: alerts } of items) expect(alerts.map(({ id }: { id: string }) => id)).toEqual([assetId]);
    const times = items.map(({ createdAt }: { createdAt: string }) => createdAt);
    expect(times).toEqual(times.toSorted().reverse());
    return items.map(({ items: [alert] }: { items: [{ kind: string }] }) => alert.kind);
  };
  const ruleCount = Object.keys(rules).length;
  expect(await kindsAbout(orders)).toEqual(Array(ruleCount).fill("asset"));
  expect(await kindsAbout(payments)).toEqual(Array(ruleCount).fill("renewed"));
  expect(await kindsAbout("kv-quiet.secret.old")).toEqual(["escalated", ...Array(ruleCount).fill("asset")]);
  expect(await kindsAbout("kv-quiet.secret.unknown")).toEqual([]);
  const ofOneRule = await call("GET", `/alerts/history?asset_id=${orders.toUpperCase()}&rule_id=${rules.webhook}`);
  expect(ofOneRule).toMatchObject({ total: 1, items: [{ ruleId: rules.webhook }] });
});

test("a vault that denies access is reported with a remedy, and its recovery when it can be read again", async () => {
  const body = { name: "scans", alertType: "scanFailure", deliveryMethod: "webhook", webhookUrl: hookUrl("scans") };
  const { id } = await call("POST", "/alerts/rules", body);
  const { control } = service.cloud;
  const fault = control.addFault({ match: { vault: "kv-orders" }, action: { kind: "deny" } });
  await service.scan();
  await expect.poll(() => received("scans"), POLL).toEqual(["new vault:kv-orders"]);
  const [notified] = JSON.parse(control.sinkRequests("scans")[0]!.body).data.items;
  expect(notified).toMatchObject({ vaultName: "kv-orders", code: "accessDenied", subscriptionId: expect.any(String) });
  expect(notified.remedy.length).toBeGreaterThan(20);
  control.removeFault(fault);
  await service.scan({ mode: "force" });
  await expect.poll(() => received("scans").slice(1), POLL).toEqual(["recovered vault:kv-orders"]);
  await call("DELETE", `/alerts/rules/${id}`);
});

/** Changes the stored times of a rule's alerts, as if their notifications had been sent earlier. */
async function makeNotificationsOlder(ruleId: string, milliseconds: number): Promise<void> {
  const tables = createTables({ connectionString: service.azurite.connectionString() });
  const earlier = (instant: string) => new Date(Date.parse(instant) - milliseconds).toISOString();
  // The row keys of open alerts begin with `o!`.
  for await (const rows of tables.pages(TrackedRows, { partitionKey: ruleId, from: "o!", before: "o~" })) {
    for (const row of rows) {
      await tables.replace(TrackedRows, { ...row, since: earlier(row.since), toldAt: earlier(row.toldAt) });
    }
  }
  const state = (await tables.get(RuleStates, STATES, ruleId))!;
  await tables.replace(RuleStates, { ...state, followUpAt: earlier(state.followUpAt!) });
}
