import pMap from "p-map";
import type { Clock, Logger } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Queues } from "../platform/storage/queues.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { ActiveScanList } from "./active.ts";
import type { ScanRun } from "./run.ts";
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

/** A claim that its worker has not renewed for so long is a dead worker's: three renewals failed to come. */
const SILENT_MS = 60 * SECOND_MS;
/**
 * A claim whose message nobody has begun for so long has lost it. The platform shows the message of a process that died
 * again after ten minutes.
 */
const LOST_MS = 11 * MINUTE_MS;
/** A scan whose plan was not written to for so long gets the message again. */
const UNPLANNED_MS = 10 * MINUTE_MS;
/** How long past the deadline workers may take to notice it themselves. */
const GRACE_MS = MINUTE_MS;
/** Claims looked at side by side. */
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
 * Looks after scans that are not over, every minute: ends those past their time and those whose end was lost, and sends on
 * those whose messages were lost. What seems lost is told by a row's age, which only storage counts.
 */
export function createScanWatch({ tables, queues, active, run, clock, log }: WatchDeps): () => Promise<void> {
  return async function watch(): Promise<void> {
    const failures: unknown[] = [];
    for (const entry of await active.all()) {
      try {
        await look(entry);
      } catch (error) {
        // A scan whose rows are broken holds up no other.
        const reason = error instanceof Error ? error.message : "";
        log.error("A scan could not be looked after", { scanId: entry.scanId, reason });
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  };

  async function look(entry: Awaited<ReturnType<ActiveScanList["all"]>>[number]): Promise<void> {
    const { scanId } = entry;
    const found = await tables.getWithAge(Scans, scanPartition(scanId), SCAN_ROW);
    if (!found || isOver(found.row.status)) {
      if (!(await active.isAlive(entry))) await active.leave(scanId);
    } else if (found.row.status === "queued") {
      // One that waits for free workers is tried every few seconds: another message would never leave it again.
      if (found.ageMs < UNPLANNED_MS) return;
      // Written first, so that the next minutes send no more.
      if (await undefinedIfChanged(tables.replace(Scans, found.row))) await queues.send(QUEUES.plan, { scanId });
    } else if (isOverdue(found.row)) {
      log.warn("A scan is past its time and is ended", { scanId });
      await run.finish(scanId, true);
    } else if (found.ageMs >= SILENT_MS && (await sendLost(scanId)) === 0) {
      // A scan that began to run a moment ago has lost nothing yet.
      await run.finish(scanId);
    }
  }

  function isOverdue(scan: ScanRecord): boolean {
    return clock.now().getTime() > Date.parse(scan.deadline!) + GRACE_MS;
  }

  /** Answers how many vaults are claimed. */
  async function sendLost(scanId: string): Promise<number> {
    let claimed = 0;
    const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
    for await (const rows of tables.pages(PlannedVaults, { ...range, select: ["name"] })) {
      claimed += rows.length;
      await pMap(rows, ({ rowKey }) => sendIfLost(scanId, rowKey), { concurrency: CLAIMS_AT_ONCE });
    }
    return claimed;
  }

  async function sendIfLost(scanId: string, rowKey: string): Promise<void> {
    const found = await tables.getWithAge(PlannedVaults, scanPartition(scanId), rowKey);
    if (!found || found.ageMs < (found.row.begun ? SILENT_MS : LOST_MS)) return;
    // Its worker may have ended it in this moment.
    if (!(await undefinedIfChanged(tables.replace(PlannedVaults, { ...found.row, begun: false })))) return;
    log.warn("A vault's worker or message seems lost and its message is sent again", { scanId, vault: found.row.name });
    // Without the vault itself, so that its claim is read first: the vault may just have been done.
    await queues.send(QUEUES.vaults, { scanId, index: indexOf(rowKey) });
  }
}
