// The purge removes scans that are older than the retention, with all their rows.
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

/**
 * Writes the rows of a scan that was created this number of days ago: the scan, its copy in the list, two finished vaults and
 * one claim.
 *
 * @param idCharacter - Makes the scan's ID unique: its random part repeats this character.
 */
async function writeScan(daysAgo: number, status: ScanRecord["status"], idCharacter: string): Promise<string> {
  const createdMs = NOW - daysAgo * DAY_MS;
  const scanId = encodeTime(createdMs) + idCharacter.repeat(16);
  const scan: ScanRecord = {
    scanId,
    mode: "delta",
    status,
    trigger: "schedule",
    requestedBy: "system",
    requestId: "request",
    createdAt: new Date(createdMs).toISOString(),
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

const cutoffOf = (retentionDays: number) => ({ retentionDays, before: new Date(NOW - retentionDays * DAY_MS) });

async function countRows(partitionKey: string): Promise<number> {
  let rows = 0;
  for await (const page of tables.pages(Scans, { partitionKey, select: [] })) rows += page.length;
  return rows;
}

test("a purge removes ended scans that are older than the retention", async () => {
  const history = scanHistory(tables);
  const oldScans = [];
  for (let day = 0; day < 22; day++) oldScans.push(await writeScan(91 + day, "completed", "A"));
  const running = await writeScan(120, "running", "B");
  const atTheLimit = await writeScan(90, "partial", "C");
  const recentScan = await writeScan(1, "failed", "D");
  expect(await history.stats()).toEqual({ total: 25, oldest: new Date(NOW - 120 * DAY_MS).toISOString() });

  // One call removes at most 20 scans.
  expect(await history.purge(cutoffOf(90), caller)).toEqual({ removed: 20, retentionDays: 90, more: true });
  expect(await history.purge(cutoffOf(90), caller)).toEqual({ removed: 2, retentionDays: 90, more: false });
  expect(await history.purge(cutoffOf(90), caller)).toMatchObject({ removed: 0, more: false });

  for (const scanId of oldScans) expect(await countRows(scanPartition(scanId))).toBe(0);
  // Each scan has four rows in its partition; see `writeScan`.
  for (const scanId of [running, atTheLimit, recentScan]) expect(await countRows(scanPartition(scanId))).toBe(4);
  expect(await countRows(SCAN_LIST)).toBe(3);
  expect((await history.stats()).total).toBe(3);
});

test("a purge completes the work of an interrupted one", async () => {
  const history = scanHistory(tables);
  const scanId = await writeScan(200, "completed", "E");
  await tables.remove(Scans, scanPartition(scanId), SCAN_ROW);
  await tables.remove(VaultOutcomes, scanPartition(scanId), doneKey("000000"));
  expect(await history.purge(cutoffOf(90), caller)).toMatchObject({ removed: 1, more: false });
  expect(await countRows(scanPartition(scanId))).toBe(0);
});
