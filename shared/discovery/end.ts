import type { Audit } from "../audit/audit.ts";
import { IntervalSealed } from "../audit/interval.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import { isConflict, unlessChanged } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { measure } from "../telemetry.ts";
import { SECOND_MS } from "../time.ts";
import { newestFirst } from "../ulid.ts";
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
  VaultOutcomes,
  WAITING,
} from "./scan.ts";

export interface EndDeps {
  tables: Tables;
  active: ActiveScanList;
  claims: Claims;
  /** Told before a scan is recorded as over; may be told twice. */
  ended: () => Promise<void>;
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

/** How many ids the entry of an end may get in one go; more than two takes a clock that is wrong. */
const ENTRY_ATTEMPTS = 3;

type Ending = NonNullable<ScanRecord["ending"]>;
type Decision = Omit<Ending, "entryId" | "finishedAt">;

export function createScanEnd({ tables, active, claims, ended, audit, clock, randomness, log }: EndDeps): ScanEnd {
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
    if (left.waiting > 0 && inTime && !scan.cancelledBy && !overdue) return await revive(scanId);
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
    const failedSubscriptions = scan.subscriptionOutcomes.filter((one) => one.failure).length;
    if (done.incomplete + failedSubscriptions === 0) return "completed";
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

  /** Why a scan failed of which nothing succeeded: the first subscription's failure, else the first vault's. */
  async function failureOf(scan: ScanRecord): Promise<ScanRecord["failure"]> {
    const subscription = scan.subscriptionOutcomes.find((one) => one.failure);
    if (subscription?.failure) return subscription.failure;
    const range = { partitionKey: scanPartition(scan.scanId), from: DONE, before: BEYOND, pageSize: 1 };
    for await (const [first] of tables.pages(VaultOutcomes, { ...range, select: ["vaultName", "failures"] })) {
      const failure = first?.failures[0];
      if (!failure) return undefined;
      const message = `No vault could be read. The first, ${first.vaultName}: ${failure.message}`;
      return { code: failure.code, message, remedy: failure.remedy, at: failure.at };
    }
    return undefined;
  }

  /** Vaults wait and nobody works: a chain broke where nothing could send it on. One claim starts it again. */
  async function revive(scanId: string): Promise<void> {
    const next = await claims.next(scanId, 0, false);
    if (!next) return;
    try {
      await tables.transaction(PlannedVaults.table, scanPartition(scanId), next.operations);
    } catch (error) {
      if (isConflict(error)) return; // Another one starts it.
      throw error;
    }
    await claims.send(scanId, next);
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
    const decided = await unlessChanged(tables.replace(Scans, { ...scan, ending }));
    if (decided) await complete(decided, ending);
  }

  async function complete(scan: Row<ScanRecord>, ending: Ending): Promise<void> {
    const entered = await enter(scan, ending);
    if (!entered) return;
    const { entryId: _, ...result } = ending;
    const over = { ...entered, ...result, ending: undefined };
    await tables.put(Scans, SCAN_LIST, newestFirst(scan.scanId), withoutKeys(over));
    await active.leave(scan.scanId);
    await ended();
    if (await unlessChanged(tables.replace(Scans, over))) {
      log.info("A scan is over", { scanId: scan.scanId, status: result.status });
      const seconds = (Date.parse(result.finishedAt) - Date.parse(scan.startedAt ?? scan.createdAt)) / SECOND_MS;
      measure("scan.duration", Math.max(0, seconds), { mode: scan.mode, status: result.status });
      measure("vaults.failed", result.vaultsFailed);
    }
  }

  /**
   * Enters the end in the audit log, once under one id. Where that can't be entered any more, a worker died long ago before
   * it could, and the end gets another id. Answers the scan's row; undefined when another worker has changed it.
   */
  async function enter(scan: Row<ScanRecord>, ending: Ending, attempt = 1): Promise<Row<ScanRecord> | undefined> {
    try {
      await audit.append({
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
          subscriptionsFailed: scan.subscriptionOutcomes.filter((one) => one.failure).length,
          added: ending.tally.added,
          updated: ending.tally.updated,
          removed: ending.tally.removed,
        },
      });
      return scan;
    } catch (error) {
      if (!(error instanceof IntervalSealed) || attempt === ENTRY_ATTEMPTS) throw error;
      const again = { ...ending, entryId: randomness.ulid(clock.now()) };
      const changed = await unlessChanged(tables.replace(Scans, { ...scan, ending: again }));
      return changed && (await enter(changed, again, attempt + 1));
    }
  }

  return { finish, fail };
}
