import * as z from "zod";
import { SCAN_STATUSES, type ScanRecord, UNREADABLE_SUBSCRIPTION } from "../discovery/scan.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { entity } from "../platform/storage/entity.ts";
import { pack, unpack } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** The last ended scan of a subscription, or of all subscriptions in scope. */
const LastScan = z.object({
  scanId: z.string(),
  status: z.enum(SCAN_STATUSES),
  /** ISO 8601. */
  finishedAt: z.string(),
  /** Why its vaults, or the subscriptions themselves, could not be listed. Absent on success. */
  failure: VaultFailure.optional(),
});
export type LastScan = z.infer<typeof LastScan>;

const LastScans = z.record(z.string(), LastScan);

/**
 * One row for all subscriptions: packed `LastScans` by lower-case ID, about 100 bytes each. `ALL` has the last scan of
 * everything. Earlier versions wrote `ALL` only if an entry in the list of subscriptions could not be read.
 */
const LastScanRow = entity("Subscriptions", z.object({ scans: z.instanceof(Uint8Array) }));
const PARTITION = "scans";
const KEY = "last";

const ALL = UNREADABLE_SUBSCRIPTION;

/** An ended scan's results per subscription. */
export type EndedScan = Pick<
  ScanRecord,
  "scanId" | "status" | "finishedAt" | "subscriptions" | "subscriptionOutcomes" | "failure"
>;

/**
 * Reads the last scan of each subscription, by lower-case ID, and the last one of everything. One request.
 *
 * @returns `all` with a failure if that scan could not list the subscriptions, or not all of them. Undefined before the first.
 */
export async function readLastScans(
  tables: Tables,
): Promise<{ of: ReadonlyMap<string, LastScan>; all: LastScan | undefined }> {
  const row = await tables.get(LastScanRow, PARTITION, KEY);
  const { [ALL]: all, ...scans } = row ? unpack(LastScanRow, row, "scans", LastScans) : {};
  return { of: new Map(Object.entries(scans)), all };
}

/** Stores a scan as the last one of its subscriptions, unless a later one is stored. Can be repeated. Two requests. */
export async function recordLastScan(tables: Tables, scan: EndedScan): Promise<void> {
  const { scanId, status, finishedAt } = scan;
  const outcomes = [...scan.subscriptionOutcomes, ...outcomeOfAll(scan)];
  if (finishedAt === undefined || outcomes.length === 0) return;
  await tables.modify(LastScanRow, PARTITION, KEY, (row) => {
    const scans = row ? unpack(LastScanRow, row, "scans", LastScans) : {};
    let changed = false;
    for (const { subscriptionId, failure } of outcomes) {
      const known = scans[subscriptionId];
      if (known && known.scanId >= scanId) continue;
      scans[subscriptionId] = { scanId, status, finishedAt, ...(failure ? { failure } : {}) };
      changed = true;
    }
    return changed ? { scans: pack(scans) } : undefined;
  });
}

/**
 * Returns what a scan of everything found about the list of subscriptions. A scan canceled before the listing has no result.
 * Unreadable entries of the list are among its outcomes already.
 */
function outcomeOfAll(scan: EndedScan): { subscriptionId: string; failure?: VaultFailure | undefined }[] {
  const { subscriptions, subscriptionOutcomes, failure } = scan;
  if (subscriptions !== undefined || subscriptionOutcomes.some(({ subscriptionId }) => subscriptionId === ALL))
    return [];
  if (subscriptionOutcomes.length > 0) return [{ subscriptionId: ALL }];
  return failure ? [{ subscriptionId: ALL, failure }] : [];
}
