import * as z from "zod";
import { SCAN_STATUSES, type ScanRecord } from "../discovery/scan.ts";
import { VaultFailure } from "../inventory/vault.ts";
import { entity } from "../storage/entity.ts";
import { pack, unpack } from "../storage/packed.ts";
import type { Tables } from "../storage/tables.ts";

/** The last scan of a subscription that is over. */
const LastScan = z.object({
  scanId: z.string(),
  status: z.enum(SCAN_STATUSES),
  /** ISO 8601. */
  finishedAt: z.string(),
  /** Why its vaults could not be listed; absent where they could. */
  failure: VaultFailure.optional(),
});
export type LastScan = z.infer<typeof LastScan>;

const LastScans = z.record(z.string(), LastScan);

/** Of all subscriptions in one row: packed `LastScans` by lower-cased id, some 100 bytes each. */
const LastScanRow = entity("Subscriptions", z.object({ scans: z.instanceof(Uint8Array) }));
const PARTITION = "scans";
const KEY = "last";

/** What a scan that is over says of its subscriptions. */
export type EndedScan = Pick<ScanRecord, "scanId" | "status" | "finishedAt" | "subscriptionOutcomes">;

/** One request. */
export async function readLastScans(tables: Tables): Promise<ReadonlyMap<string, LastScan>> {
  const row = await tables.get(LastScanRow, PARTITION, KEY);
  return new Map(row ? Object.entries(unpack(LastScanRow, row, "scans", LastScans)) : []);
}

/** Keeps a scan as the last one of its subscriptions, unless a later one is. May be done twice. Two requests. */
export async function recordLastScan(tables: Tables, scan: EndedScan): Promise<void> {
  const { scanId, status, finishedAt, subscriptionOutcomes } = scan;
  if (finishedAt === undefined || subscriptionOutcomes.length === 0) return;
  await tables.modify(LastScanRow, PARTITION, KEY, (row) => {
    const scans = row ? unpack(LastScanRow, row, "scans", LastScans) : {};
    let changed = false;
    for (const { subscriptionId, failure } of subscriptionOutcomes) {
      const known = scans[subscriptionId];
      if (known && known.scanId >= scanId) continue;
      scans[subscriptionId] = { scanId, status, finishedAt, ...(failure ? { failure } : {}) };
      changed = true;
    }
    return changed ? { scans: pack(scans) } : undefined;
  });
}
