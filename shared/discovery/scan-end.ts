/** The last step of a scan: decides its status, records it, and removes the scan from the active ones. */
import type { Audit } from "../audit/audit.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { SECOND_MS } from "../platform/time.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  emptyTally,
  hasEnded,
  PlannedVaults,
  SCAN_LIST,
  SCAN_ROW,
  type ScanRecord,
  type ScanStatus,
  Scans,
  scanPartition,
  unreadSubscriptions,
} from "./scan.ts";
import { countOutcomes, countRemaining, failureOfScan, subscriptionTitles } from "./scan-outcomes.ts";
import type { Claims } from "./vault-claims.ts";
import { nextVault, vaultOperations } from "./vault-states.ts";

export interface EndDeps {
  tables: Tables;
  active: ActiveScanList;
  claims: Claims;
  /** Called before the scan's own row says that it has ended, possibly more than once. */
  onEnded: (scan: ScanRecord) => Promise<void>;
  /** Recomputes the stored totals of the inventory. They make queries cheaper; results are correct without them. */
  renewTotals: () => Promise<void>;
  /** Called when a scan leaves the list of active scans. Starts a re-scan that waited for the scan's workers. */
  onScanRemoved: () => Promise<void>;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Ends scans. Each step can be repeated by any worker until the scan's own row says that the scan has ended. */
export interface ScanEnd {
  /**
   * Ends a scan that was canceled or has no waiting and no claimed vault left. Restarts a worker if vaults wait and no worker
   * is active. Does nothing while vaults are claimed, while the scan is queued and not canceled, or if the scan has ended.
   *
   * @param overdue - True for a scan past its deadline: ends the scan even if vaults wait or are claimed.
   */
  finish(scanId: string, overdue?: boolean): Promise<void>;
  /** Ends a scan that failed before it read any vault. */
  fail(scanId: string, failure: ScanRecord["failure"]): Promise<void>;
}

type Ending = NonNullable<ScanRecord["ending"]>;
/** The decided result of a scan, without the members that are added when it is stored. */
type Decision = Omit<Ending, "entryId" | "finishedAt">;

export function createScanEnd(deps: EndDeps): ScanEnd {
  const { tables, active, claims, onEnded, renewTotals, onScanRemoved, audit, clock, randomness, log } = deps;

  async function activeScan(scanId: string): Promise<Row<ScanRecord> | undefined> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    return scan && !hasEnded(scan.status) ? scan : undefined;
  }

  async function finish(scanId: string, overdue = false): Promise<void> {
    const scan = await activeScan(scanId);
    if (!scan) return;
    if (scan.ending) return await completeEnd(scan, scan.ending);
    const isQueued = scan.status === "queued";
    if (isQueued && !scan.cancelledBy) return;
    // Remaining vaults are counted before outcomes. So a vault that finishes in between is counted twice rather than missed.
    const remaining = await countRemaining(tables, scanId);
    // While a scan is queued, claims come from an unfinished plan, and no worker scans them.
    if (remaining.claimed > 0 && !overdue && !isQueued) return;
    const isBeforeDeadline = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
    if (remaining.waiting > 0 && isBeforeDeadline && !scan.cancelledBy && !overdue) return await restartWorker(scan);
    const outcomes = await countOutcomes({ tables, log }, scanId, remaining.unreadable);
    // Reads of vaults are aborted at the deadline. So if a vault could not be read completely, the deadline may be the reason.
    const isUnfinished = remaining.waiting + remaining.claimed > 0 || (outcomes.incomplete > 0 && !isBeforeDeadline);
    const status = scan.cancelledBy ? "cancelled" : isUnfinished ? "timedOut" : statusOf(scan, outcomes);
    const failure = status === "failed" ? await failureOfScan({ tables, clock }, scan, outcomes.unreadable) : undefined;
    await storeEnding(scan, {
      status,
      vaultsDone: outcomes.vaults,
      vaultsFailed: outcomes.failed,
      tally: outcomes.tally,
      ...(failure ? { failure } : {}),
    });
  }

  /** Returns the status of a scan that processed all its vaults. */
  function statusOf(scan: ScanRecord, outcomes: Awaited<ReturnType<typeof countOutcomes>>): ScanStatus {
    if (outcomes.incomplete + unreadSubscriptions(scan.subscriptionOutcomes).length === 0) return "completed";
    // Also `failed` without any vault: then subscriptions could not be listed.
    return outcomes.vaults === outcomes.failed ? "failed" : "partial";
  }

  /**
   * Sends a message for one waiting vault. Needed if vaults wait but no worker is active, because a worker crashed before it
   * sent its message.
   */
  async function restartWorker(scan: ScanRecord): Promise<void> {
    const { scanId } = scan;
    const waiting = await claims.findWaiting(scan);
    const claimed = waiting && nextVault(waiting, { type: "claimed", worker: undefined });
    if (!claimed) return;
    try {
      const operations = vaultOperations(waiting, claimed, waiting.etag);
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), operations);
    } catch (error) {
      if (isConflict(error)) return; // Another worker restarts the scan.
      throw error;
    }
    await claims.send(scanId, waiting.index);
  }

  async function fail(scanId: string, failure: ScanRecord["failure"]): Promise<void> {
    const scan = await activeScan(scanId);
    if (!scan) return;
    if (scan.ending) return await completeEnd(scan, scan.ending);
    await storeEnding(scan, {
      status: "failed",
      vaultsDone: 0,
      vaultsFailed: 0,
      tally: emptyTally(),
      ...(failure ? { failure } : {}),
    });
  }

  /**
   * Stores the decided status, which is then final. Any worker can repeat the remaining steps. If the scan's row changed since
   * it was read, this does nothing: another worker, or the message of a cancellation, ends the scan.
   */
  async function storeEnding(scan: Row<ScanRecord>, decision: Decision): Promise<void> {
    const now = clock.now();
    const ending = { ...decision, finishedAt: now.toISOString(), entryId: randomness.ulid(now) };
    const decided = await undefinedIfChanged(tables.replace(Scans, { ...scan, ending }));
    if (decided) await completeEnd(decided, ending);
  }

  /**
   * Performs the remaining steps: the audit entry, the scan's copy in the list, the list of active scans, the inventory's
   * totals, `onEnded`, and last the scan's own row. Until that row has the final status, another worker repeats the steps after
   * a crash.
   */
  async function completeEnd(scan: Row<ScanRecord>, ending: Ending): Promise<void> {
    const recorded = await recordEnd(scan, ending);
    if (!recorded) return;
    const { entryId: _, ...result } = ending;
    const endedScan = { ...recorded, ...result, ending: undefined };
    await tables.put(Scans, SCAN_LIST, newestFirst(scan.scanId), withoutKeys(endedScan));
    if (await active.remove(scan.scanId)) await onScanRemoved();
    const [renewal] = await Promise.allSettled([renewTotals()]);
    await onEnded(withoutKeys(endedScan));
    if (await undefinedIfChanged(tables.replace(Scans, endedScan))) {
      const unread = unreadSubscriptions(scan.subscriptionOutcomes);
      const ended = {
        scanId: scan.scanId,
        status: result.status,
        subscriptionsFailed: unread.length,
        unreadSubscriptions: subscriptionTitles(unread),
        vaultsFailed: result.vaultsFailed,
      };
      log.info("A scan is over", ended, "event");
      const seconds = (Date.parse(result.finishedAt) - Date.parse(scan.startedAt ?? scan.createdAt)) / SECOND_MS;
      recordMetric("scan.duration", Math.max(0, seconds), { mode: scan.mode, status: result.status });
      recordMetric("vaults.failed", result.vaultsFailed);
    }
    // The scan has ended in any case. The error is thrown so that it is logged. The next scan or the reconciliation recomputes
    // the totals.
    if (renewal.status === "rejected") throw renewal.reason;
  }

  /** Records the end in the audit log. Returns the scan's row, or undefined if another worker has changed it. */
  async function recordEnd(scan: Row<ScanRecord>, ending: Ending): Promise<Row<ScanRecord> | undefined> {
    const event = {
      id: ending.entryId,
      type: "scan.finished",
      caller: { actor: "system", requestId: scan.requestId },
      outcome: ending.status === "completed" ? "success" : "failure",
      target: { type: "scan", id: scan.scanId },
      details: {
        mode: scan.mode,
        status: ending.status,
        vaults: scan.vaultsTotal,
        vaultsDone: ending.vaultsDone,
        vaultsFailed: ending.vaultsFailed,
        subscriptionsFailed: unreadSubscriptions(scan.subscriptionOutcomes).length,
        unreadSubscriptions: subscriptionTitles(unreadSubscriptions(scan.subscriptionOutcomes)),
        added: ending.tally.added,
        updated: ending.tally.updated,
        removed: ending.tally.removed,
      },
    } as const;
    let row = scan;
    /** Called if the entry gets a new ID. The stored ID is used again if another worker repeats this step. */
    const storeEntryId = async (entryId: string) => {
      row = await tables.replace(Scans, { ...row, ending: { ...ending, entryId } });
    };
    try {
      await recordRunEnd(audit, event, { storeEntryId, clock, randomness });
      return row;
    } catch (error) {
      if (error instanceof RowChanged && error.table === Scans.table) return undefined;
      throw error;
    }
  }

  return { finish, fail };
}
