import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Audit, createAudit } from "../../shared/audit/audit.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../shared/platform/time.ts";
import { auditHistory, createRetention, type HistoryStore, type HistoryType } from "../../shared/settings/retention.ts";
import { createSettings } from "../../shared/settings/settings.ts";
import { recordingLog } from "../azure/services.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";
import { admin, configWith, problemOf, recordingAudit, stillClock } from "./support.ts";

// Tests of the retention: histories (audit log, runs, alerts and scans) are purged of entries older than a setting.

let azurite: TestStorage;
let tables: Tables;

let nextAccount = 0;
beforeAll(async () => {
  azurite = await openStorage(Array.from({ length: 12 }, (_, i) => `retention${i}`));
});
afterAll(() => azurite.stop());
beforeEach(() => {
  tables = createTables({ connectionString: azurite.connectionString(`retention${nextAccount++}`) });
});

function createRetentionOf(stores: HistoryStore[], clock = stillClock(), audit: Audit = recordingAudit()) {
  const config = configWith({ AUDIT_RETENTION_DAYS: "200", ROTATION_RETENTION_DAYS: "50" });
  const settings = createSettings({ tables, config, clock, audit, log: recordingLog() });
  return { clock, audit, settings, retention: createRetention({ settings, stores, audit, clock }) };
}

/** Creates a history with an entry of each age in days, oldest first. One call removes at most `perCall` entries. */
function createHistory(type: HistoryType, agesInDays: number[], clock: { now(): Date }, perCall = 1000): HistoryStore {
  const createdAtMs = agesInDays.map((age) => clock.now().getTime() - age * DAY_MS);
  return {
    type,
    stats: async () => ({
      total: createdAtMs.length,
      oldest: createdAtMs[0] === undefined ? null : new Date(createdAtMs[0]).toISOString(),
    }),
    purge: async ({ retentionDays, before }) => {
      const due = createdAtMs.filter((createdAt) => createdAt < before.getTime());
      for (const createdAt of due.slice(0, perCall)) createdAtMs.splice(createdAtMs.indexOf(createdAt), 1);
      return { removed: Math.min(due.length, perCall), retentionDays, more: due.length > perCall };
    },
  };
}

const createFailingHistory = (type: HistoryType, error: Error): HistoryStore => ({
  type,
  stats: async () => ({ total: 1, oldest: null }),
  purge: () => Promise.reject(error),
});

test("entries of each history are kept for the days of its setting or of the request", async () => {
  const clock = stillClock();
  const agesInDays = [300, 150, 100, 40, 1];
  const stores = (["audit", "rotation", "sync", "alerts", "scans"] as const).map((type) =>
    createHistory(type, agesInDays, clock),
  );
  const { retention, settings } = createRetentionOf(stores, clock);
  expect(
    (await retention.purgeAll(undefined, admin)).map((report) => [
      report.historyType,
      report.retentionDays,
      report.removed,
    ]),
  ).toEqual([
    // Alerts use the setting of the audit log, and sync that of rotation. The days of scans are the default.
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
  expect((await retention.stats()).map((report) => [report.historyType, report.retentionDays, report.total])).toEqual([
    ["audit", 120, 4],
    ["rotation", 50, 2],
    ["sync", 50, 2],
    ["alerts", 120, 1],
    ["scans", 90, 2],
  ]);
});

test("a history that no module registered has no entries to purge", async () => {
  const { retention } = createRetentionOf([]);
  expect((await retention.stats()).map((report) => [report.total, report.oldest])).toEqual(Array(5).fill([0, null]));
  expect((await retention.purgeAll(1, admin)).map((report) => [report.removed, report.more, report.problem])).toEqual(
    Array(5).fill([0, false, null]),
  );
});

test("the daily run repeats limited calls until nothing is due", async () => {
  const clock = stillClock();
  const sync = createHistory("sync", [60, 59, 58, 57, 56, 1], clock, 2);
  const { retention } = createRetentionOf([sync], clock);
  expect(await retention.purge("sync", undefined, admin)).toMatchObject({ removed: 2, more: true });
  const reports = await retention.runDue({ actor: "system", requestId: "timer" });
  expect(reports.find((one) => one.historyType === "sync")).toMatchObject({ removed: 3, more: false });
});

test("the daily run stops after twenty calls, and the next daily run continues", async () => {
  const clock = stillClock();
  const { retention } = createRetentionOf([createHistory("sync", Array(45).fill(60), clock, 2)], clock);
  const daily = async () =>
    (await retention.runDue({ actor: "system", requestId: "timer" })).find((one) => one.historyType === "sync");
  const report = { historyType: "sync", retentionDays: 50, problem: null };
  expect(await daily()).toEqual({ ...report, removed: 40, more: true });
  expect(await daily()).toEqual({ ...report, removed: 5, more: false });
});

test("a problem with one history is reported and does not stop the others", async () => {
  const clock = stillClock();
  const stores = [
    createFailingHistory("audit", new Problem("conflict", "Nothing is sealed.")),
    createHistory("sync", [100], clock),
  ];
  const { retention } = createRetentionOf(stores, clock);
  const reports = await retention.purgeAll(undefined, admin);
  expect(reports.map((report) => [report.historyType, report.removed, report.problem])).toEqual([
    ["audit", 0, "Nothing is sealed."],
    ["rotation", 0, null],
    ["sync", 1, null],
    ["alerts", 0, null],
    ["scans", 0, null],
  ]);
  expect((await problemOf(retention.purge("audit", undefined, admin))).code).toBe("conflict");
});

test("an error of one history is thrown after the others were purged", async () => {
  const clock = stillClock();
  const sync = createHistory("sync", [100], clock);
  const audit = recordingAudit();
  const { retention } = createRetentionOf(
    [createFailingHistory("audit", new Error("the table is unavailable")), sync],
    clock,
    audit,
  );
  await expect(retention.runDue(admin)).rejects.toThrow("the table is unavailable");
  expect((await sync.stats()).total).toBe(0);
  expect(audit.events.map((event) => [event.type, event.target?.id, event.outcome])).toEqual([
    ["history.purged", "audit", "intent"],
    ["history.purged", "audit", "failure"],
    ["history.purged", "sync", "intent"],
    ["history.purged", "sync", "success"],
  ]);
});

test("errors of several histories are thrown together", async () => {
  const failures = [new Error("the table is unavailable"), new Error("the queue is unavailable")] as const;
  const { retention } = createRetentionOf([
    createFailingHistory("audit", failures[0]),
    createFailingHistory("sync", failures[1]),
  ]);
  await expect(retention.runDue(admin)).rejects.toMatchObject({ errors: failures });
});

test("a purge is recorded in the audit log with the number of removed entries", async () => {
  const clock = stillClock();
  const audit = recordingAudit();
  const { retention } = createRetentionOf([createHistory("sync", [100], clock)], clock, audit);
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

test("the audit log is not purged before its minimum retention", async () => {
  const clock = stillClock();
  const config = configWith({
    AUDIT_SIGNING_KEYS: `k1:${Buffer.alloc(32, 2).toString("base64")}`,
    AUDIT_MINIMUM_RETENTION_DAYS: "2",
  });
  const audit = createAudit({ tables, clock, randomness: systemRandomness(), config, log: recordingLog() });
  const { retention } = createRetentionOf([auditHistory(audit)], clock, audit);
  const auditStats = async () => (await retention.stats()).find((one) => one.historyType === "audit");
  expect(await auditStats()).toMatchObject({ total: 0, oldest: null });

  const firstEntryAt = clock.now().toISOString();
  for (let entry = 0; entry < 3; entry++)
    await audit.append({ type: "test.happened", caller: admin, outcome: "success" });
  expect(await auditStats()).toMatchObject({ total: 3, oldest: firstEntryAt });
  clock.advance(HOUR_MS);
  // Sealing signs the entries so far with a digest, and moves them into compact rows. Sealed and newer entries are counted.
  await audit.seal();
  await audit.append({ type: "test.happened", caller: admin, outcome: "success" });
  expect(await auditStats()).toMatchObject({ total: 4, oldest: firstEntryAt });

  clock.advance(1.5 * DAY_MS);
  while ((await audit.seal()).more);
  expect(await retention.purge("audit", 1, admin)).toMatchObject({ removed: 0, retentionDays: 2 });
  clock.advance(DAY_MS);
  while ((await audit.seal()).more);
  let [totalRemoved, more] = [0, true];
  while (more) {
    const report = await retention.purge("audit", 1, admin);
    totalRemoved += report.removed;
    more = report.more;
  }
  expect(totalRemoved).toBe(4);
});
