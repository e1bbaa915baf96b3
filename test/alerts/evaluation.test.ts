import type { Cloud } from "simulated-cloud/cloud.ts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { NewViolation } from "../../shared/alerts/alerts.ts";
import type { ViolationReading } from "../../shared/alerts/violation-items.ts";
import { liveIn } from "../azure/live-cloud.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { caller, DAY_MS, type Fixture, namedIn, openFixture, START } from "./alerts-setup.ts";

let azurite: TestStorage;
let cloud: Cloud;
const ACCOUNTS = Array.from({ length: 44 }, (_, index) => `alerts${String(index).padStart(2, "0")}`);
let next = 0;
let fixture: Fixture;

const open = (options: Partial<Parameters<typeof openFixture>[0]> = {}) =>
  openFixture({ connectionString: azurite.connectionString(ACCOUNTS[next++]!), cloud, ...options });

beforeAll(async () => {
  azurite = await openStorage(ACCOUNTS);
  ({ cloud } = await liveIn({ company: { subscriptions: [] } }));
});
afterAll(async () => {
  await cloud.stop();
  await azurite.stop();
});
beforeEach(() => {
  cloud.control.clearFaults();
  fixture = open();
});

/** Evaluates the rules and sends the deliveries. */
async function run(now?: number) {
  if (now !== undefined) fixture.clock.set(new Date(Date.parse(START) + now * DAY_MS));
  const alerts = fixture.instance();
  await alerts.evaluate();
  await fixture.drain(alerts);
}

/** Compliance results without changes. tracked-alerts.test.ts tests resolved violations. */
const noViolations: ViolationReading = {
  vaults: 0,
  changedAt: "",
  has: () => false,
  changedSince: () => false,
  standing: async () => new Map(),
};

const notified = (mails: readonly { plainText?: string }[]) => mails.map(({ plainText }) => namedIn(plainText ?? ""));

describe("an immediate rule notifies of", () => {
  test("each asset once per threshold, in one message per run, most urgent first", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [
      { name: "far", expiresInDays: 40 },
      { name: "later", expiresInDays: 25.5 },
      { name: "soon", expiresInDays: 3.5 },
      { name: "never" },
    ]);
    await run(0);
    await run(0.1);
    expect(notified(mails())).toEqual([["kv-a/soon", "kv-a/later"]]);
    await run(3);
    await run(11);
    await run(20);
    expect(notified(mails()).slice(1)).toEqual([["kv-a/soon"], ["kv-a/far"], ["kv-a/later"]]);
    expect(mails()[0]!.plainText).toContain("Threshold: 7 days");
  });

  test("an asset that expires between two runs", async () => {
    const { mails } = await fixture.mailRule({ thresholds: [1] });
    await fixture.scanned("kv-a", [{ name: "brief", expiresInDays: 2.5 }]);
    await run(0);
    expect(mails()).toHaveLength(0);
    await run(4);
    expect(notified(mails())).toEqual([["kv-a/brief"]]);
    expect(mails()[0]!.subject).toContain("expired 1 day ago");
  });

  test("a new asset that is already within a threshold", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "first", expiresInDays: 20 }]);
    await run(0);
    await fixture.scanned("kv-a", [
      { name: "first", expiresInDays: 20 },
      { name: "second", expiresInDays: 5 },
    ]);
    await run(0.01);
    await fixture.scanned("kv-b", [{ name: "third", expiresInDays: 6 }]);
    await run(0.02);
    expect(notified(mails())).toEqual([["kv-a/first"], ["kv-a/second"], ["kv-b/third"]]);
  });

  test("an asset again only if its expiry changes", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 20 }]);
    await run(0);
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 20, tags: { owner: "ann" } }]);
    await run(0.01);
    expect(mails()).toHaveLength(1);
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 22 }]);
    await run(0.02);
    expect(mails()).toHaveLength(2);
  });

  test("a disabled asset only after it is enabled", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "off", expiresInDays: 5, enabled: false }]);
    await run(0);
    expect(mails()).toHaveLength(0);
    await fixture.scanned("kv-a", [{ name: "off", expiresInDays: 5 }]);
    await run(0.01);
    expect(notified(mails())).toEqual([["kv-a/off"]]);
  });

  test("all assets of a vault that returns to the scope", async () => {
    const { mails } = await fixture.mailRule({ thresholds: [7] });
    const assets = [{ name: "one", expiresInDays: 10 }];
    await fixture.scanned("kv-b", [{ name: "other", expiresInDays: 5 }]);
    await fixture.scanned("kv-a", assets);
    await run(0);
    await fixture.scanned("kv-a", []);
    await fixture.tables.remove({ table: "Vaults" } as never, "vaults", "n!kv-a");
    await run(1);
    await run(5);
    await fixture.scanned("kv-a", assets);
    await run(5.01);
    expect(notified(mails())).toEqual([["kv-b/other"], ["kv-a/one"]]);
  });

  test("many assets in several messages", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned(
      "kv-a",
      Array.from({ length: 1100 }, (_, index) => ({ name: `s-${index}`, expiresInDays: 1 + index / 100 })),
    );
    await run(0);
    const names = notified(mails());
    // A mail contains the most urgent items that fit, and the number of the others.
    const counted = mails().map(({ plainText }) =>
      Number(/^(\d+) more items? (?:is|are) not shown/m.exec(plainText!)?.[1] ?? 0),
    );
    expect(names.map((list, index) => list.length + counted[index]!)).toEqual([1000, 100]);
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
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5, tags: { env: "test" } }]);
    await fixture.scanned("kv-b", [{ name: "two", type: "key", expiresInDays: 6, tags: { env: "prod" } }]);
    await fixture.scanned(
      "kv-c",
      [{ name: "three", expiresInDays: 7, tags: { owner: "ann" } }],
      "22222222-2222-4222-8222-222222222222",
    );
    await run(0);
    await run(5);
    expect([...new Set(notified(mails()).flat())]).toEqual(expected);
  });
});

describe("other rules", () => {
  test("expired notifies once of every expired asset, at the first run and later", async () => {
    const { mails } = await fixture.mailRule({ alertType: "expired", thresholds: undefined });
    await fixture.scanned("kv-a", [
      { name: "long-ago", expiresInDays: -300 },
      { name: "next", expiresInDays: 1.5 },
    ]);
    await run(0);
    await run(1);
    await run(2);
    await run(3);
    expect(notified(mails())).toEqual([["kv-a/long-ago"], ["kv-a/next"]]);
  });

  test("an expiration rule ignores assets that expired before its first run", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "long-ago", expiresInDays: -300 }]);
    await run(0);
    await run(1);
    expect(mails()).toHaveLength(0);
  });

  test("complianceViolation notifies once of each new violation with its severity", async () => {
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
    const arisen: NewViolation[] = [violation("old", "high", "2026-11-21T09:59:59.000Z")];
    fixture = open({
      violations: {
        async newViolations(cursor, limit) {
          const from = cursor === undefined ? arisen.length : Math.max(0, Number(cursor) - 1);
          const violations = arisen.slice(from, from + limit);
          return {
            violations,
            cursor: String(from + violations.length),
            more: from + violations.length < arisen.length,
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
    arisen.push(violation("new", "high"), violation("minor", "low"));
    await run(0.1);
    arisen.push(violation("newer", "critical"));
    await run(0.2);
    await run(0.3);
    expect(notified(mails())).toEqual([["kv-a.secret.new"], ["kv-a.secret.newer"]]);
  });
});

describe("digests", () => {
  test("a daily digest at 06:00 UTC contains the items since the last one", async () => {
    const { mails } = await fixture.mailRule({ deliveryMode: "digest" });
    await fixture.scanned("kv-a", [
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
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 20 }]);
    await run(1);
    expect(mails()).toHaveLength(0);
    await run(2);
    expect(notified(mails())).toEqual([["kv-a/one"]]);
    for (let day = 3; day < 16; day++) await run(day);
    expect(notified(mails()).slice(1)).toEqual([]);
    await run(16);
    expect(notified(mails()).slice(1)).toEqual([["kv-a/one"]]);
  });
});

describe("changes of a rule", () => {
  test("a wider scope adds new items without repeating others", async () => {
    const { rule, mails } = await fixture.mailRule({ thresholds: [7] });
    await fixture.scanned("kv-a", [
      { name: "near", expiresInDays: 5 },
      { name: "far", expiresInDays: 20 },
    ]);
    await run(0);
    await fixture.instance().rules.change(rule.ruleId, { thresholds: [30, 7] }, caller, undefined);
    await run(0.01);
    await run(0.02);
    expect(notified(mails())).toEqual([["kv-a/near"], ["kv-a/far"]]);
  });

  test("a rule that is enabled again ignores events from the time it was disabled", async () => {
    const { rule, mails } = await fixture.mailRule({ thresholds: [7] });
    await fixture.scanned("kv-a", [
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
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    await alerts.evaluate();
    await alerts.rules.remove(rule.ruleId, caller, undefined);
    await fixture.drain(alerts);
    expect(mails()).toHaveLength(0);
    const page = await alerts.history.list({ ruleId: rule.ruleId }, { limit: 10, offset: 0, cursor: undefined });
    expect(page.items.map(({ status }) => status)).toEqual(["cancelled"]);
  });

  test("two concurrent runs notify of each asset once, and neither fails", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.webhookRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    // The second run loses every commit to the first, for new and changed rows.
    for (const names of [
      ["one", "of-0.1"],
      ["one", "of-0.1", "of-0.2"],
    ]) {
      fixture.clock.add(0.1 * DAY_MS);
      await fixture.scanned(
        "kv-a",
        names.map((name) => ({ name, expiresInDays: 5 })),
      );
      await Promise.all([alerts.evaluate(), fixture.instance().evaluate(), fixture.instance().evaluate()]);
      await fixture.drain(alerts);
    }
    expect(notified(mails()).flat().sort()).toEqual(["kv-a/of-0.1", "kv-a/of-0.2", "kv-a/one"]);
  });

  test("a rule that can't be evaluated fails the run after the other rules were evaluated", async () => {
    const violations = {
      newViolations: () => Promise.reject(new Error("the table is away")),
      currentViolations: async () => ({ violations: [] }),
      readViolations: async () => noViolations,
    };
    const fixture = open({ violations });
    const broken = await fixture.mailRule({ alertType: "complianceViolation", thresholds: undefined });
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const alerts = fixture.instance();
    await expect(alerts.evaluate()).rejects.toThrow("the table is away");
    await fixture.drain(alerts);
    expect(mails()).toHaveLength(1);
    expect(broken.mails()).toHaveLength(0);
  });

  test("no notifications are sent while they are turned off, and all afterwards", async () => {
    const { mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 31 }]);
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
  test("with expired filters cause an evaluation from the start of the earliest one", () => {
    const on = (days: number) => new Date(Date.parse(START) + days * DAY_MS);
    const snooze = (from: number, type: "secret" | "key") => ({
      filters: { type },
      reason: "x",
      createdBy: "ada",
      createdAt: on(from).toISOString(),
      until: on(10).toISOString(),
    });
    const { snoozes } = fixture.instance();
    const { suppressedSince } = snoozes.split([snooze(3, "secret"), snooze(5, "key")], "r", on(9), on(11));
    expect(suppressedSince).toEqual(on(3));
  });

  test("a snoozed asset is reported when the snooze ends, for the lowest threshold reached meanwhile", async () => {
    const { rule, mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [
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
    expect(mails()[2]!.plainText).toContain("Threshold: 7 days");
  });

  test("an expired snooze causes no notification for an asset that was renewed", async () => {
    const { rule, mails } = await fixture.mailRule();
    const { snoozes } = fixture.instance();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const until = new Date(Date.parse(START) + 2 * DAY_MS);
    await snoozes.create({ ruleId: rule.ruleId, assetId: "kv-a.secret.one", reason: "Renewed soon", until }, caller);
    await run(0);
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 365 }]);
    await run(3);
    expect(mails()).toEqual([]);
  });

  test("ending a snooze takes effect at the next run", async () => {
    const { rule, mails } = await fixture.mailRule();
    await fixture.scanned("kv-a", [{ name: "one", expiresInDays: 5 }]);
    const until = new Date(Date.parse(START) + 20 * DAY_MS);
    const { snoozes } = fixture.instance();
    await snoozes.create({ ruleId: rule.ruleId, assetId: "kv-a.secret.one", reason: "Wait", until }, caller);
    await run(0.1);
    expect(mails()).toHaveLength(0);
    fixture.clock.add(60_000);
    await snoozes.end(`${rule.ruleId}.kv-a.secret.one`, caller);
    await run(0.2);
    expect(notified(mails())).toEqual([["kv-a/one"]]);
    await expect(snoozes.end(`${rule.ruleId}.kv-a.secret.one`, caller)).rejects.toMatchObject({ code: "notFound" });
  });
});
