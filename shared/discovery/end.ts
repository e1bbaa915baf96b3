import type { Audit } from "../audit/audit.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { RowChanged, type Tables } from "../platform/storage/tables.ts";
import { recordMetric } from "../platform/telemetry.ts";
import { SECOND_MS } from "../platform/time.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { ActiveScanList } from "./active.ts";
import type { Claims } from "./claims.ts";
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

export interface EndDeps {
  tables: Tables;
  active: ActiveScanList;
  claims: Claims;
  /** Told before a scan is recorded as over; may be told twice. */
  ended: (scan: ScanRecord) => Promise<void>;
  /** Counts the inventory anew, so that questions about all of it read less. What they are answered is right without. */
  renewTotals: () => Promise<void>;
  /** Has what waited for the scan's workers begun. */
  scanLeft: () => Promise<void>;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/** The end of scans. Each of its steps may be done again, by any worker, until the scan's own row says that it is over. */
export interface ScanEnd {
  /**
   * Ends a scan none of whose vaults waits or is claimed, or that was cancelled; starts a chain again that was lost, where
   * vaults wait and nobody works. Does nothing while vaults are claimed, or when the scan is over.
   *
   * @param overdue - Ends it although vaults wait or are claimed.
   */
  finish(scanId: string, overdue?: boolean): Promise<void>;
  /** Ends a scan that never came to its vaults. */
  fail(scanId: string, failure: ScanRecord["failure"]): Promise<void>;
}

type Ending = NonNullable<ScanRecord["ending"]>;
type Decision = Omit<Ending, "entryId" | "finishedAt">;

/** Subscriptions that a log line, an audit entry and a message name; all are in the scan's `subscriptionOutcomes`. */
const MAX_NAMED_SUBSCRIPTIONS = 20;

function namedOf(outcomes: ReturnType<typeof unreadSubscriptions>): string[] {
  const titles = outcomes.slice(0, MAX_NAMED_SUBSCRIPTIONS).map(subscriptionTitle);
  const more = outcomes.length - titles.length;
  return more > 0 ? [...titles, `and ${more} more`] : titles;
}

export function createScanEnd(deps: EndDeps): ScanEnd {
  const { tables, active, claims, ended, renewTotals, scanLeft, audit, clock, randomness, log } = deps;

  async function notOver(scanId: string): Promise<Row<ScanRecord> | undefined> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    return scan && !isOver(scan.status) ? scan : undefined;
  }

  async function finish(scanId: string, overdue = false): Promise<void> {
    const scan = await notOver(scanId);
    if (!scan) return;
    if (scan.ending) return await complete(scan, scan.ending);
    const queued = scan.status === "queued";
    if (queued && !scan.cancelledBy) return;
    // Before the outcomes are read, so that none of a vault that ends meanwhile is left out.
    const left = await countLeft(scanId);
    if (left.claimed > 0 && !overdue && !queued) return;
    const inTime = scan.deadline !== undefined && clock.now().toISOString() < scan.deadline;
    if (left.waiting > 0 && inTime && !scan.cancelledBy && !overdue) return await revive(scan);
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

  /** How a scan ended that came to all its vaults. */
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

  /** Why a scan failed of which nothing succeeded: the subscriptions that it could not read, else the first failure of a vault. */
  async function failureOf(scan: ScanRecord): Promise<ScanRecord["failure"]> {
    const unread = unreadSubscriptions(scan.subscriptionOutcomes);
    const first = unread[0]?.failure;
    if (first) {
      const which = `${unread.length} of ${scan.subscriptionOutcomes.length} subscriptions could not be read: ${namedOf(unread).join(", ")}`;
      return { ...first, message: `No vault could be read, since ${which}. The first failure: ${first.message}` };
    }
    const range = { partitionKey: scanPartition(scan.scanId), from: DONE, before: BEYOND };
    for await (const rows of tables.pages(VaultOutcomes, { ...range, select: ["vaultName", "failures"] })) {
      const named = rows.find(({ failures }) => failures.length > 0);
      if (!named) continue;
      const { code, message, remedy, at } = named.failures[0]!;
      return { code, message: `No vault could be read. The first, ${named.vaultName}: ${message}`, remedy, at };
    }
    // All of them were left alone: their last scans failed lately.
    return {
      code: "skipped",
      message: "No vault was read: the scans before failed at each of them, and they are left alone for a while.",
      remedy: "Wait, or start a scan with the mode force.",
      at: clock.now().toISOString(),
    };
  }

  /** Vaults wait and nobody works: a chain broke where nothing could send it on. One claim starts it again. */
  async function revive(scan: ScanRecord): Promise<void> {
    const { scanId } = scan;
    const waiting = await claims.waiting(scan);
    if (!waiting) return;
    try {
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), claims.take(waiting, undefined).operations);
    } catch (error) {
      if (isConflict(error)) return; // Another one starts it.
      throw error;
    }
    await claims.send(scanId, waiting.index);
  }

  async function fail(scanId: string, failure: ScanRecord["failure"]): Promise<void> {
    const scan = await notOver(scanId);
    if (!scan) return;
    if (scan.ending) return await complete(scan, scan.ending);
    await decide(scan, {
      status: "failed",
      vaultsDone: 0,
      vaultsFailed: 0,
      tally: emptyTally(),
      ...(failure ? { failure } : {}),
    });
  }

  /**
   * From here on the outcome stands, whoever writes the rest of the end and however often. A scan that another worker
   * changes in this moment is ended by that one, or cancelled and ended by the message that follows.
   */
  async function decide(scan: Row<ScanRecord>, decision: Decision): Promise<void> {
    const now = clock.now();
    const ending = { ...decision, finishedAt: now.toISOString(), entryId: randomness.ulid(now) };
    const decided = await undefinedIfChanged(tables.replace(Scans, { ...scan, ending }));
    if (decided) await complete(decided, ending);
  }

  async function complete(scan: Row<ScanRecord>, ending: Ending): Promise<void> {
    const entered = await enter(scan, ending);
    if (!entered) return;
    const { entryId: _, ...result } = ending;
    const over = { ...entered, ...result, ending: undefined };
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
        unreadSubscriptions: namedOf(unread),
        vaultsFailed: result.vaultsFailed,
      };
      log.info("A scan is over", ended, "event");
      const seconds = (Date.parse(result.finishedAt) - Date.parse(scan.startedAt ?? scan.createdAt)) / SECOND_MS;
      recordMetric("scan.duration", Math.max(0, seconds), { mode: scan.mode, status: result.status });
      recordMetric("vaults.failed", result.vaultsFailed);
    }
    // The scan is over all the same; whoever ended it fails, so that it is seen. The next end, or the reconciliation, counts.
    if (renewed.status === "rejected") throw renewed.reason;
  }

  /** Enters the end in the audit log. Answers the scan's row; undefined when another worker has changed it. */
  async function enter(scan: Row<ScanRecord>, ending: Ending): Promise<Row<ScanRecord> | undefined> {
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
        unreadSubscriptions: namedOf(unreadSubscriptions(scan.subscriptionOutcomes)),
        added: ending.tally.added,
        updated: ending.tally.updated,
        removed: ending.tally.removed,
      },
    } as const;
    let row = scan;
    const keep = async (entryId: string) => {
      row = await tables.replace(Scans, { ...row, ending: { ...ending, entryId } });
    };
    try {
      await recordRunEnd(audit, event, { keep, clock, randomness });
      return row;
    } catch (error) {
      if (error instanceof RowChanged && error.table === Scans.table) return undefined;
      throw error;
    }
  }

  return { finish, fail };
}
