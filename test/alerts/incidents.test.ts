import type { Cloud } from "simulated-cloud/cloud.ts";
import { PAGERDUTY_ROUTING_KEY } from "simulated-cloud/incidents/pagerduty.ts";
import { SERVICENOW_CREDENTIALS } from "simulated-cloud/incidents/servicenow.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { NewRule } from "../../shared/alerts/api.ts";
import { DELIVERY_QUEUE, deliveryIdOf, itemsIn } from "../../shared/alerts/delivery.ts";
import type { AssetItem, Item } from "../../shared/alerts/items.ts";
import { secretName } from "../../shared/alerts/rule.ts";
import { newDelivery } from "../../shared/alerts/rule-notifications.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import type { Steps } from "../support/simulated-crash.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";
import { payloadProblems } from "./payload-schemas.ts";

/**
 * Tests of alert rules that open incidents in PagerDuty and ServiceNow. Each item (such as an asset that expires) is one
 * incident, which the end of its alert resolves.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 34 }, (_, index) => `incident${String(index).padStart(2, "0")}`);
let usedAccounts = 0;
let fixture: Fixture;

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await startTestCloud({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  cloud.control.clearFaults();
  cloud.control.pagerDuty.clear();
  cloud.control.serviceNow.clear();
  fixture = openFixture({ connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!), cloud });
});

const FIRST_PAGE = { limit: 100, offset: 0, cursor: undefined };
const history = async (ruleId: string) => (await fixture.instance().history.list({ ruleId }, FIRST_PAGE)).items;
/** Returns the address of a simulated receiver. */
const receiverUrl = (path: string) => cloud.controlUrl.replace("/control", path);
const { username, password, clientId, clientSecret } = SERVICENOW_CREDENTIALS;
/** Members of a rule that opens incidents in PagerDuty, and of one that opens them in ServiceNow. */
const pagerDuty = (): Partial<NewRule> => ({
  deliveryMethod: "pagerDuty",
  webhookUrl: receiverUrl("/pagerduty/v2/enqueue"),
  credentials: { routingKey: PAGERDUTY_ROUTING_KEY },
});
const serviceNow = (credentials: NewRule["credentials"] = { username, password }): Partial<NewRule> => ({
  deliveryMethod: "serviceNow",
  webhookUrl: receiverUrl("/servicenow"),
  credentials,
});

/** Evaluates the rules and sends all messages. The clock moves to the time of each delayed message. */
async function deliver() {
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleAllMessages(alerts);
}

/** Delivers items through a rule, as its evaluation would. Returns the delivery. */
async function notify(ruleId: string, items: Item[]) {
  const alerts = fixture.instance();
  const rule = await alerts.rules.get(ruleId);
  fixture.clock.add(MINUTE_MS);
  const deliveryId = deliveryIdOf(ruleId, fixture.clock.now(), items);
  await alerts.history.record(newDelivery(rule, { deliveryId, createdAt: fixture.clock.now().toISOString(), items }));
  fixture.messages.push({ queue: DELIVERY_QUEUE, message: { deliveryId }, visibleAt: 0 });
  await fixture.handleAllMessages(alerts);
  return (await alerts.history.get(deliveryId))!;
}

/** Returns the item that reports the renewal of the first asset of a rule's newest delivery. */
async function renewalOfFirstItem(ruleId: string): Promise<Item> {
  const [entry] = await history(ruleId);
  const items = itemsIn((await fixture.instance().history.get(entry!.deliveryId))!);
  const asset = items.find((item): item is AssetItem => item.kind === "asset")!;
  return {
    kind: "renewed",
    id: asset.id,
    of: asset,
    since: entry!.createdAt,
    expiresOn: asset.expiresOn + 86_400 * 365,
  };
}

describe("PagerDuty", () => {
  test("receives one alert per item for all thresholds, and its resolution", async () => {
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 8 },
      { name: "two", expiresInDays: -1 },
    ]);
    const { rule } = await fixture.webhookRule({ ...pagerDuty(), alertType: "expiration", thresholds: [30, 7] });
    await fixture.webhookRule({ ...pagerDuty(), alertType: "expired", thresholds: undefined });
    await deliver();
    fixture.clock.add(2 * DAY_MS);
    await deliver();
    const currentAlerts = () => cloud.control.pagerDuty.alerts().sort((a, b) => (a.summary < b.summary ? -1 : 1));
    expect(currentAlerts()).toMatchObject([
      {
        severity: "error",
        summary: "kv-a/one expires in 6 days (secret, no owner)",
        status: "triggered",
        triggered: 2,
      },
      { severity: "critical", summary: expect.stringContaining("kv-a/two expired"), triggered: 1 },
    ]);
    await notify(rule.ruleId, [await renewalOfFirstItem(rule.ruleId)]);
    expect(currentAlerts().map(({ status }) => status)).toEqual(["resolved", "triggered"]);
    const sources = cloud.control.pagerDuty.events.flatMap(
      (event) => /"source":"([^"]*)"/.exec(JSON.stringify(event))?.[1],
    );
    expect(new Set(sources.filter((source) => source !== undefined))).toEqual(new Set(["kv-a"]));
    for (const event of cloud.control.pagerDuty.events) expect(payloadProblems("pagerDuty", event)).toEqual([]);
    expect(payloadProblems("pagerDuty", { ...cloud.control.pagerDuty.events[0], extra: 1 })).not.toEqual([]);
    expect((await history(rule.ruleId)).map(({ status }) => status)).toEqual(["delivered", "delivered", "delivered"]);
  });

  test("that throttles is retried after its Retry-After and receives every item once", async () => {
    const action = { kind: "throttle", retryAfterSeconds: 900 } as const;
    // Only the fourth request is throttled.
    cloud.control.addFault({ match: { operation: "pagerduty.enqueue" }, action, times: 1, after: 3 });
    await fixture.writeAssets(
      "kv-a",
      Array.from({ length: 8 }, (_, index) => ({ name: `s${index}`, expiresInDays: 3 })),
    );
    const { rule } = await fixture.webhookRule(pagerDuty());
    const start = fixture.clock.now().getTime();
    await deliver();
    expect(fixture.clock.now().getTime() - start).toBe(900_000);
    expect(cloud.control.pagerDuty.alerts().map(({ triggered }) => triggered)).toEqual(Array(8).fill(1));
    expect((await history(rule.ruleId))[0]).toMatchObject({ status: "delivered", parts: [{ posted: 8, attempts: 2 }] });
  });

  test("that rejects one item receives the following ones, and the history shows the rejection", async () => {
    const action = { kind: "fail", status: 400 } as const;
    // Only the second request is rejected.
    cloud.control.addFault({ match: { operation: "pagerduty.enqueue" }, action, times: 1, after: 1 });
    await fixture.writeAssets(
      "kv-a",
      Array.from({ length: 3 }, (_, index) => ({ name: `s${index}`, expiresInDays: 3 })),
    );
    const { rule } = await fixture.webhookRule(pagerDuty());
    await deliver();
    expect(cloud.control.pagerDuty.alerts()).toHaveLength(2);
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "failed", parts: [{ posted: 3, refused: 1 }] });
    expect(entry!.parts[0]!.error).toBe("PagerDuty returned 400. The receiver rejected 1 of 3 items.");
  });

  test.each([
    [400, "rejected"],
    [405, "rejected"],
    [499, "rejected"],
    [401, "retried"],
    [403, "retried"],
    [404, "retried"],
    [408, "retried"],
    [429, "retried"],
    [500, "retried"],
  ])("that returns %i for one item: the item is %s", async (status, outcome) => {
    const action = { kind: "fail", status } as const;
    cloud.control.addFault({ match: { operation: "pagerduty.enqueue" }, action, times: 1 });
    await fixture.writeAssets("kv-a", [{ name: "s", expiresInDays: 3 }]);
    const { rule } = await fixture.webhookRule(pagerDuty());
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({
      status: outcome === "rejected" ? "failed" : "delivered",
      parts: [{ attempts: outcome === "rejected" ? 1 : 2 }],
    });
  });

  test("that rejects ten items of a delivery does not receive the others", async () => {
    cloud.control.addFault({ match: { operation: "pagerduty.enqueue" }, action: { kind: "fail", status: 400 } });
    await fixture.writeAssets(
      "kv-a",
      Array.from({ length: 12 }, (_, index) => ({ name: `s${index}`, expiresInDays: 3 })),
    );
    const { rule } = await fixture.webhookRule(pagerDuty());
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "failed", parts: [{ refused: 10, attempts: 1 }] });
    expect(entry!.parts[0]!.error).toContain("The remaining items were not sent");
  });

  test("has no open alert for an item that is resolved before its delayed delivery", async () => {
    const action = { kind: "throttle", retryAfterSeconds: 900 } as const;
    cloud.control.addFault({ match: { operation: "pagerduty.enqueue" }, action, times: 1 });
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 3 },
      { name: "two", expiresInDays: 3 },
    ]);
    await fixture.webhookRule(pagerDuty());
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleVisibleMessages(alerts);
    expect(cloud.control.pagerDuty.alerts()).toEqual([]);
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 300 },
      { name: "two", expiresInDays: 3 },
    ]);
    await deliver();
    const alertStatuses = cloud.control.pagerDuty.alerts().map(({ summary, status }) => [summary.slice(0, 8), status]);
    expect(alertStatuses.sort()).toEqual([
      ["kv-a/one", "resolved"],
      ["kv-a/two", "triggered"],
    ]);
  });

  test("as an escalation channel receives the resolution, at whichever step the process crashes", async () => {
    const escalationRule = await fixture.webhookRule({
      ...pagerDuty(),
      alertType: "breakGlass",
      thresholds: undefined,
    });
    await fixture.webhookRule({ escalation: { afterDays: 1, ruleId: escalationRule.rule.ruleId } });
    const statuses = () =>
      Object.fromEntries(
        cloud.control.pagerDuty.alerts().map(({ summary, status }) => [summary.split(" ")[0], status]),
      );
    const daysSinceStart = () => (fixture.clock.now().getTime() - Date.parse(START)) / DAY_MS;
    for (let crashAt = 2; ; crashAt += 3) {
      const [renewed, expiring] = [`renewed-${crashAt}`, `expiring-${crashAt}`];
      const assets = [renewed, expiring].map((name) => ({ name, expiresInDays: daysSinceStart() + 4 }));
      await fixture.writeAssets("kv-a", assets);
      await deliver();
      fixture.clock.add(1.1 * DAY_MS);
      await deliver();
      expect(statuses()).toMatchObject({ [`kv-a/${renewed}`]: "triggered", [`kv-a/${expiring}`]: "triggered" });

      const steps: Steps = { taken: 0, crashAt, when: crashAt % 2 === 0 ? "before" : "after" };
      await fixture.writeAssets("kv-a", [{ name: renewed, expiresInDays: 3000 }, assets[1]!]);
      const hasNotCrashed = await fixture
        .instance(steps)
        .evaluate()
        .then(
          () => true,
          () => false,
        );
      await deliver();
      expect(statuses()).toMatchObject({ [`kv-a/${renewed}`]: "resolved", [`kv-a/${expiring}`]: "triggered" });
      if (!hasNotCrashed) continue;
      // The evaluation has fewer than `crashAt` steps, so all were tested.
      expect(crashAt).toBeGreaterThan(8);
      return;
    }
  });

  test("as an escalation channel receives the resolution even if the rule itself sends none", async () => {
    const escalationRule = await fixture.webhookRule({
      ...pagerDuty(),
      alertType: "breakGlass",
      thresholds: undefined,
    });
    const escalation = { afterDays: 1, ruleId: escalationRule.rule.ruleId };
    const { rule } = await fixture.webhookRule({ escalation, tellRecovery: false });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 4 }]);
    await deliver();
    fixture.clock.add(1.1 * DAY_MS);
    await deliver();
    expect(cloud.control.pagerDuty.alerts()).toMatchObject([{ status: "triggered" }]);
    const deliveriesBefore = (await history(rule.ruleId)).length;
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 3000 },
      { name: "never-notified", expiresInDays: 3000 },
    ]);
    await deliver();
    expect(cloud.control.pagerDuty.alerts()).toMatchObject([{ status: "resolved" }]);
    expect(await history(rule.ruleId)).toHaveLength(deliveriesBefore);
  });

  test("that rejects the routing key is not retried", async () => {
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const { rule } = await fixture.webhookRule({ ...pagerDuty(), credentials: { routingKey: "f".repeat(32) } });
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({ status: "failed", parts: [{ attempts: 1, answer: { status: 400 } }] });
    expect(entry!.parts[0]!.answer!.body).toContain("routing_key");
    expect(JSON.stringify(entry)).not.toContain("f".repeat(32));
  });
});

describe("ServiceNow", () => {
  test.each([
    ["a user", { username, password }],
    ["OAuth's client credentials", { clientId, clientSecret }],
    ["OAuth's password grant", { username, password, clientId, clientSecret }],
  ])("receives one incident per item and its resolution, with %s", async (_name, credentials) => {
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 8 },
      { name: "two", expiresInDays: 3 },
    ]);
    const { rule } = await fixture.webhookRule({ ...serviceNow(credentials), thresholds: [30, 7] });
    await deliver();
    const { incidents } = cloud.control.serviceNow;
    expect(incidents.map(({ state, short_description }) => [state, short_description])).toEqual([
      ["1", "kv-a/two expires in 3 days (secret, no owner)"],
      ["1", "kv-a/one expires in 8 days (secret, no owner)"],
    ]);
    for (const { sys_id: _s, number: _n, state: _t, ...fields } of incidents)
      expect(payloadProblems("serviceNowIncident", fields)).toEqual([]);
    fixture.clock.add(2 * DAY_MS);
    await deliver();
    expect(incidents).toHaveLength(2);
    expect(incidents[1]).toMatchObject({
      short_description: "kv-a/one expires in 6 days (secret, no owner)",
      urgency: "2",
      impact: "2",
    });
    const recovery = { ...(await renewalOfFirstItem(rule.ruleId)), kind: "recovered", reason: "removed" } as Item;
    await notify(rule.ruleId, [recovery]);
    await notify(rule.ruleId, [recovery]);
    // State 6 is "resolved", state 1 is "new".
    expect(incidents.filter(({ state }) => state === "6")).toMatchObject([
      {
        short_description: expect.stringContaining((recovery as { of: AssetItem }).of.name),
        close_code: "Solution provided",
      },
    ]);
    expect((await history(rule.ruleId)).map(({ status }) => status)).toEqual(Array(4).fill("delivered"));
  });

  test("has one incident for an item although the response to its creation was lost", async () => {
    cloud.control.addFault({
      match: { operation: "servicenow.createIncident" },
      action: { kind: "loseAnswer" },
      times: 1,
    });
    cloud.control.addFault({
      match: { operation: "servicenow.findIncidents" },
      action: { kind: "throttle", retryAfterSeconds: 700 },
      times: 1,
    });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const { rule } = await fixture.webhookRule(serviceNow());
    await deliver();
    expect(cloud.control.serviceNow.incidents).toHaveLength(1);
    expect((await history(rule.ruleId))[0]!.status).toBe("delivered");
  });

  test("with a wrong password is retried, and the history shows the response", async () => {
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 3 }]);
    const { rule } = await fixture.webhookRule(serviceNow({ username, password: "not-the-password" }));
    await deliver();
    const [entry] = await history(rule.ruleId);
    expect(entry).toMatchObject({
      status: "failed",
      parts: [{ error: "ServiceNow returned 401.", answer: { status: 401 } }],
    });
    const { rule: oauth } = await fixture.webhookRule(serviceNow({ clientId, clientSecret: "not-the-secret" }));
    const tested = await fixture.instance().test(oauth.ruleId, caller);
    expect(tested.parts[0]).toMatchObject({
      attempts: 1,
      error: expect.stringContaining("The sign-in to ServiceNow failed: 401"),
    });
  });
});

describe("the credentials of a rule that opens incidents", () => {
  const RULE = { name: "r", alertType: "expired" } as const;
  const create = (members: Partial<NewRule>) => fixture.instance().rules.create({ ...RULE, ...members }, caller);

  test.each<[string, () => Partial<NewRule>, string]>([
    ["no routing key", () => ({ deliveryMethod: "pagerDuty" }), "body.credentials.routingKey"],
    ["no address", () => ({ deliveryMethod: "serviceNow", credentials: { username, password } }), "body.webhookUrl"],
    [
      "no credentials",
      () => ({ deliveryMethod: "serviceNow", webhookUrl: receiverUrl("/servicenow") }),
      "body.credentials",
    ],
    ["a username without a password", () => serviceNow({ username }), "body.credentials"],
    ["a client ID without a client secret", () => serviceNow({ username, password, clientId }), "body.credentials"],
    ["a webhook rule", () => ({ ...serviceNow(), deliveryMethod: "webhook" }), "body.credentials"],
  ])("are rejected with %s", async (_name, given, path) => {
    await expect(create(given())).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path }] });
    expect(await fixture.instance().rules.all()).toEqual([]);
  });

  test("are stored only in the key vault, and must be sent again with a change of the URL", async () => {
    const { rule } = await create(serviceNow({ username, password, clientId, clientSecret }));
    const storedSecret = () => JSON.parse(cloud.control.secretValue("kv-lifecycle-service", secretName(rule.ruleId))!);
    expect(storedSecret().credentials).toEqual({ username, password, clientId, clientSecret });
    const { rules } = fixture.instance();
    await rules.change(rule.ruleId, { name: "other" }, caller, undefined);
    const urlChange = rules.change(rule.ruleId, { webhookUrl: "https://evil.example" }, caller, undefined);
    await expect(urlChange).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.credentials" }] });
    const methodChange = rules.change(rule.ruleId, { deliveryMethod: "pagerDuty" }, caller, undefined);
    await expect(methodChange).rejects.toMatchObject({ code: "invalidRequest" });
    expect(storedSecret()).toMatchObject({ url: receiverUrl("/servicenow"), credentials: { password } });
    await rules.change(rule.ruleId, { credentials: { username, password: "another one" } }, caller, undefined);
    expect(storedSecret().credentials).toEqual({ username, password: "another one" });
    await rules.change(
      rule.ruleId,
      { deliveryMethod: "webhook", webhookUrl: "https://hooks.example/x" },
      caller,
      undefined,
    );
    expect(storedSecret().credentials).toBeUndefined();
    const rows = JSON.stringify([await rules.all(), fixture.events]);
    for (const secret of [password, clientSecret, "another one"]) expect(rows).not.toContain(secret);
  });

  test("of PagerDuty are sent to its default URL if none is given", async () => {
    const { rule } = await create({ deliveryMethod: "pagerDuty", credentials: { routingKey: PAGERDUTY_ROUTING_KEY } });
    expect(rule.webhookHost).toBe("events.pagerduty.com");
  });
});

// payload-schemas.ts has the schemas. messages.test.ts tests the cards for Teams.
test("messages for Slack and webhooks match the schemas of their documentation", async () => {
  await fixture.writeAssets(
    "kv-a",
    Array.from({ length: 30 }, (_, index) => ({ name: `s${index}`, expiresInDays: index })),
  );
  const slack = await fixture.webhookRule({ deliveryMethod: "slack" });
  const webhook = await fixture.webhookRule();
  await deliver();
  expect(payloadProblems("slack", JSON.parse(slack.received()[0]!.body))).toEqual([]);
  expect(payloadProblems("cloudEvent", JSON.parse(webhook.received()[0]!.body))).toEqual([]);
});
