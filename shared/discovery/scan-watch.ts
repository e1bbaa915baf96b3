import pMap from "p-map";
import type { Clock, Logger } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  CLAIMED,
  DONE,
  hasEnded,
  indexOf,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
} from "./scan.ts";
import type { ScanRun } from "./scan-run.ts";
import { skipUnreadable, storedVault } from "./vault-claims.ts";
import { LEASE_MS, nextVault } from "./vault-states.ts";

/**
 * The watch of scans: every minute it finds scans whose worker crashed or whose message was lost, and lets them
 * continue or ends them.
 */

/** If a queued scan's row does not change for this time, the scan's message is sent again. */
const LOST_PLAN_MESSAGE_MS = 10 * MINUTE_MS;
/** Time after a scan's deadline in which workers can end the scan themselves. */
const DEADLINE_GRACE_MS = MINUTE_MS;
/** Maximum number of claims that are checked concurrently. */
const MAX_CONCURRENT_CLAIMS = 8;

interface WatchDeps {
  tables: Tables;
  queues: Queues;
  active: ActiveScanList;
  run: Pick<ScanRun, "finish">;
  clock: Clock;
  log: Logger;
}

/**
 * Returns a function that recovers active scans. A timer calls it every minute. It ends scans past their deadline and scans
 * whose last worker crashed, and sends lost messages again. It recognizes losses by the age of rows, measured by the storage
 * clock.
 */
export function createScanWatch({ tables, queues, active, run, clock, log }: WatchDeps): () => Promise<void> {
  return async function watch(): Promise<void> {
    const failures: unknown[] = [];
    for (const entry of await active.all()) {
      try {
        await checkScan(entry);
      } catch (error) {
        // A damaged row of one scan must not stop the recovery of the others.
        const reason = error instanceof Error ? error.message : "";
        log.error("A scan could not be checked", { scanId: entry.scanId, reason });
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  };

  async function checkScan(entry: Awaited<ReturnType<ActiveScanList["all"]>>[number]): Promise<void> {
    const { scanId } = entry;
    const stored = await tables.getWithAge(Scans, scanPartition(scanId), SCAN_ROW);
    if (!stored || hasEnded(stored.row.status)) {
      // The process crashed before it created the scan or before it removed the scan from the list, or it still creates the
      // scan.
      if (!(await active.isAlive(entry))) await active.remove(scanId);
    } else if (stored.row.status === "queued") {
      // A scan that waits for free workers sends its own message every few seconds. A second message would do so too.
      if (stored.ageMs < LOST_PLAN_MESSAGE_MS) return;
      // The write renews the row's age first, so that no further message is sent in the next minutes.
      if (await undefinedIfChanged(tables.replace(Scans, stored.row))) await queues.send(QUEUES.plan, { scanId });
    } else if (isOverdue(stored.row)) {
      log.warn("A scan is past its deadline and is ended", { scanId });
      await run.finish(scanId, true);
    } else if (stored.ageMs >= LEASE_MS && (await resendLostMessages(scanId)) === 0) {
      // A scan that started less than a minute ago cannot have lost a message yet.
      await run.finish(scanId);
    }
  }

  function isOverdue(scan: ScanRecord): boolean {
    return clock.now().getTime() > Date.parse(scan.deadline!) + DEADLINE_GRACE_MS;
  }

  /** Sends the lost messages of claimed vaults again. Returns the number of claimed vaults. */
  async function resendLostMessages(scanId: string): Promise<number> {
    let claimed = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE, onCorrupt: skipUnreadable };
    for await (const rows of tables.pages(PlannedVaults, range)) {
      claimed += rows.length;
      await pMap(rows, ({ rowKey }) => resendIfLost(scanId, rowKey), { concurrency: MAX_CONCURRENT_CLAIMS });
    }
    return claimed;
  }

  async function resendIfLost(scanId: string, rowKey: string): Promise<void> {
    const stored = await tables.getWithAge(PlannedVaults, scanPartition(scanId), rowKey);
    const next = stored && nextVault(storedVault(stored.row), { type: "watched", ageMs: stored.ageMs });
    if (!next) return;
    // The write fails if the worker has just finished the vault.
    if (!(await undefinedIfChanged(tables.replace(PlannedVaults, { ...stored.row, ...next.vault })))) return;
    log.warn("The worker or message of a vault was lost. The message is sent again", {
      scanId,
      vault: stored.row.name,
    });
    // The message contains only the index. So its receiver reads the claim first, in case the vault is done by then.
    await queues.send(QUEUES.vaults, { scanId, index: indexOf(rowKey) });
  }
}
