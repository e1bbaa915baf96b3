import type { Clock, Logger } from "../runtime.ts";
import type { Row } from "../storage/entity.ts";
import type { Queues } from "../storage/queues.ts";
import { RowChanged, type Tables } from "../storage/tables.ts";
import type { ActiveScansRoom } from "./active.ts";
import type { ScanRun } from "./run.ts";
import {
  CLAIMED,
  DONE,
  isOver,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  Scans,
  scanPartition,
} from "./scan.ts";

/** A claimed vault whose message has not come to an end in this time has lost it: longer than the platform's lease. */
const LOST_AFTER_MS = 15 * 60_000;
/** A scan whose plan was not tried for this long gets the message again. */
const UNPLANNED_AFTER_MS = 10 * 60_000;
/** How long past the deadline workers may take to notice it themselves. */
const GRACE_MS = 60_000;

/** Looks after scans that are not over: ends those past their time, sends on those whose messages were lost. */
export function createScanWatch(deps: {
  tables: Tables;
  queues: Queues;
  active: ActiveScansRoom;
  run: ScanRun;
  clock: Clock;
  log: Logger;
}) {
  const { tables, queues, active, run, clock, log } = deps;

  /** False when its worker has just ended it after all. */
  async function claimAgain(row: Row<PlannedVault>, now: Date): Promise<boolean> {
    try {
      await tables.replace(PlannedVaults, { ...row, claimedAt: now.toISOString() });
      return true;
    } catch (error) {
      if (error instanceof RowChanged) return false;
      throw error;
    }
  }

  return async function watch(): Promise<void> {
    const now = clock.now();
    for (const entry of await active.all()) {
      const { scanId } = entry;
      const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
      if (!scan || isOver(scan.status)) {
        if (!(await active.isAlive(entry, now))) await active.leave(scanId);
        continue;
      }
      if (scan.status === "queued") {
        // One that waits for free workers is tried every few seconds: another message would never leave it again.
        const tried = Date.parse(scan.planningAt ?? scan.createdAt);
        if (now.getTime() - tried > UNPLANNED_AFTER_MS) await queues.send(QUEUES.plan, { scanId });
        continue;
      }
      if (now.getTime() > Date.parse(scan.deadline!) + GRACE_MS) {
        log.warn("A scan is past its time and is ended", { scanId });
        await run.finish(scanId, true);
        continue;
      }
      let claimed = 0;
      const range = { partitionKey: scanPartition(scanId), from: CLAIMED, before: DONE };
      for await (const rows of tables.pages(PlannedVaults, range)) {
        for (const row of rows) {
          claimed++;
          if (now.getTime() - Date.parse(row.claimedAt ?? scan.createdAt) < LOST_AFTER_MS) continue;
          if (!(await claimAgain(row, now))) continue;
          log.warn("A vault's message seems lost and is sent again", { scanId, vault: row.name });
          // Without the vault itself, so that its claim is read first: the vault may just have been done.
          await queues.send(QUEUES.vaults, { scanId, index: row.rowKey.slice(CLAIMED.length) });
        }
      }
      if (claimed === 0) await queues.send(QUEUES.finish, { scanId });
    }
  };
}
