import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Audit, createAudit } from "../../shared/audit/audit.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { auditHistory, createRetention, type HistoryStore, type HistoryType } from "../../shared/settings/retention.ts";
import { createSettings } from "../../shared/settings/settings.ts";
import { recordingLog } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "./support.ts";

const DAY_MS = 86_400_000;

let azurite: TestStorage;
let tables: Tables;

let account = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 12 }, (_, i) => `retention${i}`));
});
afterAll(() => azurite.stop());
beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(`retention${account++}`) });
});

function retentionOver(stores: HistoryStore[], clock = stillClock(), audit: Audit = recordingAudit()) {
  const config = configWith({ AUDIT_RETENTION_DAYS: "200", ROTATION_RETENTION_DAYS: "50" });
  const settings = createSettings({ tables, config, clock, audit, log: recordingLog() });
  return { clock, audit, settings, retention: createRetention({ settings, stores, audit, clock }) };
}

/** A history whose entries are their ages in days. A call removes at most `perCall` of them. */
function history(type: HistoryType, ages: number[], clock: { now(): Date }, perCall = 1000): HistoryStore {
  const born = ages.map((age) => clock.now().getTime() - age * DAY_MS);
  return {
    type,
    stats: async () => ({ total: born.length, oldest: born[0] === undefined ? null : new Date(born[0]).toISOString() }),
    purge: async ({ retentionDays, before }) => {
      const due = born.filter((at) => at < before.getTime());
      for (const at of due.slice(0, perCall)) born.splice(born.indexOf(at), 1);
      return { removed: Math.min(due.length, perCall), retentionDays, more: due.length > perCall };
    },
  };
}

const refusing = (type: HistoryType, error: Error): HistoryStore => ({
  type,
  stats: async () => ({ total: 1, oldest: null }),
  purge: () => Promise.reject(error),
});

test("each history is kept for the days of its setting, or of the request", async () => {
  const clock = stillClock();
  const ages = [300, 150, 100, 40, 1];
  const stores = (["audit", "rotation", "sync", "alerts", "scans"] as const).map((type) => history(type, ages, clock));
  const { retention, settings } = retentionOver(stores, clock);
  expect(
    (await retention.purgeAll(undefined, admin)).map((one) => [one.historyType, one.retentionDays, one.removed]),
  ).toEqual([
    ["audit", 200, 1],
    ["rotation", 50, 3],
    ["sync", 50, 3],
    ["alerts", 200, 1],
    ["scans", 90, 3],
  ]);
  await settings.update("retention", { auditRetentionDays: 120 }, admin);
  expect((await retention.purge("alerts", undefined, admin)).removed).toBe(1);
  expect(await retention.purge("alerts", 30, admin)).toEqual({
    historyType: "alerts",
    removed: 2,
    retentionDays: 30,
    more: false,
    problem: null,
  });
  expect((await retention.stats()).map((one) => [one.historyType, one.retentionDays, one.total])).toEqual([
    ["audit", 120, 4],
    ["rotation", 50, 2],
    ["sync", 50, 2],
    ["alerts", 120, 1],
    ["scans", 90, 2],
  ]);
});

test("a history that no module registered has no entries, and none to purge", async () => {
  const { retention } = retentionOver([]);
  expect((await retention.stats()).map((one) => [one.total, one.oldest])).toEqual(Array(5).fill([0, null]));
  expect((await retention.purgeAll(1, admin)).map((one) => [one.removed, one.more, one.problem])).toEqual(
    Array(5).fill([0, false, null]),
  );
});

test("the daily run repeats limited calls until nothing is due", async () => {
  const clock = stillClock();
  const sync = history("sync", [60, 59, 58, 57, 56, 1], clock, 2);
  const { retention } = retentionOver([sync], clock);
  expect(await retention.purge("sync", undefined, admin)).toMatchObject({ removed: 2, more: true });
  const reports = await retention.runDue({ actor: "system", requestId: "timer" });
  expect(reports.find((one) => one.historyType === "sync")).toMatchObject({ removed: 3, more: false });
});

test("entries that remain after twenty calls are purged on the next day", async () => {
  const clock = stillClock();
  const { retention } = retentionOver([history("sync", Array(45).fill(60), clock, 2)], clock);
  const daily = async () =>
    (await retention.runDue({ actor: "system", requestId: "timer" })).find((one) => one.historyType === "sync");
  const report = { historyType: "sync", retentionDays: 50, problem: null };
  expect(await daily()).toEqual({ ...report, removed: 40, more: true });
  expect(await daily()).toEqual({ ...report, removed: 5, more: false });
});

test("a history that can't be purged does not stop the others, and reports why", async () => {
  const clock = stillClock();
  const stores = [refusing("audit", new Problem("conflict", "Nothing is sealed.")), history("sync", [100], clock)];
  const { retention } = retentionOver(stores, clock);
  const reports = await retention.purgeAll(undefined, admin);
  expect(reports.map((one) => [one.historyType, one.removed, one.problem])).toEqual([
    ["audit", 0, "Nothing is sealed."],
    ["rotation", 0, null],
    ["sync", 1, null],
    ["alerts", 0, null],
    ["scans", 0, null],
  ]);
  expect((await problemOf(retention.purge("audit", undefined, admin))).code).toBe("conflict");
});

test("a failure of a history is thrown after the others were purged", async () => {
  const clock = stillClock();
  const sync = history("sync", [100], clock);
  const audit = recordingAudit();
  const { retention } = retentionOver([refusing("audit", new Error("the table is away")), sync], clock, audit);
  await expect(retention.runDue(admin)).rejects.toThrow("the table is away");
  expect((await sync.stats()).total).toBe(0);
  expect(audit.events.map((event) => [event.type, event.target?.id, event.outcome])).toEqual([
    ["history.purged", "audit", "intent"],
    ["history.purged", "audit", "failure"],
    ["history.purged", "sync", "intent"],
    ["history.purged", "sync", "success"],
  ]);
});

test("failures of several histories are all thrown", async () => {
  const failures = [new Error("the table is away"), new Error("the queue is away")] as const;
  const { retention } = retentionOver([refusing("audit", failures[0]), refusing("sync", failures[1])]);
  await expect(retention.runDue(admin)).rejects.toMatchObject({ errors: failures });
});

test("a purge is recorded with the number of removed entries", async () => {
  const clock = stillClock();
  const audit = recordingAudit();
  const { retention } = retentionOver([history("sync", [100], clock)], clock, audit);
  await retention.purge("sync", 60, admin);
  const entry = { type: "history.purged", caller: admin, target: { type: "history", id: "sync" } };
  expect(audit.events).toEqual([
    { ...entry, outcome: "intent", details: { retentionDays: 60 } },
    {
      ...entry,
      outcome: "success",
      details: { historyType: "sync", removed: 1, retentionDays: 60, more: false, problem: null },
    },
  ]);
});

test("the audit log counts sealed and newer entries, and is never purged before its minimum retention", async () => {
  const clock = stillClock();
  const config = configWith({
    AUDIT_SIGNING_KEYS: `k1:${Buffer.alloc(32, 2).toString("base64")}`,
    AUDIT_MINIMUM_RETENTION_DAYS: "2",
  });
  const audit = createAudit({ tables, clock, randomness: systemRandomness(), config, log: recordingLog() });
  const { retention } = retentionOver([auditHistory(audit)], clock, audit);
  const audited = async () => (await retention.stats()).find((one) => one.historyType === "audit");
  expect(await audited()).toMatchObject({ total: 0, oldest: null });

  const first = clock.now().toISOString();
  for (let i = 0; i < 3; i++) await audit.append({ type: "test.happened", caller: admin, outcome: "success" });
  expect(await audited()).toMatchObject({ total: 3, oldest: first });
  clock.forward(60 * 60_000);
  await audit.seal();
  await audit.append({ type: "test.happened", caller: admin, outcome: "success" });
  expect(await audited()).toMatchObject({ total: 4, oldest: first });

  clock.forward(1.5 * DAY_MS);
  while ((await audit.seal()).more);
  expect(await retention.purge("audit", 1, admin)).toMatchObject({ removed: 0, retentionDays: 2 });
  clock.forward(DAY_MS);
  while ((await audit.seal()).more);
  let [removed, more] = [0, true];
  while (more) {
    const report = await retention.purge("audit", 1, admin);
    removed += report.removed;
    more = report.more;
  }
  expect(removed).toBe(4);
});
