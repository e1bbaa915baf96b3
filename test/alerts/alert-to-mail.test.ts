import { PAGERDUTY_ROUTING_KEY } from "simulated-cloud/incidents/pagerduty.ts";
import { SERVICENOW_CREDENTIALS } from "simulated-cloud/incidents/servicenow.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { RuleStates, STATES } from "../../shared/alerts/rule-state.ts";
import { TrackedRows } from "../../shared/alerts/tracked-alerts.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { Service } from "../support/service.ts";
import { cardProblems, payloadProblems } from "./payload-schemas.ts";

// A user's path over HTTP: from adding a subscription to an escalation.

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

/** Items that a webhook received, as `<state> <id>`. */
const received = (sink: string) =>
  service.cloud.control
    .sunk(sink)
    .flatMap(({ body }) => JSON.parse(body).data.items as { id: string; state?: string }[])
    .map(({ id, state }) => `${state ?? "begun"} ${id}`);
const mailsTo = (address: string) =>
  service.cloud.control
    .mails()
    .filter(({ to }) => to.includes(address))
    .map(({ plainText }) => plainText ?? "");
const within = { interval: 100 };
const ok = async (method: string, path: string, body?: unknown) => {
  const answer = await service.admin(method, path, body);
  if (answer.status >= 300) throw new Error(`${method} ${path} answered ${answer.status}: ${answer.text}`);
  return answer.body;
};
const standIn = (path: string) => service.cloud.controlUrl.replace("/control", path);
const hook = (sink: string) => standIn(`/sink/${sink}`);

/** The messages of each channel so far, checked against its documentation. */
function payloads() {
  const { control } = service.cloud;
  const sunk = (sink: string) => control.sunk(sink).map(({ body }) => JSON.parse(body));
  return {
    email: control.mails().map(({ request }) => request),
    cloudEvent: sunk("hook"),
    slack: sunk("slack"),
    teams: sunk("teams"),
    pagerDuty: [...control.pagerDuty.events],
    // Fields that the instance adds to a new incident.
    serviceNowIncident: control.serviceNow.incidents.map(
      ({ sys_id: _id, number: _number, state: _state, ...fields }) => fields,
    ),
  };
}

test("an expired secret and its renewal are sent on each channel, and an alert without acknowledgment is escalated", async () => {
  const { control } = service.cloud;
  const [production] = control.subscriptions();
  expect((await service.admin("GET", "/subscriptions")).body.items).toEqual(
    expect.not.arrayContaining([expect.objectContaining({ watched: true })]),
  );
  const { id: subscriptionId } = production!;
  const added = await ok("POST", "/subscriptions", { subscriptionId, name: "Our production" });
  expect(added).toMatchObject({ watched: true, watching: { watchAll: false, subscriptions: 1 } });
  expect(await ok("POST", `/subscriptions/${subscriptionId}/test`)).toMatchObject({ ok: true });
  await service.scan();
  // Wait for the evaluation after the scan. During the next scan, it would report only a part of the results.
  await service.settled();
  const changes = async (change: string): Promise<{ assetId: string }[]> =>
    (await ok("GET", `/api/assets/discovery/changes?change=${change}`)).items;
  expect((await changes("added")).map(({ assetId }) => assetId).sort()).toEqual([
    "kv-orders.secret.api-key",
    "kv-payments.secret.db-password",
  ]);
  const methods = {
    email: { recipients: [TEAM] },
    webhook: { webhookUrl: hook("hook") },
    slack: { webhookUrl: hook("slack") },
    teams: { webhookUrl: hook("teams") },
    pagerDuty: {
      webhookUrl: standIn("/pagerduty/v2/enqueue"),
      credentials: { routingKey: PAGERDUTY_ROUTING_KEY },
    },
    serviceNow: {
      webhookUrl: standIn("/servicenow"),
      credentials: { username: SERVICENOW_CREDENTIALS.username, password: SERVICENOW_CREDENTIALS.password },
    },
  };
  const rules: Record<string, string> = {};
  for (const [deliveryMethod, how] of Object.entries(methods)) {
    const escalation = deliveryMethod === "webhook" ? { afterDays: 2, recipients: [BOSS] } : undefined;
    const rule = { name: deliveryMethod, alertType: "expired", deliveryMethod, ...how, escalation };
    const preview = await ok("POST", "/alerts/preview", rule);
    expect(preview).toMatchObject({ total: 0, isFirst: true, next: { item: { thresholdDays: 0 } } });
    rules[deliveryMethod] = (await ok("POST", "/alerts/rules", rule)).id;
  }

  control.putSecret("kv-payments", { name: "db-password", expiresInDays: -1 });
  control.putSecret("kv-orders", { name: "api-key", expiresInDays: -1 });
  await service.scan();
  expect((await changes("updated"))[0]).toMatchObject({
    subscriptionId,
    members: expect.arrayContaining(["expiresOn"]),
  });
  const asset = "kv-payments.secret.db-password";
  const other = "kv-orders.secret.api-key";
  await expect.poll(() => received("hook").sort(), within).toEqual([`begun ${other}`, `begun ${asset}`]);
  await expect.poll(() => mailsTo(TEAM).length, within).toBe(1);
  expect(mailsTo(TEAM)[0]).toContain("kv-payments/db-password");
  for (const channel of ["slack", "teams"]) {
    await expect.poll(() => control.sunk(channel).length, within).toBe(1);
    expect(control.sunk(channel)[0]!.body).toContain("kv-payments/db-password");
  }
  const alerts = () =>
    control.pagerDuty
      .alerts()
      .map(({ summary, status }) => `${summary.split(" ")[0]} ${status}`)
      .sort();
  const incidents = () =>
    control.serviceNow.incidents.map(({ short_description: text, state }) => `${text!.split(" ")[0]} ${state}`).sort();
  await expect.poll(alerts, within).toEqual(["kv-orders/api-key triggered", "kv-payments/db-password triggered"]);
  await expect.poll(incidents, within).toEqual(["kv-orders/api-key 1", "kv-payments/db-password 1"]);
  // The channels get their messages in any order.
  const without = () => Object.entries(payloads()).flatMap(([channel, sent]) => (sent.length === 0 ? [channel] : []));
  await expect.poll(without, within).toEqual([]);
  for (const [channel, sent] of Object.entries(payloads())) {
    for (const one of sent)
      expect(payloadProblems(channel as keyof ReturnType<typeof payloads>, one), channel).toEqual([]);
  }
  expect(cardProblems(payloads().teams[0].attachments[0].content)).toEqual([]);
  const opened = await ok("GET", `/alerts/rules/${rules.webhook}/open`);
  expect(opened.items.map(({ item }: { item: { id: string } }) => item.id)).toEqual([other, asset]);

  // One asset is renewed, which every channel reports. The other is snoozed for one rule.
  control.putSecret("kv-payments", { name: "db-password", expiresInDays: 90 });
  const until = new Date(Date.now() + DAY_MS).toISOString();
  const snooze = await ok("POST", "/alerts/snoozes", { filters: { vault: "kv-quiet" }, reason: "Maintenance", until });
  control.putVault(subscriptionId, { name: "kv-quiet", secrets: [{ name: "old", expiresInDays: -3 }] });
  await service.scan();
  await expect.poll(() => received("hook").slice(2), within).toEqual([`renewed ${asset}`]);
  await expect.poll(() => mailsTo(TEAM).length, within).toBe(2);
  expect(mailsTo(TEAM)[1]).toMatch(/kv-payments\/db-password was renewed/);
  for (const channel of ["slack", "teams"]) await expect.poll(() => control.sunk(channel).length, within).toBe(2);
  await expect.poll(alerts, within).toEqual(["kv-orders/api-key triggered", "kv-payments/db-password resolved"]);
  await expect.poll(incidents, within).toEqual(["kv-orders/api-key 1", "kv-payments/db-password 6"]);
  const { serviceNowIncident: _resolved, ...messages } = payloads();
  for (const [channel, sent] of Object.entries(messages)) {
    for (const one of sent) expect(payloadProblems(channel as keyof typeof messages, one), channel).toEqual([]);
  }
  const path = `/alerts/rules/${rules.webhook}/preview`;
  expect((await ok("GET", path)).total).toBe(0);
  // A changed rule does not repeat notifications that a new rule would send.
  const confined = { name: "Confined", filters: { vault: "kv-orders" } };
  expect(await ok("POST", path, confined)).toMatchObject({ total: 0, isFirst: false });
  const asNew = { ...confined, alertType: "expired", recipients: [BOSS] };
  expect((await ok("POST", "/alerts/preview", asNew)).items).toMatchObject([{ id: other }]);
  expect((await ok("GET", `/alerts/rules/${rules.webhook}`)).name).toBe("webhook");
  await ok("DELETE", `/alerts/snoozes/${snooze.id}`);
  expect((await ok("GET", `/alerts/rules/${rules.webhook}/preview`)).items).toMatchObject([
    { id: "kv-quiet.secret.old", kind: "asset" },
  ]);

  // One of the two open alerts is acknowledged. The other is escalated.
  await service.scan();
  await expect.poll(() => received("hook").at(-1), within).toBe("begun kv-quiet.secret.old");
  await service.idle();
  await olderBy(rules.webhook!, 3 * DAY_MS);
  const acknowledged = await ok("POST", "/alerts/acknowledgements", { ruleId: rules.webhook, itemId: other });
  expect(acknowledged).toMatchObject({ acknowledged: 1, items: [{ acknowledgedBy: "admin", itemId: other }] });
  await service.scan();
  await expect.poll(() => mailsTo(BOSS).length, within).toBe(1);
  expect(mailsTo(BOSS)[0]).toContain("kv-quiet/old");
  expect(mailsTo(BOSS)[0]).not.toContain("kv-orders");
  const history = await ok("GET", `/alerts/history?rule_id=${rules.webhook}`);
  expect(history.items[0]).toMatchObject({ escalatedFrom: rules.webhook, items: [{ kind: "escalated" }] });
});

test("a vault that denies access is reported with its remedy, and again when it can be read", async () => {
  const body = { name: "scans", alertType: "scanFailure", deliveryMethod: "webhook", webhookUrl: hook("scans") };
  const { id } = await ok("POST", "/alerts/rules", body);
  const { control } = service.cloud;
  const fault = control.addFault({ match: { vault: "kv-orders" }, action: { kind: "deny" } });
  await service.scan();
  await expect.poll(() => received("scans"), within).toEqual(["begun vault:kv-orders"]);
  const [notified] = JSON.parse(control.sunk("scans")[0]!.body).data.items;
  expect(notified).toMatchObject({ vaultName: "kv-orders", code: "accessDenied", subscriptionId: expect.any(String) });
  expect(notified.remedy.length).toBeGreaterThan(20);
  control.removeFault(fault);
  await service.scan({ mode: "force" });
  await expect.poll(() => received("scans").slice(1), within).toEqual(["recovered vault:kv-orders"]);
  await ok("DELETE", `/alerts/rules/${id}`);
});

/** Moves the rule's notifications back in time. */
async function olderBy(ruleId: string, milliseconds: number): Promise<void> {
  const tables = createTables({ connectionString: service.azurite.connectionString() });
  const before = (instant: string) => new Date(Date.parse(instant) - milliseconds).toISOString();
  for await (const rows of tables.pages(TrackedRows, { partitionKey: ruleId, from: "o!", before: "o~" })) {
    for (const row of rows) {
      await tables.replace(TrackedRows, { ...row, since: before(row.since), toldAt: before(row.toldAt) });
    }
  }
  const state = (await tables.get(RuleStates, STATES, ruleId))!;
  await tables.replace(RuleStates, { ...state, followUpAt: before(state.followUpAt!) });
}
