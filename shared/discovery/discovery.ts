import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst, ULID } from "../platform/ulid.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  AFTER_DONE,
  addTally,
  CLAIMED,
  DONE,
  doneKey,
  emptyTally,
  hasEnded,
  PlannedVaults,
  QUEUES,
  SCAN_LIST,
  SCAN_ROW,
  type ScanMode,
  type ScanRecord,
  Scans,
  scanPartition,
  type VaultOutcome,
  VaultOutcomes,
  WAITING,
} from "./scan.ts";

/**
 * Scans as users and timers see them: starts, lists and cancels scans, and returns their progress. The other files of
 * this folder run the scans.
 */

/**
 * Number of newest scans among which `lastEnded` searches. Several are needed, because scans can overlap and end in another
 * order.
 */
const MAX_SEARCHED_SCANS = 20;
const ENDED_COLUMNS = [
  "scanId",
  "mode",
  "status",
  "createdAt",
  "startedAt",
  "finishedAt",
  "vaultsTotal",
  "vaultsFailed",
] as const;
export type EndedScan = Pick<ScanRecord, (typeof ENDED_COLUMNS)[number]>;

/** A scan with current counts. While it runs, its vaults are counted. */
export interface ScanProgress extends ScanRecord {
  vaultsDone: number;
  vaultsFailed: number;
  tally: NonNullable<ScanRecord["tally"]>;
}

/** Starts, lists, reads and cancels scans, for the API and timers. `scan-run.ts` handles the queues. */
export interface Discovery {
  /**
   * Writes a queued scan and sends the message that plans it.
   *
   * @param scanId - ID for the scan, from the claim of the first scan. If several callers use the same ID, one of them writes
   * the scan's row and the others throw `RowExists`. Default: a new ID.
   * @throws {Problem} scanRunning when another scan covers any of the same subscriptions, unless the mode is `force`;
   * invalidRequest for a subscription that is not in scope.
   */
  start(
    request: { mode: ScanMode; subscriptions?: string[] | undefined },
    caller: Caller,
    trigger?: ScanRecord["trigger"],
    scanId?: string,
  ): Promise<ScanRecord>;
  /** Returns a scan with its current counts. @throws {Problem} notFound */
  progress(scanId: string): Promise<ScanProgress>;
  /**
   * Returns the outcomes of finished vaults in the order of the plan: by subscription and name.
   *
   * @throws {Problem} notFound, invalidCursor
   */
  results(scanId: string, request: PageRequest): Promise<{ scan: ScanProgress; page: Page<VaultOutcome> }>;
  /**
   * Lists scans, newest first.
   *
   * @throws {Problem} invalidCursor
   */
  list(request: PageRequest): Promise<Page<ScanRecord>>;
  /** Returns the last ended of the newest 20 scans. Undefined before the first end. One request. */
  lastEnded(): Promise<EndedScan | undefined>;
  /**
   * Cancels a scan. Vaults in progress are finished, waiting ones are not started.
   *
   * @throws {Problem} notFound; conflict when the scan is over.
   */
  cancel(scanId: string, caller: Caller): Promise<void>;
  /** Starts a scheduled scan, or skips it while another scan is in progress. */
  startScheduled(mode: "full" | "delta", requestId: string): Promise<void>;
  /** Records in the audit log that a scheduled scan could not be started in five attempts. */
  scheduledFailed(mode: "full" | "delta", requestId: string): Promise<void>;
}

export interface DiscoveryDeps {
  tables: Tables;
  queues: Queues;
  active: ActiveScanList;
  /**
   * Throws if a subscription is not in scope.
   *
   * @throws {Problem} invalidRequest with the subscriptions.
   */
  requireWatched: (subscriptionIds: readonly string[]) => Promise<void>;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

export function createDiscovery(deps: DiscoveryDeps): Discovery {
  const { tables, queues, active, audit, clock, log } = deps;

  async function readScan(scanId: string): Promise<Row<ScanRecord>> {
    const scan = isUlid(scanId) ? await tables.get(Scans, scanPartition(scanId), SCAN_ROW) : undefined;
    if (!scan) throw notFound(`The scan ${scanId.slice(0, 64)}`);
    return scan;
  }

  /** Returns the scan's current record for a copy in the list, which is written only when a scan starts and ends. */
  async function currentRecord(copy: ScanRecord): Promise<ScanRecord> {
    if (hasEnded(copy.status)) return copy;
    return (await undefinedIfLeftOut(tables.get(Scans, scanPartition(copy.scanId), SCAN_ROW))) ?? copy;
  }

  async function start(
    request: { mode: ScanMode; subscriptions?: string[] | undefined },
    caller: Caller,
    trigger: ScanRecord["trigger"] = "api",
    claimedId?: string,
  ): Promise<ScanRecord> {
    const now = clock.now();
    const scanId = claimedId ?? deps.randomness.ulid(now);
    const subscriptions = request.subscriptions?.length
      ? [...new Set(request.subscriptions.map((id) => id.toLowerCase()))]
      : undefined;
    if (subscriptions) await deps.requireWatched(subscriptions);
    const scan: ScanRecord = {
      scanId,
      mode: request.mode,
      ...(subscriptions ? { subscriptions } : {}),
      status: "queued",
      trigger,
      requestedBy: caller.actor,
      requestId: caller.requestId,
      createdAt: now.toISOString(),
      vaultsTotal: 0,
      subscriptionOutcomes: [],
    };
    // First, so that no overlapping scan can start. If this process crashes before it stores the scan, the entry is removed after
    // a minute (`isAlive`).
    await active.add({ scanId, mode: scan.mode, subscriptions, workers: 0, createdAt: scan.createdAt });
    // The end of the scan records the outcome of this intent.
    await audit.append({
      type: "scan.started",
      caller,
      outcome: "intent",
      target: { type: "scan", id: scanId },
      details: { mode: scan.mode, trigger, subscriptions: subscriptions ?? "all" },
    });
    await tables.insert(Scans, scanPartition(scanId), SCAN_ROW, scan);
    await tables.put(Scans, SCAN_LIST, newestFirst(scanId), scan);
    await queues.send(QUEUES.plan, { scanId });
    return scan;
  }

  async function progress(scanId: string): Promise<ScanProgress> {
    const scan = await readScan(scanId);
    if (hasEnded(scan.status)) return { vaultsDone: 0, vaultsFailed: 0, ...scan, tally: scan.tally ?? emptyTally() };
    const counts = { vaultsDone: 0, vaultsFailed: 0, tally: emptyTally() };
    const range = {
      partitionKey: scanPartition(scanId),
      from: DONE,
      before: AFTER_DONE,
      select: ["outcome" as const, "tally" as const],
    };
    for await (const rows of tables.pages(VaultOutcomes, range)) {
      for (const row of rows) {
        counts.vaultsDone++;
        // A vault is skipped for some time after its scans failed.
        if (row.outcome === "failed" || row.outcome === "skipped") counts.vaultsFailed++;
        addTally(counts.tally, row.tally);
      }
    }
    return { ...scan, ...counts };
  }

  return {
    start,
    progress,

    async results(scanId, request) {
      const scan = await progress(scanId);
      const afterKey =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().regex(/^\d{6}$/) }), request.cursor).after;
      const rowsNeeded = request.offset + request.limit;
      const rows = await readFirstRows(
        tables.pages(VaultOutcomes, {
          partitionKey: scanPartition(scanId),
          ...(afterKey === undefined ? { from: DONE } : { after: doneKey(afterKey) }),
          before: AFTER_DONE,
          pageSize: Math.min(1000, rowsNeeded + 1),
        }),
        rowsNeeded + 1,
      );
      const lastRow = rows[rowsNeeded - 1];
      const items = rows.slice(request.offset, rowsNeeded);
      return {
        scan,
        page: {
          items,
          total: scan.vaultsDone,
          limit: request.limit,
          offset: request.offset,
          nextCursor:
            rows.length > rowsNeeded && lastRow ? encodeCursor({ after: lastRow.rowKey.slice(DONE.length) }) : null,
        },
      };
    },

    async list(request) {
      const cursor =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().regex(ULID) }), request.cursor);
      const rowsNeeded = request.offset + request.limit;
      const from = cursor ? { after: newestFirst(cursor.after) } : {};
      const [rows, countedRows] = await Promise.all([
        readFirstRows(
          tables.pages(Scans, { partitionKey: SCAN_LIST, ...from, pageSize: Math.min(1000, rowsNeeded + 1) }),
          rowsNeeded + 1,
        ),
        readFirstRows(tables.pages(Scans, { partitionKey: SCAN_LIST, select: ["scanId"] }), MAX_COUNTED + 1),
      ]);
      const lastRow = rows[rowsNeeded - 1];
      return {
        items: await Promise.all(rows.slice(request.offset, rowsNeeded).map(currentRecord)),
        ...(countedRows.length > MAX_COUNTED
          ? { total: null, totalAtLeast: MAX_COUNTED }
          : { total: countedRows.length }),
        limit: request.limit,
        offset: request.offset,
        nextCursor: rows.length > rowsNeeded && lastRow ? encodeCursor({ after: lastRow.scanId }) : null,
      };
    },

    async lastEnded() {
      const range = { partitionKey: SCAN_LIST, pageSize: MAX_SEARCHED_SCANS, select: ENDED_COLUMNS };
      const newest = await readFirstRows(tables.pages(Scans, range), MAX_SEARCHED_SCANS);
      const endTimeOf = ({ finishedAt, createdAt }: EndedScan) => finishedAt ?? createdAt;
      return newest
        .filter(({ status }) => hasEnded(status))
        .sort((a, b) => endTimeOf(b).localeCompare(endTimeOf(a)))
        .at(0);
    },

    async cancel(scanId, caller) {
      const scan = await readScan(scanId);
      const partition = scan.partitionKey;
      const event = { type: "scan.cancelled", caller, target: { type: "scan", id: scanId } };
      const withCancellation = (row: Row<ScanRecord> | undefined) => {
        // `ending`: the decided final status, while the last steps of the scan are still being written.
        const status = row?.ending?.status ?? row?.status;
        if (!row || !status || hasEnded(status)) {
          throw new Problem("conflict", `The scan ${scanId} has already ended: ${status ?? "removed"}.`);
        }
        return { ...row, cancelledBy: caller.actor };
      };
      // Rejects a scan that has ended before the audit log records the intent to cancel it.
      withCancellation(scan);
      const writeCancellation = () => tables.modify(Scans, partition, SCAN_ROW, withCancellation);
      await audited(audit, event, writeCancellation, (changed) => ({ details: { status: changed?.status } }));
      // Remove the waiting vaults, so that workers find no further vault and end.
      for await (const rows of tables.pages(PlannedVaults, {
        partitionKey: partition,
        from: WAITING,
        before: CLAIMED,
        select: [],
      })) {
        await tables.write(
          PlannedVaults.table,
          partition,
          rows.map((row) => remove(PlannedVaults, row.rowKey)),
        );
      }
      // Ends the scan if no vault is claimed. Otherwise the worker of the last claimed vault ends it.
      await queues.send(QUEUES.finish, { scanId });
    },

    async startScheduled(mode, requestId) {
      try {
        await start({ mode }, { actor: "system", requestId }, "schedule");
      } catch (error) {
        if (!(error instanceof Problem) || error.code !== "scanRunning") throw error;
        log.warn("A scheduled scan was skipped, because another scan is in progress", {
          mode,
          running: error.members.scanId,
        });
        await audit.append({
          type: "scan.skipped",
          caller: { actor: "system", requestId },
          outcome: "failure",
          details: { mode, runningScan: error.members.scanId },
        });
      }
    },

    async scheduledFailed(mode, requestId) {
      log.error("A scheduled scan could not be started", { mode });
      await audit.append({
        type: "scan.startFailed",
        caller: { actor: "system", requestId },
        outcome: "failure",
        details: { mode },
      });
    },
  };
}

async function readFirstRows<T>(pages: AsyncGenerator<T[]>, count: number): Promise<T[]> {
  const rows: T[] = [];
  for await (const page of pages) {
    rows.push(...page);
    if (rows.length >= count) break;
  }
  return rows.slice(0, count);
}
