import { TableClient, type TableEntity } from "@azure/data-tables";
import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { NewViolation } from "../../shared/alerts/alerts.ts";
import type { ViolationReading } from "../../shared/alerts/violation-items.ts";
import { MINUTE_MS } from "../../shared/platform/time.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { assetNamesIn, caller, DAY_MS, type Fixture, openFixture, START } from "./alerts-setup.ts";

/**
 * Tests which items an alert rule notifies of, and when. The rules are evaluated by a timer; most tests call the evaluation
 * directly at certain days after START.
 */

let azurite: TestStorage;
let cloud: Cloud;
/** Storage accounts: each test takes the next unused one. */
const ACCOUNTS = Array.from({ length: 44 }, (_, index) => `alerts${String(index).padStart(2, "0")}`);
let usedAccounts = 0;
let fixture: Fixture;

/** Creates a fixture on the next unused storage account. */
const open = (options: Partial<Parameters<typeof openFixture>[0]> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[usedAccounts++]!), cloud, ...options });

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
  fixture = open();
});

/** Evaluates the rules and sends the deliveries, at a number of days after START. */
async function run(day: number) {
  fixture.clock.set(new Date(Date.parse(START) + day * DAY_MS));
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.handleVisibleMessages(alerts);
}

/** Compliance results without changes. tracked-alerts.test.ts tests resolved violations. */
const noViolations: ViolationReading = {
  vaults: 0,
  changedAt: "",
  has: () => false,
  changedSince: () => false,
  findExisting: async () => new Map(),
};

/** Returns the assets that each mail lists. */
const notified = (mails: readonly { plainText?: string }[]) =>
  mails.map(({ plainText }) => assetNamesIn(plainText ?? ""));

describe("an immediate rule notifies of", () => {
  test("each asset once per threshold, in one message per run, most urgent first", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [
      { name: "far", expiresInDays: 40 },
      { name: "later", expiresInDays: 25.5 },
      { name: "soon", expiresInDays: 3.5 },
      { name: "never" },
    ]);
    await run(0);
    await run(0.1);
    expect(notified(mails())).toEqual([["kv-a/soon", "kv-a/later"]]);
    // The thresholds are 30, 7 and 1 days: `soon` reaches 1 on day 3, `far` 30 on day 11, and `later` 7 on day 20.
    await run(3);
    await run(11);
    await run(20);
    expect(notified(mails()).slice(1)).toEqual([["kv-a/soon"], ["kv-a/far"], ["kv-a/later"]]);
    expect(mails()[0]!.plainText).toContain("Notified because: it expires within 7 days");
  });

  test("an asset that expires between two runs", async () => {
    const { mails } = await fixture.mailRule({ thresholds: [1] });
    await fixture.writeAssets("kv-a", [{ name: "brief", expiresInDays: 2.5 }]);
    await run(0);
    expect(mails()).toHaveLength(0);
    await run(4);
    expect(notified(mails())).toEqual([["kv-a/brief"]]);
    expect(mails()[0]!.subject).toContain("expired 1 day ago");
  });

  test("a certificate with a renewer only once its renewal is late, and again when it is renewed", async () => {
    const expiring = await fixture.mailRule();
    const late = await fixture.mailRule({ alertType: "lateRenewal" });
    /** Members of a certificate whose renewal is late after this number of days. */
    const lateAfter = (windowEndsInDays: number) => ({ type: "certificate" as const, windowEndsInDays });
    const certificates = [
      { name: "short", expiresInDays: 6.5, ...lateAfter(4.5) },
      { name: "long", expiresInDays: 60, ...lateAfter(2.5) },
      { name: "on-time", expiresInDays: 20, ...lateAfter(15) },
    ];
    await fixture.writeAssets("kv-a", [...certificates, { name: "password", expiresInDays: 20 }]);
    await run(0);
    await run(2);
    expect([notified(expiring.mails()), notified(late.mails())]).toEqual([[["kv-a/password"]], []]);
    // `long` is late on day 2.5, and reaches 30 days on day 30. `short` is late and within 7 days on day 4.5.
    await run(3);
    await run(5);
    expect(notified(late.mails())).toEqual([["kv-a/long"], ["kv-a/short"]]);
    expect(notified(expiring.mails()).slice(1)).toEqual([["kv-a/short"]]);
    expect(late.mails()[0]!.plainText).toContain("was not renewed in time and expires in 57 days");
    expect(late.mails()[0]!.plainText).toContain("Renewer: Acmebot");
    // The new version expires within the rule's thresholds too, but its renewer has time until day 9.
    const renewed = { name: "short", expiresInDays: 11, ...lateAfter(9) };
    await fixture.writeAssets("kv-a", [renewed, ...certificates.slice(1), { name: "password", expiresInDays: 20 }]);
    await run(5.5);
    await run(5.6);
    expect(expiring.mails().at(-1)!.plainText).toContain("was renewed");
    expect(late.mails().at(-1)!.plainText).toContain("was renewed");
    expect([expiring.mails().length, late.mails().length]).toEqual([3, 3]);
    // A window that ends earlier makes the renewal late at once, although no certificate changed.
    await fixture.writeAssets("kv-a", [
      { ...renewed, ...lateAfter(6) },
      ...certificates.slice(1),
      { name: "password", expiresInDays: 20 },
    ]);
    await run(6.5);
    expect(notified(late.mails()).at(-1)).toEqual(["kv-a/short"]);
    // Someone removes the tag of the renewer: the renewal is no longer late, and the days until expiry matter.
    const { windowEndsInDays: _, ...withoutRenewer } = { ...renewed };
    await fixture.writeAssets("kv-a", [
      withoutRenewer,
      ...certificates.slice(1),
      { name: "password", expiresInDays: 20 },
    ]);
    const before = late.mails().length;
    await run(7);
    expect(late.mails().length).toBe(before + 1);
  });

  test("an asset that reached a threshold while its rows could not be read, and other assets meanwhile", async () => {
    const { mails } = await fixture.mailRule({ thresholds: [7] });
    await fixture.writeAssets("kv-a", [
      { name: "broken", expiresInDays: 8.5 },
      { name: "other", expiresInDays: 8.5 },
    ]);
    await run(0);
    const table = TableClient.fromConnectionString(fixture.connectionString, "Assets", {
      allowInsecureConnection: true,
    });
    const stored: TableEntity[] = [];
    for await (const row of table.listEntities()) if (row.name === "broken") stored.push(row as unknown as TableEntity);
    for (const { partitionKey, rowKey } of stored)
      await table.upsertEntity({ partitionKey, rowKey, enabled: "perhaps" }, "Replace");
    await run(2);
    expect(notified(mails())).toEqual([["kv-a/other"]]);
    for (const row of stored) await table.upsertEntity(row, "Replace");
    await run(2.1);
    expect(notified(mails())).toEqual([["kv-a/other"], ["kv-a/broken"]]);
  });

  test("a rule's items although the state of another rule can't be read, and the run fails", async () => {
    const [{ rule: broken }, { mails }] = [await fixture.mailRule(), await fixture.mailRule()];
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 20 }]);
    const table = TableClient.fromConnectionString(fixture.connectionString, "AlertStates", {
      allowInsecureConnection: true,
    });
    await table.createTable();
    await table.upsertEntity({ partitionKey: "states", rowKey: broken.ruleId, at: 1 }, "Replace");
    await expect(fixture.instance().evaluate()).rejects.toThrow(
      `states / ${broken.ruleId} of AlertStates can't be read`,
    );
    await fixture.handleVisibleMessages(fixture.instance());
    expect(mails()).toHaveLength(1);
  });

  test("a new asset that is already within a threshold", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "first", expiresInDays: 20 }]);
    await run(0);
    await fixture.writeAssets("kv-a", [
      { name: "first", expiresInDays: 20 },
      { name: "second", expiresInDays: 5 },
    ]);
    await run(0.01);
    await fixture.writeAssets("kv-b", [{ name: "third", expiresInDays: 6 }]);
    await run(0.02);
    expect(notified(mails())).toEqual([["kv-a/first"], ["kv-a/second"], ["kv-b/third"]]);
  });

  test("an asset again after its expiry changed, not after its tags changed", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 20 }]);
    await run(0);
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 20, tags: { owner: "ann" } }]);
    await run(0.01);
    expect(mails()).toHaveLength(1);
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 22 }]);
    await run(0.02);
    expect(mails()).toHaveLength(2);
  });

  test("a disabled asset only after it is enabled", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "off", expiresInDays: 5, enabled: false }]);
    await run(0);
    expect(mails()).toHaveLength(0);
    await fixture.writeAssets("kv-a", [{ name: "off", expiresInDays: 5 }]);
    await run(0.01);
    expect(notified(mails())).toEqual([["kv-a/off"]]);
  });

  test("the assets of a vault that was removed from the inventory and found again", async () => {
    const { mails } = await fixture.mailRule({ thresholds: [7] });
    const assets = [{ name: "one", expiresInDays: 10 }];
    await fixture.writeAssets("kv-b", [{ name: "other", expiresInDays: 5 }]);
    await fixture.writeAssets("kv-a", assets);
    await run(0);
    await fixture.writeAssets("kv-a", []);
    // Removes the row of the vault itself.
    await fixture.tables.remove({ table: "Vaults" } as never, "vaults", "n!kv-a");
    await run(1);
    await run(5);
    await fixture.writeAssets("kv-a", assets);
    await run(5.01);
    expect(notified(mails())).toEqual([["kv-b/other"], ["kv-a/one"]]);
  });

  test("1,100 assets in two messages of 1,000 and 100 items", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets(
      "kv-a",
      Array.from({ length: 1100 }, (_, index) => ({ name: `s-${index}`, expiresInDays: 1 + index / 100 })),
    );
    await run(0);
    const names = notified(mails());
    // A mail contains the most urgent items that fit, and the number of the others.
    const unlistedCounts = mails().map(({ plainText }) =>
      Number(/^(\d+) more items? (?:is|are) not shown/m.exec(plainText!)?.[1] ?? 0),
    );
    expect(names.map((list, index) => list.length + unlistedCounts[index]!)).toEqual([1000, 100]);
    expect(names[0]!.length).toBeGreaterThan(100);
    expect(new Set(names.flat()).size).toBe(names.flat().length);
    expect(names[0]![0]).toBe("kv-a/s-0");
    expect(names[1]!.at(-1)).toBe("kv-a/s-1099");
  });

  test.each([
    ["vault", { vault: "KV-A" }, ["kv-a/one"]],
    ["type", { type: "key" as const }, ["kv-b/two"]],
    ["subscription", { subscription: "22222222-2222-4222-8222-222222222222" }, ["kv-c/three"]],
    ["tag", { tag: "env=prod" }, ["kv-b/two"]],
    ["a tag's name", { tag: "env" }, ["kv-a/one", "kv-b/two"]],
    ["owner", { owner: "ann" }, ["kv-c/three"]],
  ])("only assets that match a filter by %s", async (_name, filters, expected) => {
    const { mails } = await fixture.mailRule({ filters });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5, tags: { env: "test" } }]);
    await fixture.writeAssets("kv-b", [{ name: "two", type: "key", expiresInDays: 6, tags: { env: "prod" } }]);
    await fixture.writeAssets(
      "kv-c",
      [{ name: "three", expiresInDays: 7, tags: { owner: "ann" } }],
      "22222222-2222-4222-8222-222222222222",
    );
    await run(0);
    await run(5);
    expect([...new Set(notified(mails()).flat())]).toEqual(expected);
  });
});

describe("a rule of type", () => {
  test("expired notifies once of every expired asset, at the first run and later", async () => {
    const { mails } = await fixture.mailRule({ alertType: "expired", thresholds: undefined });
    await fixture.writeAssets("kv-a", [
      { name: "long-ago", expiresInDays: -300 },
      { name: "next", expiresInDays: 1.5 },
    ]);
    await run(0);
    await run(1);
    await run(2);
    await run(3);
    expect(notified(mails())).toEqual([["kv-a/long-ago"], ["kv-a/next"]]);
  });

  test("expiration ignores assets that expired before its first run", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "long-ago", expiresInDays: -300 }]);
    await run(0);
    await run(1);
    expect(mails()).toHaveLength(0);
  });

  test("complianceViolation notifies once of each new violation of at least the filter's severity", async () => {
    const violation = (
      id: string,
      severity: NewViolation["severity"],
      firstSeenAt = "2026-11-21T11:00:00.000Z",
    ): NewViolation => ({
      id,
      checkId: "secret-expiry",
      title: "Secrets expire",
      severity,
      resourceId: `kv-a.secret.${id}`,
      resourceType: "secret",
      vaultName: "kv-a",
      subscriptionId: "s",
      firstSeenAt,
    });
    /**
     * All violations so far, oldest first. A cursor is the number of violations before it. Each page repeats the last of these,
     * as the compliance module may.
     */
    const allViolations: NewViolation[] = [violation("old", "high", "2026-11-21T09:59:59.000Z")];
    fixture = open({
      violations: {
        async newViolations(cursor, limit) {
          const from = cursor === undefined ? allViolations.length : Math.max(0, Number(cursor) - 1);
          const violations = allViolations.slice(from, from + limit);
          return {
            violations,
            cursor: String(from + violations.length),
            more: from + violations.length < allViolations.length,
          };
        },
        currentViolations: async () => ({ violations: [] }),
        readViolations: async () => noViolations,
      },
    });
    const { mails } = await fixture.mailRule({
      alertType: "complianceViolation",
      thresholds: undefined,
      filters: { severity: "high" },
    });
    await run(0);
    allViolations.push(violation("new", "high"), violation("minor", "low"));
    await run(0.1);
    allViolations.push(violation("newer", "critical"));
    await run(0.2);
    await run(0.3);
    expect(notified(mails())).toEqual([["kv-a/new"], ["kv-a/newer"]]);
  });
});

describe("digests", () => {
  test("a daily digest at 06:00 UTC contains the items since the previous one", async () => {
    const { mails } = await fixture.mailRule({ deliveryMode: "digest" });
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 20 },
      { name: "two", expiresInDays: 31 },
    ]);
    await run(0.1);
    expect(mails()).toHaveLength(0);
    for (let hour = 0; hour < 72; hour += 3) await run(hour / 24);
    expect(notified(mails())).toEqual([["kv-a/one"], ["kv-a/two"]]);
    expect(mails()[0]!.subject).toMatch(/^Digest: /);
  });

  test("a weekly digest is sent on Monday", async () => {
    // START is a Saturday.
    const { mails } = await fixture.mailRule({ deliveryMode: "digest", digestFrequency: "weekly" });
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 20 }]);
    await run(1);
    expect(mails()).toHaveLength(0);
    await run(2);
    expect(notified(mails())).toEqual([["kv-a/one"]]);
    for (let day = 3; day < 16; day++) await run(day);
    expect(notified(mails()).slice(1)).toEqual([]);
    // The asset reached the next threshold, 7 days, on day 13. The next Monday is day 16.
    await run(16);
    expect(notified(mails()).slice(1)).toEqual([["kv-a/one"]]);
  });
});

describe("changes of rules, concurrent runs and failures", () => {
  test("an additional threshold adds items and does not repeat earlier ones", async () => {
    const { rule, mails } = await fixture.mailRule({ thresholds: [7] });
    await fixture.writeAssets("kv-a", [
      { name: "near", expiresInDays: 5 },
      { name: "far", expiresInDays: 20 },
    ]);
    await run(0);
    await fixture.instance().rules.change(rule.ruleId, { thresholds: [30, 7] }, caller, undefined);
    await run(0.01);
    await run(0.02);
    expect(notified(mails())).toEqual([["kv-a/near"], ["kv-a/far"]]);
  });

  test("a rule that is enabled again ignores assets that expired while it was disabled", async () => {
    const { rule, mails } = await fixture.mailRule({ thresholds: [7] });
    await fixture.writeAssets("kv-a", [
      { name: "gone", expiresInDays: 8 },
      { name: "near", expiresInDays: 22 },
    ]);
    await run(0);
    await fixture.instance().rules.change(rule.ruleId, { enabled: false }, caller, undefined);
    await run(10);
    await run(20);
    expect(mails()).toHaveLength(0);
    await fixture.instance().rules.change(rule.ruleId, { enabled: true }, caller, undefined);
    await run(20.01);
    expect(notified(mails())).toEqual([["kv-a/near"]]);
  });

  test("pending deliveries are cancelled when their rule is deleted", async () => {
    const { rule, mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    await alerts.evaluate();
    await alerts.rules.remove(rule.ruleId, caller, undefined);
    await fixture.handleVisibleMessages(alerts);
    expect(mails()).toHaveLength(0);
    const page = await alerts.history.list({ ruleId: rule.ruleId }, { limit: 10, offset: 0, cursor: undefined });
    expect(page.items.map(({ status }) => status)).toEqual(["cancelled"]);
  });

  test("three concurrent runs notify of each asset once, and none fails", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.webhookRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    // The runs conflict in the first round when they insert the rules' rows, in the second when they replace them.
    for (const names of [
      ["one", "of-0.1"],
      ["one", "of-0.1", "of-0.2"],
    ]) {
      fixture.clock.add(0.1 * DAY_MS);
      await fixture.writeAssets(
        "kv-a",
        names.map((name) => ({ name, expiresInDays: 5 })),
      );
      await Promise.all([alerts.evaluate(), fixture.instance().evaluate(), fixture.instance().evaluate()]);
      await fixture.handleVisibleMessages(alerts);
    }
    expect(notified(mails()).flat().sort()).toEqual(["kv-a/of-0.1", "kv-a/of-0.2", "kv-a/one"]);
  });

  test("a rule that can't be evaluated fails the run after the other rules were evaluated", async () => {
    const violations = {
      newViolations: () => Promise.reject(new Error("the table is unavailable")),
      currentViolations: async () => ({ violations: [] }),
      readViolations: async () => noViolations,
    };
    const fixture = open({ violations });
    const broken = await fixture.mailRule({ alertType: "complianceViolation", thresholds: undefined });
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    await expect(alerts.evaluate()).rejects.toThrow("the table is unavailable");
    await fixture.handleVisibleMessages(alerts);
    expect(mails()).toHaveLength(1);
    expect(broken.mails()).toHaveLength(0);
  });

  test("an item that comes up while notifications are turned off is sent after they are turned on", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 31 }]);
    await run(0);
    fixture.settings.enableNotifications = false;
    await run(2);
    expect(mails()).toHaveLength(0);
    fixture.settings.enableNotifications = true;
    await run(3);
    expect(notified(mails())).toEqual([["kv-a/one"]]);
  });
});

describe("snoozes", () => {
  test("the evaluation goes back to the start of the earliest snooze with filters that ended since the last one", () => {
    const dayAfterStart = (days: number) => new Date(Date.parse(START) + days * DAY_MS);
    const snooze = (from: number, type: "secret" | "key") => ({
      filters: { type },
      reason: "x",
      createdBy: "ada",
      createdAt: dayAfterStart(from).toISOString(),
      until: dayAfterStart(10).toISOString(),
    });
    const { snoozes } = fixture.instance();
    // Both snoozes ended on day 10. The last evaluation was on day 9, and this one is on day 11. "r" is the ID of the rule.
    const { suppressedSince } = snoozes.split(
      [snooze(3, "secret"), snooze(5, "key")],
      "r",
      dayAfterStart(9),
      dayAfterStart(11),
    );
    expect(suppressedSince).toEqual(dayAfterStart(3));
  });

  test("a snoozed asset causes a notification when the snooze ends, for the lowest threshold reached meanwhile", async () => {
    const { rule, mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [
      { name: "one", expiresInDays: 31 },
      { name: "two", expiresInDays: 31 },
    ]);
    await run(0);
    const until = new Date(Date.parse(START) + 26 * DAY_MS);
    const request = { ruleId: rule.ruleId, assetId: "kv-a.secret.one", reason: "A change is planned", until };
    await fixture.instance().snoozes.create(request, caller);
    await expect(fixture.instance().snoozes.create(request, caller)).rejects.toMatchObject({ code: "alreadyExists" });
    await run(2);
    await run(25);
    expect(notified(mails())).toEqual([["kv-a/two"], ["kv-a/two"]]);
    await run(27);
    await run(27.5);
    expect(notified(mails()).slice(2)).toEqual([["kv-a/one"]]);
    expect(mails()[2]!.plainText).toContain("Notified because: it expires within 7 days");
  });

  test("the end of a snooze causes no notification for an asset that was renewed", async () => {
    const { rule, mails } = await fixture.mailRule();
    const { snoozes } = fixture.instance();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const until = new Date(Date.parse(START) + 2 * DAY_MS);
    await snoozes.create({ ruleId: rule.ruleId, assetId: "kv-a.secret.one", reason: "Renewed soon", until }, caller);
    await run(0);
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 365 }]);
    await run(3);
    expect(mails()).toEqual([]);
  });

  test("ending a snooze takes effect at the next run", async () => {
    const { rule, mails } = await fixture.mailRule();
    await fixture.writeAssets("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const until = new Date(Date.parse(START) + 20 * DAY_MS);
    const { snoozes } = fixture.instance();
    await snoozes.create({ ruleId: rule.ruleId, assetId: "kv-a.secret.one", reason: "Wait", until }, caller);
    await run(0.1);
    expect(mails()).toHaveLength(0);
    fixture.clock.add(MINUTE_MS);
    await snoozes.end(`${rule.ruleId}.kv-a.secret.one`, caller);
    await run(0.2);
    expect(notified(mails())).toEqual([["kv-a/one"]]);
    await expect(snoozes.end(`${rule.ruleId}.kv-a.secret.one`, caller)).rejects.toMatchObject({ code: "notFound" });
  });
});
