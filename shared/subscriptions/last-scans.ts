import * as z from "zod";
import { SCAN_STATUSES, type ScanRecord, UNREADABLE_SUBSCRIPTION } from "../discovery/scan.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import { pack, packedMember, unpack } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** The last ended scan of a subscription, or of all subscriptions in scope. */
const LastScan = z.object({
  scanId: z.string(),
  status: z.enum(SCAN_STATUSES),
  /** End of the scan, ISO 8601. */
  finishedAt: z.string(),
  /** Why the vaults, or the subscriptions themselves, could not be listed. Absent on success. */
  failure: VaultFailure.optional(),
});
export type LastScan = z.infer<typeof LastScan>;

const LastScans = z.record(z.string(), LastScan);

/**
 * One row with the last scans of all subscriptions, as compressed JSON by lower-case ID, about 100 bytes each. The key `ALL`
 * has the last scan of all subscriptions. Earlier versions wrote `ALL` only if an entry in the list of subscriptions could not
 * be read.
 */
const LastScanRecord = z.object({ scans: packedMember(LastScans) });
export const LastScanRow = entity("Subscriptions", LastScanRecord);
const PARTITION = "scans";
const KEY = "last";

/**
 * Key of the last scan of all subscriptions. The value is `unreadable`, which also stands for an unreadable entry in the list of
 * subscriptions, because earlier versions stored only such entries under this key.
 */
const ALL = UNREADABLE_SUBSCRIPTION;

/** An ended scan's results per subscription. */
export type EndedScan = Pick<
  ScanRecord,
  "scanId" | "status" | "finishedAt" | "subscriptions" | "subscriptionOutcomes" | "failure"
>;

/**
 * Reads the last scan of each subscription, by lower-case ID, and the last scan of all subscriptions. Costs one request.
 *
 * @returns `all` with a failure if that scan could not list the subscriptions, or not all of them. Undefined before the first.
 */
export async function readLastScans(
  tables: Tables,
): Promise<{ bySubscription: ReadonlyMap<string, LastScan>; all: LastScan | undefined }> {
  const row = await undefinedIfLeftOut(tables.get(LastScanRow, PARTITION, KEY));
  const { [ALL]: all, ...scans } = row ? unpack(LastScanRow, row, "scans", LastScans) : {};
  return { bySubscription: new Map(Object.entries(scans)), all };
}

/** Stores a scan as the last scan of its subscriptions, unless a later scan is stored. Can be repeated. Costs two requests. */
export async function recordLastScan(tables: Tables, scan: EndedScan): Promise<void> {
  const { scanId, status, finishedAt } = scan;
  const outcomes = [...scan.subscriptionOutcomes, ...outcomeOfAll(scan)];
  if (finishedAt === undefined || outcomes.length === 0) return;
  const update = (row: Row<z.infer<typeof LastScanRecord>> | undefined) => {
    const scans = row ? unpack(LastScanRow, row, "scans", LastScans) : {};
    let changed = false;
    for (const { subscriptionId, failure } of outcomes) {
      const stored = scans[subscriptionId];
      if (stored && stored.scanId >= scanId) continue;
      scans[subscriptionId] = { scanId, status, finishedAt, ...(failure ? { failure } : {}) };
      changed = true;
    }
    return changed ? { scans: pack(scans) } : undefined;
  };
  // A row that can't be read is replaced. It then lacks other subscriptions until their next scan.
  await tables.modify(LastScanRow, PARTITION, KEY, update, { replaceCorrupt: true });
}

/**
 * Returns the outcome for `ALL` of a scan of all subscriptions: whether it could list them. Returns nothing for a scan of
 * chosen subscriptions, for a scan that was canceled before the listing, and if an unreadable entry of the list is already
 * among the outcomes.
 */
function outcomeOfAll(scan: EndedScan): { subscriptionId: string; failure?: VaultFailure | undefined }[] {
  const { subscriptions, subscriptionOutcomes, failure } = scan;
  if (subscriptions !== undefined || subscriptionOutcomes.some(({ subscriptionId }) => subscriptionId === ALL))
    return [];
  if (subscriptionOutcomes.length > 0) return [{ subscriptionId: ALL }];
  return failure ? [{ subscriptionId: ALL, failure }] : [];
}
