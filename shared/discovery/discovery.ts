import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst, ULID } from "../platform/ulid.ts";
import type { ActiveScanList } from "./active-scans.ts";
import {
  addTally,
  BEYOND,
  CLAIMED,
  DONE,
  doneKey,
  emptyTally,
  isOver,
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
 * Number of newest scans among which the last ended one is searched. Scans of other subscriptions and of mode `force` overlap.
 */
const NEWEST_SCANS = 20;
const ENDED = [
  "scanId",
  "mode",
  "status",
  "createdAt",
  "startedAt",
  "finishedAt",
  "vaultsTotal",
  "vaultsFailed",
] as const;
export type EndedScan = Pick<ScanRecord, (typeof ENDED)[number]>;

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
   * @param scanId - An id that was claimed for this scan. If several callers use the same id, one writes the scan's row and the
   * others throw `RowExists`.
   * @throws {Problem} scanRunning when another scan covers any of the same subscriptions, unless the mode is `force`;
   * invalidRequest for a subscription that is not in scope.
   */
  start(
    request: { mode: ScanMode; subscriptions?: string[] | undefined },
    caller: Caller,
    trigger?: ScanRecord["trigger"],
    scanId?: string,
  ): Promise<ScanRecord>;
  /** @throws {Problem} notFound */
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

  async function record(scanId: string): Promise<Row<ScanRecord>> {
    const scan = isUlid(scanId) ? await tables.get(Scans, scanPartition(scanId), SCAN_ROW) : undefined;
    if (!scan) throw notFound(`The scan ${scanId.slice(0, 64)}`);
    return scan;
  }

  /** Returns the scan's current record. The list's copy is written only when a scan starts and ends. */
  async function currentRecord(copy: ScanRecord): Promise<ScanRecord> {
    if (isOver(copy.status)) return copy;
    return (await tables.get(Scans, scanPartition(copy.scanId), SCAN_ROW)) ?? copy;
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
    await active.enter({ scanId, mode: scan.mode, subscriptions, workers: 0, createdAt: scan.createdAt });
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
    const scan = await record(scanId);
    if (isOver(scan.status)) return { vaultsDone: 0, vaultsFailed: 0, ...scan, tally: scan.tally ?? emptyTally() };
    const counted = { vaultsDone: 0, vaultsFailed: 0, tally: emptyTally() };
    const range = {
      partitionKey: scanPartition(scanId),
      from: DONE,
      before: BEYOND,
      select: ["outcome" as const, "tally" as const],
    };
    for await (const rows of tables.pages(VaultOutcomes, range)) {
      for (const row of rows) {
        counted.vaultsDone++;
        if (row.outcome === "failed" || row.outcome === "skipped") counted.vaultsFailed++;
        addTally(counted.tally, row.tally);
      }
    }
    return { ...scan, ...counted };
  }

  return {
    start,
    progress,

    async results(scanId, request) {
      const scan = await progress(scanId);
      const after =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().regex(/^\d{6}$/) }), request.cursor).after;
      const wanted = request.offset + request.limit;
      const rows = await firstRows(
        tables.pages(VaultOutcomes, {
          partitionKey: scanPartition(scanId),
          ...(after === undefined ? { from: DONE } : { after: doneKey(after) }),
          before: BEYOND,
          pageSize: Math.min(1000, wanted + 1),
        }),
        wanted + 1,
      );
      const last = rows[wanted - 1];
      const items = rows.slice(request.offset, wanted);
      return {
        scan,
        page: {
          items,
          total: scan.vaultsDone,
          limit: request.limit,
          offset: request.offset,
          nextCursor: rows.length > wanted && last ? encodeCursor({ after: last.rowKey.slice(DONE.length) }) : null,
        },
      };
    },

    async list(request) {
      const cursor =
        request.cursor === undefined
          ? undefined
          : decodeCursor(z.object({ after: z.string().regex(ULID) }), request.cursor);
      const wanted = request.offset + request.limit;
      const from = cursor ? { after: newestFirst(cursor.after) } : {};
      const [rows, counted] = await Promise.all([
        firstRows(
          tables.pages(Scans, { partitionKey: SCAN_LIST, ...from, pageSize: Math.min(1000, wanted + 1) }),
          wanted + 1,
        ),
        firstRows(tables.pages(Scans, { partitionKey: SCAN_LIST, select: ["scanId"] }), MAX_COUNTED + 1),
      ]);
      const last = rows[wanted - 1];
      return {
        items: await Promise.all(rows.slice(request.offset, wanted).map(currentRecord)),
        ...(counted.length > MAX_COUNTED ? { total: null, totalAtLeast: MAX_COUNTED } : { total: counted.length }),
        limit: request.limit,
        offset: request.offset,
        nextCursor: rows.length > wanted && last ? encodeCursor({ after: last.scanId }) : null,
      };
    },

    async lastEnded() {
      const range = { partitionKey: SCAN_LIST, pageSize: NEWEST_SCANS, select: ENDED };
      const newest = await firstRows(tables.pages(Scans, range), NEWEST_SCANS);
      const endOf = ({ finishedAt, createdAt }: EndedScan) => finishedAt ?? createdAt;
      return newest
        .filter(({ status }) => isOver(status))
        .sort((a, b) => endOf(b).localeCompare(endOf(a)))
        .at(0);
    },

    async cancel(scanId, caller) {
      const scan = await record(scanId);
      const partition = scan.partitionKey;
      const event = { type: "scan.cancelled", caller, target: { type: "scan", id: scanId } };
      const cancelled = (row: Row<ScanRecord> | undefined) => {
        const status = row?.ending?.status ?? row?.status;
        if (!row || !status || isOver(status)) {
          throw new Problem("conflict", `The scan ${scanId} is over: ${status ?? "gone"}.`);
        }
        return { ...row, cancelledBy: caller.actor };
      };
      cancelled(scan);
      const mark = () => tables.modify(Scans, partition, SCAN_ROW, cancelled);
      await audited(audit, event, mark, (changed) => ({ details: { status: changed?.status } }));
      // Workers claim waiting vaults only. Without any, they end.
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
      await queues.send(QUEUES.finish, { scanId });
    },

    async startScheduled(mode, requestId) {
      try {
        await start({ mode }, { actor: "system", requestId }, "schedule");
      } catch (error) {
        if (!(error instanceof Problem) || error.code !== "scanRunning") throw error;
        log.warn("A scheduled scan was left out, since another one is running", {
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

async function firstRows<T>(pages: AsyncGenerator<T[]>, count: number): Promise<T[]> {
  const rows: T[] = [];
  for await (const page of pages) {
    rows.push(...page);
    if (rows.length >= count) break;
  }
  return rows.slice(0, count);
}
