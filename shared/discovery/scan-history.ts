import { encodeTime } from "ulid";
import { removeOldChanges } from "../inventory/change-log.ts";
import { MAX_COUNTED } from "../platform/http/paging.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { HistoryStore } from "../settings/retention.ts";
import { hasEnded, PlannedVaults, SCAN_LIST, Scans, scanPartition } from "./scan.ts";

/**
 * The history of scans, for statistics and for the purge of old data.
 */

/** Maximum number of scans that one call removes. Each has a row per vault, so a scan of 5,000 vaults takes some seconds. */
const SCANS_PER_CALL = 20;

/**
 * Returns the history of scans for statistics and purges. A purge removes ended scans with their vault outcomes. It also
 * removes logged changes of assets from that time, without counting them.
 */
export function scanHistory(tables: Tables): HistoryStore {
  /** Removes a scan. Its copy in the list is removed last, so that an interrupted purge finds the scan again. */
  async function removeScan(scanId: string): Promise<void> {
    const partition = scanPartition(scanId);
    for await (const rows of tables.pages(PlannedVaults, { partitionKey: partition, select: [] })) {
      const removals = rows.map(({ rowKey }) => remove(PlannedVaults, rowKey));
      await tables.write(PlannedVaults.table, partition, removals);
    }
    await tables.remove(Scans, SCAN_LIST, newestFirst(scanId));
  }

  return {
    type: "scans",

    async stats() {
      let total = 0;
      let oldest: string | null = null;
      for await (const rows of tables.pages(Scans, { partitionKey: SCAN_LIST, select: ["createdAt"] })) {
        total += rows.length;
        oldest = rows.at(-1)?.createdAt ?? oldest;
        if (total > MAX_COUNTED) return { total: null, totalAtLeast: MAX_COUNTED, oldest };
      }
      return { total, oldest };
    },

    async purge({ retentionDays, before }) {
      // Keys count down. A scan's ID is a ULID: 10 characters of time and 16 random ones. The smallest ID of that millisecond
      // has the largest key of scans that are not older, so older scans follow it.
      const after = newestFirst(encodeTime(Math.max(0, before.getTime())) + "0".repeat(16));
      let removed = 0;
      const range = {
        partitionKey: SCAN_LIST,
        after,
        select: ["scanId", "status"] as const,
        onCorrupt: "leaveOut" as const,
      };
      for await (const rows of tables.pages(Scans, range)) {
        for (const { scanId, status } of rows) {
          if (!hasEnded(status)) continue;
          if (removed === SCANS_PER_CALL) return { removed, retentionDays, more: true };
          await removeScan(scanId);
          removed++;
        }
      }
      return { removed, retentionDays, more: await removeOldChanges(tables, before) };
    },
  };
}
