import pMap from "p-map";
import type { Clock, Logger } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  CLAIMED,
  DONE,
  indexOf,
  isOver,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
} from "./scan.ts";
import type { ScanRun } from "./scan-run.ts";

/** A lease is abandoned after three missed heartbeats. Also the minimum age of a scan's row before its messages are checked. */
const SILENT_MS = 60 * SECOND_MS;
/**
 * Age at which the message of a claim that no worker has started counts as lost. The platform redelivers the message of a crashed
 * process after ten minutes.
 */
const LOST_MS = 11 * MINUTE_MS;
/** Time without a change of a queued scan after which its plan message is sent again. */
const UNPLANNED_MS = 10 * MINUTE_MS;
/** Time after the deadline for workers to end the scan themselves. */
const GRACE_MS = MINUTE_MS;
/** Claims checked concurrently. */
const CLAIMS_AT_ONCE = 8;

interface WatchDeps {
  tables: Tables;
  queues: Queues;
  active: ActiveScanList;
  run: Pick<ScanRun, "finish">;
  clock: Clock;
  log: Logger;
}

/**
 * Returns a function that recovers active scans, to be called every minute. It ends scans past their deadline and scans whose
 * last step was lost, and resends lost messages. Losses are detected by the age of rows, which storage measures.
 */
export function createScanWatch({ tables, queues, active, run, clock, log }: WatchDeps): () => Promise<void> {
  return async function watch(): Promise<void> {
    const failures: unknown[] = [];
    for (const entry of await active.all()) {
      try {
        await checkScan(entry);
      } catch (error) {
        // Invalid rows of one scan must not delay the others.
        const reason = error instanceof Error ? error.message : "";
        log.error("A scan could not be looked after", { scanId: entry.scanId, reason });
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  };

  async function checkScan(entry: Awaited<ReturnType<ActiveScanList["all"]>>[number]): Promise<void> {
    const { scanId } = entry;
    const found = await tables.getWithAge(Scans, scanPartition(scanId), SCAN_ROW);
    if (!found || isOver(found.row.status)) {
      if (!(await active.isAlive(entry))) await active.leave(scanId);
    } else if (found.row.status === "queued") {
      // A scan that waits for free workers requeues itself every few seconds. Another message would multiply with it.
      if (found.ageMs < UNPLANNED_MS) return;
      // Renews the row's age first, so that the next minutes send no further message.
      if (await undefinedIfChanged(tables.replace(Scans, found.row))) await queues.send(QUEUES.plan, { scanId });
    } else if (isOverdue(found.row)) {
      log.warn("A scan is past its time and is ended", { scanId });
      await run.finish(scanId, true);
    } else if (found.ageMs >= SILENT_MS && (await resendLostMessages(scanId)) === 0) {
      // A scan that started less than a minute ago cannot have lost a message yet.
      await run.finish(scanId);
    }
  }

  function isOverdue(scan: ScanRecord): boolean {
    return clock.now().getTime() > Date.parse(scan.deadline!) + GRACE_MS;
  }

  /** Sends the lost messages of claimed vaults again. Returns the number of claimed vaults. */
  async function resendLostMessages(scanId: string): Promise<number> {
    let claimed = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    for await (const rows of tables.pages(PlannedVaults, { ...range, select: ["name"] })) {
      claimed += rows.length;
      await pMap(rows, ({ rowKey }) => resendIfLost(scanId, rowKey), { concurrency: CLAIMS_AT_ONCE });
    }
    return claimed;
  }

  async function resendIfLost(scanId: string, rowKey: string): Promise<void> {
    const found = await tables.getWithAge(PlannedVaults, scanPartition(scanId), rowKey);
    if (!found || found.ageMs < (found.row.begun ? SILENT_MS : LOST_MS)) return;
    // Fails if the vault's worker finished it at this moment.
    if (!(await undefinedIfChanged(tables.replace(PlannedVaults, { ...found.row, begun: false })))) return;
    log.warn("A vault's worker or message seems lost and its message is sent again", { scanId, vault: found.row.name });
    // The message has only the index, so that the receiver reads the claim first: the vault may be done by now.
    await queues.send(QUEUES.vaults, { scanId, index: indexOf(rowKey) });
  }
}
