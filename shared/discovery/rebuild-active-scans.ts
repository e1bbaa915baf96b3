/**
 * Rebuilds the row of active scans from the rows of the scans and re-scans. The row is a list of work in progress, so nothing
 * is lost with it.
 */
import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { mergeRequests, RESCANS, RescanRows, subscriptionsOf } from "./rescan-rows.ts";
import {
  type ActiveRow,
  CLAIMED,
  DONE,
  hasEnded,
  isHandedOff,
  PlannedVaults,
  SCAN_LIST,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
} from "./scan.ts";

type ActiveScan = ActiveRow["scans"][number];

/** Lease of a re-scan. A worker that does not renew the lease for this time has crashed. */
export const RESCAN_LEASE_MS = MINUTE_MS;

/**
 * Returns the row as the stored scans and re-scans describe it. Scans and re-scans whose own row can't be read are left out.
 * Costs one request per 1,000 scans and re-scans, and two per active scan.
 */
export async function rebuildActiveRow({ tables, clock }: { tables: Tables; clock: Clock }): Promise<ActiveRow> {
  const until = new Date(clock.now().getTime() + RESCAN_LEASE_MS).toISOString();
  /** The re-scans that a worker runs. */
  const looks: ActiveRow["looks"] = [];
  for await (const rows of tables.pages(RescanRows, { partitionKey: RESCANS, onCorrupt: skip })) {
    // `want`: the events that the running re-scan covers. `again`: those that arrived since it started.
    for (const { worker, subscriptionId, want, again } of rows) {
      if (worker === undefined) continue;
      looks.push({ worker, subscriptionId, otherSubscriptionIds: subscriptionsOf(mergeRequests(want, again)!), until });
    }
  }
  // It is unknown whether a re-scan waits for a worker. With `looksWait`, the end of the next scan looks for waiting re-scans.
  return { scans: await unfinishedScans(tables), looks, looksWait: true };
}

/** Returns the queued and running scans. Reads each scan's own row, because its copy in the list can be older. */
async function unfinishedScans(tables: Tables): Promise<ActiveScan[]> {
  const scans: ActiveScan[] = [];
  const range = { partitionKey: SCAN_LIST, select: ["scanId" as const, "status" as const], onCorrupt: skip };
  for await (const copies of tables.pages(Scans, range)) {
    for (const { scanId, status } of copies) {
      if (hasEnded(status)) continue;
      const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW, { onCorrupt: skip });
      if (scan && !hasEnded(scan.status)) scans.push(await activeScan(tables, scan));
    }
  }
  return scans;
}

async function activeScan(
  tables: Tables,
  { scanId, mode, subscriptions, status, createdAt }: ScanRecord,
): Promise<ActiveScan> {
  const workers = status === "running" ? await countWorkers(tables, scanId) : 0;
  return { scanId, mode, ...(subscriptions && { subscriptions }), workers, createdAt };
}

/** Returns the number of claimed vaults. Each has a worker, except those that are written in the background. */
async function countWorkers(tables: Tables, scanId: string): Promise<number> {
  let claimed = 0;
  const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, select: [] };
  for await (const rows of tables.pages(PlannedVaults, range))
    claimed += rows.filter(({ rowKey }) => !isHandedOff(rowKey)).length;
  return claimed;
}

const skip = (): void => {};
