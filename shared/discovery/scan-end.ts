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
  addTally,
  BEYOND,
  DONE,
  emptyTally,
  isOver,
  PlannedVaults,
  SCAN_LIST,
  SCAN_ROW,
  type ScanRecord,
  type ScanStatus,
  Scans,
  scanPartition,
  subscriptionTitle,
  unreadSubscriptions,
  VaultOutcomes,
  WAITING,
} from "./scan.ts";
import type { Claims } from "./vault-claims.ts";

export interface EndDeps {
  tables: Tables;
  active: ActiveScanList;
  claims: Claims;
  /** Called before a scan is recorded as over, possibly more than once. */
  ended: (scan: ScanRecord) => Promise<void>;
  /** Recomputes the stored totals of the inventory. They make queries cheaper; results are correct without them. */
  renewTotals: () => Promise<void>;
  /** Called when a scan leaves the list of active scans. Starts a re-scan that waited for the scan's workers. */
  scanLeft: () => Promise<void>;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** Ends scans. Any worker can repeat each step until the scan's own row says that it is over. */
export interface ScanEnd {
  /**
   * Ends a scan that was canceled or has no waiting and no claimed vault left. Restarts a worker if vaults wait and no worker is
   * active. Does nothing while vaults are claimed, while the scan is queued and not canceled, or if the scan is over.
   *
   * @param overdue - True: ends the scan even if vaults wait or are claimed.
   */
  finish(scanId: string, overdue?: boolean): Promise<void>;
  /** Ends a scan that failed before it read any vault. */
  fail(scanId: string, failure: ScanRecord["failure"]): Promise<void>;
}

type Ending = NonNullable<ScanRecord["ending"]>;
type Decision = Omit<Ending, "entryId" | "finishedAt">;

/**
 * Number of unread subscriptions named in a log line, an audit entry or a message. The scan's `subscriptionOutcomes` has all.
 */
const MAX_NAMED_SUBSCRIPTIONS = 20;

function titlesOf(outcomes: ReturnType<typeof unreadSubscriptions>): string[] {
  const titles = outcomes.slice(0, MAX_NAMED_SUBSCRIPTIONS).map(subscriptionTitle);
  const more = outcomes.length - titles.length;
  return more > 0 ? [...titles, `and ${more} more`] : titles;
}

export function createScanEnd(deps: EndDeps): ScanEnd {
  const { tables, active, claims, ended, renewTotals, scanLeft, audit, clock, randomness, log } = deps;

  async function activeScan(scanId: string): Promise<Row<ScanRecord> | undefined> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    return scan && !isOver(scan.status) ? scan : undefined;
  }

  async function finish(scanId: string, overdue = false): Promise<void> {
    const scan = await activeScan(scanId);
    if (!scan) return;
    if (scan.ending) return await completeEnd(scan, scan.ending);
    const queued = scan.status === "queued";
    if (queued && !scan.cancelledBy) return;
    // Waiting and claimed vaults are counted before the outcomes, so that a vault that finishes in between is not missed.
    const left = await countLeft(scanId);
    if (left.claimed > 0 && !overdue && !queued) return;
    const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
    if (left.waiting > 0 && inTime && !scan.cancelledBy && !overdue) return await restartWorker(scan);
    const done = await countDone(scanId);
    const unfinished = left.waiting + left.claimed > 0 || (done.incomplete > 0 && !inTime);
    const status = scan.cancelledBy ? "cancelled" : unfinished ? "timedOut" : statusOf(scan, done);
    const failure = status === "failed" ? await failureOf(scan) : undefined;
    await decide(scan, {
      status,
      vaultsDone: done.vaults,
      vaultsFailed: done.failed,
      tally: done.tally,
      ...(failure ? { failure } : {}),
    });
  }

  /** Returns the status of a scan that processed all its vaults. */
  function statusOf(scan: ScanRecord, done: Awaited<ReturnType<typeof countDone>>): ScanStatus {
    if (done.incomplete + unreadSubscriptions(scan.subscriptionOutcomes).length === 0) return "completed";
    return done.vaults === done.failed ? "failed" : "partial";
  }

  async function countDone(scanId: string) {
    const done = { vaults: 0, failed: 0, incomplete: 0, tally: emptyTally() };
    for await (const rows of tables.pages(VaultOutcomes, {
      partitionKey: scanPartition(scanId),
      from: DONE,
      before: BEYOND,
      select: ["outcome", "tally"],
    })) {
      for (const { outcome, tally } of rows) {
        addTally(done.tally, tally);
        done.vaults++;
        if (outcome === "failed" || outcome === "skipped") done.failed++;
        if (outcome !== "succeeded" && outcome !== "removed") done.incomplete++;
      }
    }
    return done;
  }

  async function countLeft(scanId: string): Promise<{ waiting: number; claimed: number }> {
    const left = { waiting: 0, claimed: 0 };
    for await (const rows of tables.pages(PlannedVaults, {
      partitionKey: scanPartition(scanId),
      from: WAITING,
      before: DONE,
      select: ["name"],
    })) {
      for (const row of rows) row.rowKey.startsWith(WAITING) ? left.waiting++ : left.claimed++;
    }
    return left;
  }

  /** Returns why no vault of a scan could be read: its unread subscriptions, or the first failure of a vault. */
  async function failureOf(scan: ScanRecord): Promise<ScanRecord["failure"]> {
    const unread = unreadSubscriptions(scan.subscriptionOutcomes);
    const first = unread[0]?.failure;
    if (first) {
      const which = `${unread.length} of ${scan.subscriptionOutcomes.length} subscriptions could not be read: ${titlesOf(unread).join(", ")}`;
      return { ...first, message: `No vault could be read, since ${which}. The first failure: ${first.message}` };
    }
    const range = { partitionKey: scanPartition(scan.scanId), from: DONE, before: BEYOND };
    for await (const rows of tables.pages(VaultOutcomes, { ...range, select: ["vaultName", "failures"] })) {
      const named = rows.find(({ failures }) => failures.length > 0);
      if (!named) continue;
      const { code, message, remedy, at } = named.failures[0]!;
      return { code, message: `No vault could be read. The first, ${named.vaultName}: ${message}`, remedy, at };
    }
    // All vaults are in back-off because their last scans failed.
    return {
      code: "skipped",
      message: "No vault was read: the scans before failed at each of them, and they are left alone for a while.",
      remedy: "Wait, or start a scan with the mode force.",
      at: clock.now().toISOString(),
    };
  }

  /**
   * Restarts one worker when vaults wait and no worker is active, which happens if a chain broke before it could send its
   * message.
   */
  async function restartWorker(scan: ScanRecord): Promise<void> {
    const { scanId } = scan;
    const waiting = await claims.waiting(scan);
    if (!waiting) return;
    try {
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), claims.take(waiting, undefined).operations);
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
    await decide(scan, {
      status: "failed",
      vaultsDone: 0,
      vaultsFailed: 0,
      tally: emptyTally(),
      ...(failure ? { failure } : {}),
    });
  }

  /**
   * Stores the outcome. From then on the outcome is final, and any worker can repeat the remaining steps of the end. If the scan's
   * row changed since it was read, another worker, or the message of a cancellation, ends the scan.
   */
  async function decide(scan: Row<ScanRecord>, decision: Decision): Promise<void> {
    const now = clock.now();
    const ending = { ...decision, finishedAt: now.toISOString(), entryId: randomness.ulid(now) };
    const decided = await undefinedIfChanged(tables.replace(Scans, { ...scan, ending }));
    if (decided) await completeEnd(decided, ending);
  }

  async function completeEnd(scan: Row<ScanRecord>, ending: Ending): Promise<void> {
    const recorded = await recordEnd(scan, ending);
    if (!recorded) return;
    const { entryId: _, ...result } = ending;
    const over = { ...recorded, ...result, ending: undefined };
    await tables.put(Scans, SCAN_LIST, newestFirst(scan.scanId), withoutKeys(over));
    if (await active.leave(scan.scanId)) await scanLeft();
    const [renewed] = await Promise.allSettled([renewTotals()]);
    await ended(withoutKeys(over));
    if (await undefinedIfChanged(tables.replace(Scans, over))) {
      const unread = unreadSubscriptions(scan.subscriptionOutcomes);
      const ended = {
        scanId: scan.scanId,
        status: result.status,
        subscriptionsFailed: unread.length,
        unreadSubscriptions: titlesOf(unread),
        vaultsFailed: result.vaultsFailed,
      };
      log.info("A scan is over", ended, "event");
      const seconds = (Date.parse(result.finishedAt) - Date.parse(scan.startedAt ?? scan.createdAt)) / SECOND_MS;
      recordMetric("scan.duration", Math.max(0, seconds), { mode: scan.mode, status: result.status });
      recordMetric("vaults.failed", result.vaultsFailed);
    }
    // The scan is over. Throwing makes the failure visible; the next scan's end or the reconciliation recomputes the totals.
    if (renewed.status === "rejected") throw renewed.reason;
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
        unreadSubscriptions: titlesOf(unreadSubscriptions(scan.subscriptionOutcomes)),
        added: ending.tally.added,
        updated: ending.tally.updated,
        removed: ending.tally.removed,
      },
    } as const;
    let row = scan;
    const storeEntryId = async (entryId: string) => {
      row = await tables.replace(Scans, { ...row, ending: { ...ending, entryId } });
    };
    try {
      await recordRunEnd(audit, event, { keep: storeEntryId, clock, randomness });
      return row;
    } catch (error) {
      if (error instanceof RowChanged && error.table === Scans.table) return undefined;
      throw error;
    }
  }

  return { finish, fail };
}
