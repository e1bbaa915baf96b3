import { encodeTime } from "ulid";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  claimedKey,
  doneKey,
  emptyTally,
  PlannedVaults,
  SCAN_LIST,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
  VaultOutcomes,
} from "../../shared/discovery/scan.ts";
import { scanHistory } from "../../shared/discovery/scan-history.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { newestFirst } from "../../shared/platform/ulid.ts";
import { openStorage, type TestStorage } from "../support/storage.ts";

const NOW = Date.parse("2026-11-21T10:00:00.000Z");
const caller = { actor: "system", requestId: "timer" };

let azurite: TestStorage;
let tables: Tables;
beforeAll(async () => {
  azurite = await openStorage();
  tables = createTables({ connectionString: azurite.connectionString() });
});
afterAll(() => azurite.stop());

/** Writes a scan of three vaults that started the given number of days ago. */
async function plantScan(daysAgo: number, status: ScanRecord["status"], mark: string): Promise<string> {
  const at = NOW - daysAgo * DAY_MS;
  const scanId = encodeTime(at) + mark.repeat(16);
  const scan: ScanRecord = {
    scanId,
    mode: "delta",
    status,
    trigger: "schedule",
    requestedBy: "system",
    requestId: "request",
    createdAt: new Date(at).toISOString(),
    vaultsTotal: 3,
    subscriptionOutcomes: [],
  };
  const partition = scanPartition(scanId);
  await tables.put(Scans, partition, SCAN_ROW, scan);
  await tables.put(Scans, SCAN_LIST, newestFirst(scanId), scan);
  for (const index of ["000000", "000001"]) {
    await tables.put(VaultOutcomes, partition, doneKey(index), {
      vaultName: `kv-${index}`,
      subscriptionId: "s",
      outcome: "succeeded",
      failures: [],
      tally: emptyTally(),
      added: [],
      updated: [],
      removed: [],
      finishedAt: scan.createdAt,
    });
  }
  await tables.put(PlannedVaults, partition, claimedKey("000002"), { name: "kv", subscriptionId: "s", action: "scan" });
  return scanId;
}

const cut = (retentionDays: number) => ({ retentionDays, before: new Date(NOW - retentionDays * DAY_MS) });

async function rowsOf(partitionKey: string): Promise<number> {
  let rows = 0;
  for await (const page of tables.pages(Scans, { partitionKey, select: [] })) rows += page.length;
  return rows;
}

test("a purge removes scans older than the retention with all their rows, and keeps newer and active ones", async () => {
  const history = scanHistory(tables);
  const old = [];
  for (let day = 0; day < 22; day++) old.push(await plantScan(91 + day, "completed", "A"));
  const running = await plantScan(120, "running", "B");
  const atTheLimit = await plantScan(90, "partial", "C");
  const young = await plantScan(1, "failed", "D");
  expect(await history.stats()).toEqual({ total: 25, oldest: new Date(NOW - 120 * DAY_MS).toISOString() });

  expect(await history.purge(cut(90), caller)).toEqual({ removed: 20, retentionDays: 90, more: true });
  expect(await history.purge(cut(90), caller)).toEqual({ removed: 2, retentionDays: 90, more: false });
  expect(await history.purge(cut(90), caller)).toMatchObject({ removed: 0, more: false });

  for (const scanId of old) expect(await rowsOf(scanPartition(scanId))).toBe(0);
  for (const scanId of [running, atTheLimit, young]) expect(await rowsOf(scanPartition(scanId))).toBe(4);
  expect(await rowsOf(SCAN_LIST)).toBe(3);
  expect((await history.stats()).total).toBe(3);
});

test("an interrupted purge is completed by the next one", async () => {
  const history = scanHistory(tables);
  const scanId = await plantScan(200, "completed", "E");
  await tables.remove(Scans, scanPartition(scanId), SCAN_ROW);
  await tables.remove(VaultOutcomes, scanPartition(scanId), doneKey("000000"));
  expect(await history.purge(cut(90), caller)).toMatchObject({ removed: 1, more: false });
  expect(await rowsOf(scanPartition(scanId))).toBe(0);
});
