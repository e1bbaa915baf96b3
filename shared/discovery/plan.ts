import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager, SubscriptionResource } from "../platform/azure/resource-manager.ts";
import { INVENTORY_READER } from "../platform/azure/watch-roles.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { MAX_TRANSACTION_OPERATIONS } from "../platform/storage/limits.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { ActiveScanList } from "./active-scans.ts";
import { planVaults, type VaultPlan, type WatchedSubscriptions } from "./plan-vaults.ts";
import { failureRecord } from "./read-list.ts";
import {
  claimedKey,
  DONE,
  indexAt,
  isOver,
  type PlannedVault,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
  WAITING,
  waitingKey,
} from "./scan.ts";
import type { ScanEnd } from "./scan-end.ts";
import { internalFailure, type PlannedScan, VAULTS_AT_ONCE } from "./scan-worker.ts";
import { type Claims, PLAN_WORKER } from "./vault-claims.ts";

/** How long a scan waits for workers of other scans before it asks again. */
const NO_WORKER_DELAY_SECONDS = 5;
/** Longest duration of the listing of vaults. Shorter than the time after which the watch restarts the plan. */
export const LISTING_MS = 8 * MINUTE_MS;

export interface PlanDeps {
  tables: Tables;
  queues: Queues;
  settings: Settings;
  resourceManager: ResourceManager;
  /** Provides the scope of scans without an explicit list, and receives the subscriptions that the identity can read. */
  subscriptions: {
    watched(): Promise<WatchedSubscriptions>;
    discovered(seen: readonly SubscriptionResource[], complete: boolean): Promise<void>;
  };
  active: ActiveScanList;
  claims: Claims;
  end: ScanEnd;
  clock: Clock;
  randomness: Randomness;
}

/** Plans scans: lists the vaults and claims one for each worker. */
export interface ScanPlan {
  /**
   * Plans a queued scan. Two workers may plan at once after a duplicate delivery. The one that changed the scan's row last
   * continues and the other stops at its next step, so that a late plan cannot overwrite a running scan.
   *
   * @param delivery - 1 for the message's first delivery.
   * @returns the vaults that the caller scans, if any. Messages are sent for further workers.
   */
  plan(scanId: string, delivery: number): Promise<PlannedScan | undefined>;
  /** Ends a scan whose plan failed five times. */
  planFailed(scanId: string): Promise<void>;
}

export function createScanPlan(deps: PlanDeps): ScanPlan {
  const { tables, queues, active, claims, end, clock, randomness } = deps;

  async function plan(scanId: string, delivery: number): Promise<PlannedScan | undefined> {
    const row = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (!row || isOver(row.status)) return undefined;
    if (row.status === "running") {
      // The previous delivery crashed or failed while it scanned vaults. A duplicate of the first delivery has nothing to do.
      if (delivery > 1 && (await claims.resendClaimed(scanId, PLAN_WORKER)) === 0) await end.finish(scanId);
      return undefined;
    }
    if (row.cancelledBy) return await endPlan(end.finish(scanId));
    const scan = await undefinedIfChanged(tables.replace(Scans, { ...row, planner: planner() }));
    if (!scan) return undefined;
    const settings = await deps.settings.values();
    const free = await active.takeWorkers(scanId, 1, settings.discoveryMaxWorkers);
    if (free === 0) {
      return await endPlan(queues.send(QUEUES.plan, { scanId }, { delaySeconds: NO_WORKER_DELAY_SECONDS }));
    }
    let planned: VaultPlan;
    try {
      planned = await planVaults(scan, {
        tables,
        resourceManager: deps.resourceManager,
        watched: () => deps.subscriptions.watched(),
        seen: (subscriptions, complete) => deps.subscriptions.discovered(subscriptions, complete),
        clock,
        signal: AbortSignal.timeout(Math.min(LISTING_MS, settings.discoveryScanTimeout * SECOND_MS)),
      });
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      return await endPlan(end.fail(scanId, failureRecord(error, clock.now().toISOString())));
    }
    if (planned.subscriptions.length === 0) return await endPlan(end.fail(scanId, nothingWatchedFailure(clock)));
    const wanted = Math.max(1, planned.vaults.length);
    const workers = Math.max(1, await active.takeWorkers(scanId, wanted, settings.discoveryMaxWorkers));
    const vaults = planned.vaults.map((vault, at) => {
      if (at >= workers) return vault;
      return at < VAULTS_AT_ONCE ? { ...vault, begun: true, worker: PLAN_WORKER } : { ...vault, begun: false };
    });
    const written = await undefinedIfChanged(writeVaults(scan, vaults));
    if (!written) return undefined;
    const now = clock.now();
    const running = await startRunning({
      ...written.scan,
      status: "running",
      startedAt: now.toISOString(),
      deadline: new Date(now.getTime() + settings.discoveryScanTimeout * SECOND_MS).toISOString(),
      vaultsTotal: vaults.length,
      subscriptionOutcomes: planned.subscriptions,
    });
    if (!running) return undefined;
    if (vaults.length === 0) return await endPlan(end.finish(scanId));
    const rows = vaults.map((vault, at) => ({ index: indexAt(at), vault }));
    await Promise.all(rows.slice(VAULTS_AT_ONCE, workers).map(({ index }) => claims.send(scanId, index)));
    return {
      scan: withoutKeys(running),
      claims: rows
        .slice(0, Math.min(workers, VAULTS_AT_ONCE))
        .map((row) => ({ ...row, rowKey: claimedKey(row.index) })),
      waiting: rows.slice(workers).map((row) => ({ ...row, etag: written.etags.get(waitingKey(row.index))! })),
    };
  }

  /** Sets the scan to running. Undefined if another worker plans it or it is over. */
  async function startRunning(scan: Row<ScanRecord>): Promise<Row<ScanRecord> | undefined> {
    const running = await undefinedIfChanged(tables.replace(Scans, scan));
    if (running) return running;
    // The response may have been lost and the row written by a retry, or the scan was canceled in between. Its vaults are
    // claimed in any case.
    const now = await tables.get(Scans, scan.partitionKey, SCAN_ROW);
    return now?.status === "running" && now.planner === scan.planner ? now : undefined;
  }

  /**
   * Writes the plan and removes rows of an interrupted plan. Each transaction also replaces the scan's row by its ETag, so that
   * none succeeds once another worker plans or the scan runs.
   *
   * @returns the scan's row, and the ETags of the plan's rows by key.
   * @throws {RowChanged} if another worker has changed the scan's row.
   */
  async function writeVaults(
    scan: Row<ScanRecord>,
    vaults: PlannedVault[],
  ): Promise<{ scan: Row<ScanRecord>; etags: Map<string, string> }> {
    const keyOf = ({ begun }: PlannedVault, at: number) => (begun === undefined ? waitingKey : claimedKey)(indexAt(at));
    const rows = new Map(vaults.map((vault, at) => [keyOf(vault, at), vault]));
    const operations: Operation[] = [...rows].map(([key, row]) => put(PlannedVaults, key, row));
    const range = { partitionKey: scan.partitionKey, from: WAITING, before: DONE };
    for await (const left of tables.pages(PlannedVaults, { ...range, select: ["name"] })) {
      for (const row of left) if (!rows.has(row.rowKey)) operations.push(remove(PlannedVaults, row.rowKey));
    }
    let { etag } = scan;
    const etags = new Map<string, string>();
    for (let at = 0; at < operations.length; at += MAX_TRANSACTION_OPERATIONS - 1) {
      const fence = replace(Scans, SCAN_ROW, { ...withoutKeys(scan), planner: planner() }, etag);
      const part = operations.slice(at, at + MAX_TRANSACTION_OPERATIONS - 1);
      const written = await tables.transaction(PlannedVaults.table, scan.partitionKey, [fence, ...part]);
      for (const [key, value] of written) etags.set(key, value);
      etag = written.get(SCAN_ROW)!;
    }
    return { scan: { ...scan, etag }, etags };
  }

  /** Awaits the last step and returns undefined: the caller has nothing to scan. */
  async function endPlan(done: Promise<void>): Promise<undefined> {
    await done;
  }

  async function planFailed(scanId: string): Promise<void> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    // The vaults already have messages, or the watch sends them.
    if (scan?.status === "running") return;
    await end.fail(scanId, internalFailure(clock, "The scan could not be planned, in five tries."));
  }

  const planner = (): string => randomness.ulid(clock.now());

  return { plan, planFailed };
}

/** The failure of a scan without subscriptions. An empty scan must not be reported as "no changes". */
const nothingWatchedFailure = (clock: Clock) => ({
  code: "nothingWatched",
  message: "There is no subscription to scan: none is watched, or the service's identity sees none.",
  remedy: `For each subscription to scan, give the identity ${INVENTORY_READER}. If watchAll is false, add the subscription with POST /subscriptions.`,
  at: clock.now().toISOString(),
});
