import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type * as z from "zod";
import { endpoints } from "../../functions/alerts.ts";
import { deliveryIdOf } from "../../shared/alerts/delivery.ts";
import { newDelivery } from "../../shared/alerts/rule-notifications.ts";
import { parse } from "../../shared/platform/http/parse-request.ts";
import { HOUR_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { startTableProxy, type TableProxy } from "../support/table-proxy.ts";
import { caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests of the alerts' HTTP API. The tests call the endpoints' handlers directly and check each response against the schema
 * that the endpoint declares.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Records the storage requests of a test. */
let proxy: TableProxy;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 44 }, (_, index) => `alertapi${String(index).padStart(2, "0")}`);
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
beforeEach(async () => {
  proxy = await startTableProxy(azurite.connectionString(ACCOUNTS[usedAccounts++]!));
  fixture = openFixture({ connectionString: proxy.connectionString, cloud });
  return () => proxy.stop();
});

interface Call {
  params?: Record<string, string>;
  query?: Record<string, string>;
  body?: unknown;
  ifMatch?: string;
}

/** Calls an endpoint's handler like the HTTP pipeline, and checks the response against its declaration. */
async function call(name: string, { params, query = {}, body, ifMatch }: Call = {}) {
  const endpoint = endpoints.find((candidate) => candidate.name === name)!;
  const reply = await endpoint.handle({
    params: endpoint.params && parse(endpoint.params, params, "path"),
    query: endpoint.query && parse(endpoint.query, query, "query"),
    body: endpoint.body && parse(endpoint.body, body, "body"),
    caller,
    ifMatch,
    actor: undefined as never,
    confirmed: { stepUp: false, approval: false },
    headers: new Headers(),
    url: new URL("http://test/"),
    origin: undefined,
    services: { alerts: fixture.instance(), config: fixture.config } as never,
    admit: undefined as never,
    log: undefined as never,
  });
  const declared = endpoint.responds[reply.status] as z.ZodObject;
  expect(reply.json).toEqual(declared.strict().parse(reply.json));
  // biome-ignore lint/suspicious/noExplicitAny: checked against its schema just now
  return { ...reply, json: reply.json as any };
}

/** The smallest valid rule that sends mails, and one that posts to a webhook. */
const RULE = { name: "Team", alertType: "expiration", recipients: ["team@acme.example"] };
const WEBHOOK = {
  name: "Hook",
  alertType: "expired",
  deliveryMethod: "webhook",
  webhookUrl: "https://hooks.example/a",
};

describe("rules", () => {
  test("a rule can be created with field names in snake_case or in camelCase", async () => {
    const snake = { name: "A", alert_type: "expiration", threshold_days: 14, delivery_method: "email" };
    const first = await call("createAlertRule", { body: { ...snake, recipients: ["a@acme.example"] } });
    const second = await call("createAlertRule", {
      body: {
        name: "B",
        alertType: "expiration",
        thresholdDays: 14,
        deliveryMethod: "email",
        deliveryMode: "digest",
        recipients: ["a@acme.example"],
        enabled: true,
      },
    });
    expect(first.status).toBe(201);
    expect(first.headers).toMatchObject({ Location: `/alerts/rules/${first.json.id}`, ETag: first.json.etag });
    expect(first.json).toMatchObject({ thresholdDays: 14, thresholds: [14], deliveryMode: "immediate", enabled: true });
    expect(second.json).toMatchObject({ thresholdDays: 14, deliveryMode: "digest", digestFrequency: "daily" });
  });

  test("a rule without thresholds gets the threshold of the setting, and duplicate thresholds are removed", async () => {
    expect((await call("createAlertRule", { body: RULE })).json.thresholds).toEqual([30]);
    const several = await call("createAlertRule", { body: { ...RULE, name: "Several", thresholds: [1, 30, 7, 7] } });
    expect(several.json).toMatchObject({ thresholds: [30, 7, 1], thresholdDays: 30 });
  });

  test.each([
    ["no recipients", { recipients: [] }, "body.recipients"],
    ["a bad address", { recipients: ["nobody"] }, "body.recipients.0"],
    ["an unknown type", { alertType: "sometimes" }, "body.alertType"],
    ["a threshold of no days", { thresholdDays: 0 }, "body.thresholdDays"],
    ["a threshold of years", { thresholds: [366] }, "body.thresholds.0"],
    ["contradicting thresholdDays and thresholds", { thresholdDays: 5, thresholds: [30] }, "body.thresholdDays"],
    ["an unknown member", { colour: "red" }, "body.colour"],
    ["an unknown filter", { filters: { colour: "red" } }, "body.filters.colour"],
    ["a filter that can't apply", { filters: { severity: "high" } }, "body.filters.severity"],
    ["a webhook without an address", { deliveryMethod: "teams" }, "body.webhookUrl"],
    ["an ftp address", { deliveryMethod: "slack", webhookUrl: "ftp://hooks.example/" }, "body.webhookUrl"],
    [
      "a password in the address",
      { deliveryMethod: "slack", webhookUrl: "https://a:b@hooks.example/" },
      "body.webhookUrl",
    ],
    ["an empty name", { name: " " }, "body.name"],
  ])("%s is rejected, and the error names the field", async (_name, change, path) => {
    const rejected = call("createAlertRule", { body: { ...RULE, ...change } });
    await expect(rejected).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path }] });
  });

  test("a rule has at most 500 recipients and ten thresholds of at most 365 days", async () => {
    const recipients = Array.from({ length: 501 }, (_, index) => `p${index}@acme.example`);
    const thresholds = Array.from({ length: 11 }, (_, index) => 365 - index);
    const largest = { ...RULE, recipients: recipients.slice(1), thresholds: thresholds.slice(0, 10) };
    expect((await call("createAlertRule", { body: largest })).status).toBe(201);
    for (const change of [{ recipients }, { thresholds }])
      await expect(call("createAlertRule", { body: { ...RULE, ...change } })).rejects.toMatchObject({
        errors: [{ path: `body.${Object.keys(change)[0]}` }],
      });
  });

  test("rule names are unique, ignoring case, and free again after a rename or deletion", async () => {
    const { json: first } = await call("createAlertRule", { body: RULE });
    const sameName = { body: { ...RULE, name: "TEAM" } };
    await expect(call("createAlertRule", sameName)).rejects.toMatchObject({ code: "alreadyExists" });
    await call("updateAlertRule", { params: { rule_id: first.id }, body: { name: "Other" } });
    const { json: second } = await call("createAlertRule", sameName);
    await call("deleteAlertRule", { params: { rule_id: second.id } });
    await call("createAlertRule", sameName);
    const list = await call("listAlertRules");
    expect(list.json.items.map(({ name }: { name: string }) => name)).toEqual(["Other", "TEAM"]);
    expect(list.json.total).toBe(2);
  });

  test("a change updates only the given fields, and a stale If-Match is rejected", async () => {
    const { json: rule } = await call("createAlertRule", { body: { ...RULE, thresholds: [30, 7] } });
    const params = { rule_id: rule.id };
    const changed = await call("updateAlertRule", { params, body: { enabled: false }, ifMatch: rule.etag });
    expect(changed.json).toEqual({
      ...rule,
      enabled: false,
      etag: changed.json.etag,
      updatedAt: changed.json.updatedAt,
    });
    for (const [name, input] of [
      ["updateAlertRule", { body: { enabled: true } }],
      ["deleteAlertRule", {}],
    ] as const) {
      const stale = call(name, { params, ifMatch: rule.etag, ...input });
      await expect(stale).rejects.toMatchObject({ code: "preconditionFailed" });
    }
    expect((await call("getAlertRule", { params })).json).toEqual(changed.json);
    await call("deleteAlertRule", { params, ifMatch: changed.json.etag });
    for (const name of ["getAlertRule", "deleteAlertRule", "testAlertRule"])
      await expect(call(name, { params })).rejects.toMatchObject({ code: "notFound" });
  });

  test.each([undefined, "*"])(
    "concurrent changes and deletions without an ETag (If-Match %s) succeed",
    async (ifMatch) => {
      const { json: rule } = await call("createAlertRule", { body: RULE });
      const params = { rule_id: rule.id };
      const recipients = ["a", "b", "c"].map((name) => `${name}@acme.example`);
      const changes = [{ enabled: false }, { name: "Renamed" }, { deliveryMode: "digest" }, { recipients }];
      await Promise.all(changes.map((body) => call("updateAlertRule", { params, body, ifMatch })));
      const { json } = await call("getAlertRule", { params });
      expect(json).toMatchObject(Object.assign({}, ...changes));
      const removals = await Promise.allSettled([1, 2, 3].map(() => call("deleteAlertRule", { params, ifMatch })));
      for (const removal of removals) {
        if (removal.status === "rejected") expect(removal.reason).toMatchObject({ code: "notFound" });
      }
      expect(removals.some(({ status }) => status === "fulfilled")).toBe(true);
    },
  );

  test("a webhook's signing key is returned only at creation and rotation, and its URL never", async () => {
    const { json: rule } = await call("createAlertRule", { body: WEBHOOK });
    expect(rule).toMatchObject({ webhookHost: "hooks.example" });
    expect(Buffer.from(rule.webhookSecret.slice("whsec_".length), "base64")).toHaveLength(32);
    const params = { rule_id: rule.id };
    const changed = await call("updateAlertRule", { params, body: { webhookUrl: "https://other.example/b" } });
    expect(changed.json.webhookHost).toBe("other.example");
    const responses = [
      changed.json,
      (await call("getAlertRule", { params })).json,
      (await call("listAlertRules")).json,
    ];
    for (const secret of ["whsec_", "webhookUrl", "other.example/b"])
      expect(JSON.stringify(responses)).not.toContain(secret);
    const rotated = await call("rotateAlertRuleSecret", { params });
    expect(rotated.json.webhookSecret).toMatch(/^whsec_/);
    expect(rotated.json.webhookSecret).not.toBe(rule.webhookSecret);
  });

  test("a rule's secret is stored in the service's key vault and deleted with the rule", async () => {
    const { json: rule } = await call("createAlertRule", { body: WEBHOOK });
    const name = `alert-rule-${rule.id.toLowerCase()}`;
    expect(JSON.parse(cloud.control.secretValue("kv-lifecycle-service", name)!)).toMatchObject({
      url: WEBHOOK.webhookUrl,
    });
    await call("deleteAlertRule", { params: { rule_id: rule.id } });
    expect(cloud.control.secretValue("kv-lifecycle-service", name)).toBeUndefined();
  });

  test("a change of a mail rule to a webhook requires a URL", async () => {
    const { json: rule } = await call("createAlertRule", { body: RULE });
    const params = { rule_id: rule.id };
    const withoutUrl = call("updateAlertRule", { params, body: { deliveryMethod: "webhook" } });
    await expect(withoutUrl).rejects.toMatchObject({ code: "invalidRequest", errors: [{ path: "body.webhookUrl" }] });
    const body = { deliveryMethod: "webhook", webhookUrl: "https://hooks.example/c" };
    expect((await call("updateAlertRule", { params, body })).json.webhookSecret).toMatch(/^whsec_/);
  });

  test("a webhook rule is rejected if the service has no key vault, and the error names the setting", async () => {
    fixture = openFixture({
      connectionString: proxy.connectionString,
      cloud,
      environment: { SERVICE_KEY_VAULT_URL: undefined },
    });
    const rejected = call("createAlertRule", { body: WEBHOOK });
    await expect(rejected).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("SERVICE_KEY_VAULT_URL"),
    });
    expect((await call("createAlertRule", { body: RULE })).status).toBe(201);
  });

  test("changes are recorded in the audit log with the previous and the new values", async () => {
    const { json: rule } = await call("createAlertRule", { body: RULE });
    const params = { rule_id: rule.id };
    await call("updateAlertRule", { params, body: { thresholdDays: 5 } });
    await call("deleteAlertRule", { params });
    expect(fixture.events.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual(
      ["created", "changed", "deleted"].flatMap((what) => [`alertRule.${what} intent`, `alertRule.${what} success`]),
    );
    // Event 3 is the success of the change.
    expect(fixture.events[3]).toMatchObject({ before: { thresholds: [30] }, after: { thresholds: [5] } });
  });
});

describe("test deliveries, snoozes, owners and history", () => {
  test("a test delivery returns its result and appears in the history", async () => {
    const { json: rule } = await call("createAlertRule", { body: RULE });
    const tested = await call("testAlertRule", { params: { rule_id: rule.id } });
    expect(tested.json).toMatchObject({
      delivered: true,
      receiver: null,
      delivery: { test: true, status: "delivered" },
    });
    const listed = await call("listAlertHistory");
    expect(listed.json.items).toEqual([tested.json.delivery]);
    expect((await call("getAlertHistoryEntry", { params: { entry_id: tested.json.delivery.id } })).json).toEqual(
      tested.json.delivery,
    );
    await expect(call("getAlertHistoryEntry", { params: { entry_id: "x" } })).rejects.toMatchObject({
      code: "notFound",
    });
  });

  test("a snooze can be created, listed and ended", async () => {
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const { json: rule } = await call("createAlertRule", { body: RULE });
    const body = { rule_id: rule.id, asset_id: "KV-A.secret.ONE", reason: "Planned", until: "2026-12-24" };
    const snooze = await call("createAlertSnooze", { body });
    expect(snooze.json).toMatchObject({
      id: `${rule.id}.kv-a.secret.one`,
      until: "2026-12-25T00:00:00.000Z",
      createdBy: "admin",
    });
    expect((await call("listAlertSnoozes", { query: { rule_id: rule.id } })).json.items).toEqual([snooze.json]);
    await call("deleteAlertSnooze", { params: { snooze_id: snooze.json.id } });
    expect((await call("listAlertSnoozes")).json.total).toBe(0);
    const unknownAsset = { ...body, asset_id: "kv-a.secret.two" };
    await expect(call("createAlertSnooze", { body: unknownAsset })).rejects.toMatchObject({ code: "notFound" });
    const past = { ...body, until: "2026-11-01" };
    await expect(call("createAlertSnooze", { body: past })).rejects.toMatchObject({ errors: [{ path: "body.until" }] });
  });

  test("the owner table can be replaced as a whole with If-Match, and is returned in pages", async () => {
    const empty = await call("listAlertOwners");
    expect(empty.json).toMatchObject({ items: [], total: 0, updatedAt: null });
    const owners = ["c-team", "a-team", "b-team"].map((owner) => ({ owner, address: `${owner}@acme.example` }));
    const replaced = await call("replaceAlertOwners", { body: { owners }, ifMatch: empty.json.etag });
    expect(replaced.json).toMatchObject({ total: 3, updatedBy: "admin", items: [{ owner: "a-team" }, {}, {}] });
    const first = await call("listAlertOwners", { query: { limit: "2" } });
    const second = await call("listAlertOwners", { query: { limit: "2", cursor: first.json.nextCursor } });
    expect([...first.json.items, ...second.json.items]).toEqual(replaced.json.items);
    const stale = call("replaceAlertOwners", { body: { owners: [] }, ifMatch: empty.json.etag });
    await expect(stale).rejects.toMatchObject({ code: "preconditionFailed" });
    for (const [owner, address] of [
      ["a\nb", "a@acme.example"],
      ["a", "a@acme.example,b@acme.example"],
    ])
      await expect(call("replaceAlertOwners", { body: { owners: [{ owner, address }] } })).rejects.toMatchObject({
        code: "invalidRequest",
      });
  });

  test("the history returns the number of items of each recipient, and why they were not sent to an owner", async () => {
    await call("replaceAlertOwners", { body: { owners: [{ owner: "ann", address: "ann@acme.example" }] } });
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 5, tags: { owner: "Ann" } },
      { name: "two", expiresInDays: 5 },
    ]);
    await call("createAlertRule", { body: RULE });
    const alerts = fixture.instance();
    await alerts.evaluate();
    await fixture.handleAllMessages(alerts);
    expect((await call("listAlertHistory")).json.items[0].recipients).toMatchObject([
      {
        recipient: "ann@acme.example",
        owner: "Ann",
        reason: null,
        itemsTotal: 1,
        status: "delivered",
        replaced: false,
      },
      {
        recipient: "team@acme.example",
        owner: null,
        reason: "1 because the owner tag is missing",
        itemsTotal: 1,
        notBefore: null,
      },
    ]);
  });

  /**
   * Creates 60 deliveries, one per hour, alternating between two rules. Every third one failed. Returns the ids, newest first.
   */
  async function createSixtyDeliveries(): Promise<{ ids: string[]; rules: string[] }> {
    const alerts = fixture.instance();
    const rules = [await fixture.mailRule(), await fixture.mailRule()].map(({ rule }) => rule);
    const ids: string[] = [];
    for (let hour = 0; hour < 60; hour++) {
      const rule = rules[hour % 2]!;
      const createdAt = new Date(Date.parse(START) + hour * 3_600_000);
      const deliveryId = deliveryIdOf(rule.ruleId, createdAt, []);
      const delivery = newDelivery(rule, { deliveryId, createdAt: createdAt.toISOString(), items: [] });
      await alerts.history.record(delivery);
      await alerts.history.updateLists({ ...delivery, status: hour % 3 === 0 ? "failed" : "delivered" });
      ids.unshift(deliveryId);
    }
    return { ids, rules: rules.map(({ ruleId }) => ruleId) };
  }

  test("the history can be filtered by date, status and rule, and paging by cursor returns every entry once", async () => {
    const { ids, rules } = await createSixtyDeliveries();
    const listed = async (query: Record<string, string>) => (await call("listAlertHistory", { query })).json;
    const idsOf = (json: { items: { id: string }[] }) => json.items.map(({ id }) => id);
    expect(idsOf(await listed({}))).toEqual(ids);
    expect((await listed({ status: "failed" })).total).toBe(20);
    expect((await listed({ rule_id: rules[0]! })).total).toBe(30);
    expect((await listed({ rule_id: rules[0]!, status: "failed" })).total).toBe(10);
    expect((await listed({ status: "pending" })).items).toEqual([]);
    const day = await listed({ start_date: "2026-11-22", end_date: "2026-11-22" });
    // START is 10:00, so the second day has the hours 14 to 37.
    expect(idsOf(day)).toEqual(ids.slice(60 - 38, 60 - 14));
    const pagedIds: string[] = [];
    for (let query: Record<string, string> | undefined = { limit: "7", status: "delivered" }; query; ) {
      const page = await listed(query);
      expect(page.total).toBe(40);
      pagedIds.push(...idsOf(page));
      query = page.nextCursor ? { limit: "7", status: "delivered", cursor: page.nextCursor } : undefined;
    }
    expect(pagedIds).toEqual(ids.filter((_, index) => (59 - index) % 3 !== 0));
    expect(idsOf(await listed({ offset: "58" }))).toEqual(ids.slice(58));
    const cursorOfOtherFilters = (await listed({ limit: "1" })).nextCursor;
    await expect(listed({ cursor: cursorOfOtherFilters, status: "failed" })).rejects.toMatchObject({
      code: "invalidCursor",
    });
    await expect(listed({ status: "sent" })).rejects.toMatchObject({ code: "invalidRequest" });
  });

  test("a page by cursor costs one storage request, whatever the filters", async () => {
    const { rules } = await createSixtyDeliveries();
    const filters: Record<string, string>[] = [
      {},
      { status: "delivered" },
      { rule_id: rules[0]! },
      { rule_id: rules[1]!, status: "delivered" },
    ];
    for (const filter of filters) {
      const first = await call("listAlertHistory", { query: { ...filter, limit: "5" } });
      proxy.requests.length = 0;
      await call("listAlertHistory", { query: { ...filter, limit: "5", cursor: first.json.nextCursor } });
      expect(proxy.requests).toHaveLength(1);
    }
  });

  test("a purge removes entries older than the retention from the history and its lists", async () => {
    const { ids } = await createSixtyDeliveries();
    const store = fixture.instance().history.store();
    expect(await store.stats()).toEqual({ total: 60, oldest: START });
    const before = new Date(Date.parse(START) + 2 * DAY_MS);
    expect(await store.purge({ retentionDays: 1, before }, caller)).toEqual({
      removed: 48,
      retentionDays: 1,
      more: false,
    });
    expect((await call("listAlertHistory")).json.items.map(({ id }: { id: string }) => id)).toEqual(ids.slice(0, 12));
    expect((await call("listAlertHistory", { query: { status: "failed" } })).json.total).toBe(4);
    expect(await store.stats()).toEqual({ total: 12, oldest: before.toISOString() });
    await expect(call("getAlertHistoryEntry", { params: { entry_id: ids.at(-1)! } })).rejects.toMatchObject({
      code: "notFound",
    });
  });
});

describe("table requests of an evaluation", () => {
  const countRequests = async (work: () => Promise<void>): Promise<number> => {
    proxy.requests.length = 0;
    await work();
    return proxy.requests.length;
  };

  test("their number depends on the assets to notify of, not on the assets of the inventory", async () => {
    await fixture.mailRule();
    await fixture.mailRule({ filters: { type: "secret" } });
    const small = Array.from({ length: 20 }, (_, index) => ({ name: `s-${index}`, expiresInDays: 40 + index }));
    const large = Array.from({ length: 2000 }, (_, index) => ({
      name: `t-${index}`,
      expiresInDays: 40.5 + index / 40,
    }));
    const evaluate = () => fixture.instance().evaluate();
    /** Requests of evaluations without anything to notify of. */
    const idleRequests: number[] = [];
    /** Requests of evaluations at which assets reach a threshold. */
    const notifyingRequests: number[] = [];
    for (const assets of [small, [...small, ...large]]) {
      await fixture.writeAssets("kv-a", assets);
      fixture.clock.set(START);
      await evaluate();
      fixture.clock.add(HOUR_MS);
      idleRequests.push(await countRequests(evaluate));
    }
    // States, rules, snoozes, vaults, scope, known vault versions, overdue deliveries, the marker of a restore.
    expect(idleRequests).toEqual([8, 8]);
    for (const days of [10.01, 10.9, 14, 24]) {
      fixture.clock.set(new Date(Date.parse(START) + days * DAY_MS));
      notifyingRequests.push(await countRequests(evaluate));
    }
    // Per rule with items: the index range, its notification rows, the commit, the delivery, its list entries, the state after
    // the commit, and a transaction per 100 rows: a notification and a tracked alert per asset, for 37, 127 and 410 assets. The
    // first evaluation creates the tables.
    expect(notifyingRequests.slice(1)).toEqual([8 + 2 * (6 + 1), 8 + 2 * (6 + 3), 8 + 2 * (6 + 9)]);
  });
});
