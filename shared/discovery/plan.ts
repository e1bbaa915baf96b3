/**
 * The first step of a scan: lists the vaults, writes them as the scan's plan, and claims one vault for each worker slot. A slot
 * is the right to scan one vault at a time. All scans and re-scans share `discoveryMaxWorkers` slots.
 */
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
  DONE,
  hasEnded,
  indexText,
  PlannedVaults,
  QUEUES,
  SCAN_ROW,
  type ScanRecord,
  Scans,
  scanPartition,
  WAITING,
} from "./scan.ts";
import type { ScanEnd } from "./scan-end.ts";
import { internalFailure, MAX_CONCURRENT_VAULTS, type PlannedScan } from "./scan-worker.ts";
import type { Claims } from "./vault-claims.ts";
import { nextVault, PLAN_WORKER, plannedVault, type ScanVault } from "./vault-states.ts";

/** If other scans use all slots, the scan's message is sent again with this delay. */
const RETRY_WITHOUT_WORKER_SECONDS = 5;
/**
 * Maximum duration of listing the vaults. Must be shorter than 10 minutes: then the timer that restarts stuck scans
 * (scan-watch.ts) sends the scan's message again.
 */
export const MAX_LISTING_MS = 8 * MINUTE_MS;

export interface PlanDeps {
  tables: Tables;
  queues: Queues;
  settings: Settings;
  resourceManager: ResourceManager;
  /** Provides the scope of scans without an explicit list, and receives the subscriptions that the identity can read. */
  subscriptions: {
    watched(): Promise<WatchedSubscriptions>;
    storeReadable(seen: readonly SubscriptionResource[], complete: boolean): Promise<void>;
  };
  active: ActiveScanList;
  claims: Claims;
  end: ScanEnd;
  clock: Clock;
  randomness: Randomness;
}

/** Plans scans: lists the vaults and claims one for each worker slot. */
export interface ScanPlan {
  /**
   * Plans a queued scan. After a duplicate delivery two workers may plan at the same time. Each step replaces the scan's row by
   * its ETag. So the worker that wrote last continues, and the other one stops at its next step and can't overwrite a running
   * scan.
   *
   * @param delivery - 1 for the message's first delivery.
   * @returns the vaults that the caller scans, if any. For each further claimed vault, a message starts another worker.
   */
  plan(scanId: string, delivery: number): Promise<PlannedScan | undefined>;
  /** Ends a scan whose plan failed five times. */
  planFailed(scanId: string): Promise<void>;
}

export function createScanPlan(deps: PlanDeps): ScanPlan {
  const { tables, queues, active, claims, end, clock, randomness } = deps;

  async function plan(scanId: string, delivery: number): Promise<PlannedScan | undefined> {
    const row = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (!row || hasEnded(row.status)) return undefined;
    if (row.status === "running") {
      // A second delivery follows a crash or failure during the scan of vaults. It sends messages for the vaults that this
      // message's worker had claimed. If no vault is claimed, it ends the scan. A duplicate of the first delivery has nothing
      // to do.
      if (delivery > 1 && (await claims.resendClaimed(scanId, PLAN_WORKER)) === 0) await end.finish(scanId);
      return undefined;
    }
    if (row.cancelledBy) return await endPlan(end.finish(scanId));
    // From here on, any other invocation that plans this scan fails at its next step.
    const scan = await undefinedIfChanged(tables.replace(Scans, { ...row, planner: newPlannerId() }));
    if (!scan) return undefined;
    const settings = await deps.settings.values();
    // One slot is enough while the vaults are listed. How many the scan needs is known only afterwards.
    const planningSlots = await active.takeWorkers(scanId, 1, settings.discoveryMaxWorkers);
    if (planningSlots === 0) {
      return await endPlan(queues.send(QUEUES.plan, { scanId }, { delaySeconds: RETRY_WITHOUT_WORKER_SECONDS }));
    }
    let planned: VaultPlan;
    try {
      planned = await planVaults(scan, {
        tables,
        resourceManager: deps.resourceManager,
        watched: () => deps.subscriptions.watched(),
        onSubscriptionsListed: (subscriptions, complete) => deps.subscriptions.storeReadable(subscriptions, complete),
        clock,
        signal: AbortSignal.timeout(Math.min(MAX_LISTING_MS, settings.discoveryScanTimeout * SECOND_MS)),
      });
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      return await endPlan(end.fail(scanId, failureRecord(error, clock.now().toISOString())));
    }
    if (planned.subscriptions.length === 0) return await endPlan(end.fail(scanId, nothingWatchedFailure(clock)));
    // At least one, even if other scans use all slots by now: then the limit is exceeded by one.
    const neededSlots = Math.max(1, planned.vaults.length);
    const slots = Math.max(1, await active.takeWorkers(scanId, neededSlots, settings.discoveryMaxWorkers));
    // The caller scans up to `MAX_CONCURRENT_VAULTS` vaults itself. For each further slot, a message starts a worker.
    const vaults = planned.vaults.map((vault, position) => {
      const waiting = plannedVault(indexText(position), vault);
      const worker = position < MAX_CONCURRENT_VAULTS ? PLAN_WORKER : undefined;
      return position < slots ? nextVault(waiting, { type: "claimed", worker })! : waiting;
    });
    const writtenPlan = await undefinedIfChanged(writeVaults(scan, vaults));
    if (!writtenPlan) return undefined;
    const now = clock.now();
    const running = await startRunning({
      ...writtenPlan.scan,
      status: "running",
      startedAt: now.toISOString(),
      deadline: new Date(now.getTime() + settings.discoveryScanTimeout * SECOND_MS).toISOString(),
      vaultsTotal: vaults.length,
      subscriptionOutcomes: planned.subscriptions,
    });
    if (!running) return undefined;
    if (vaults.length === 0) return await endPlan(end.finish(scanId));
    await Promise.all(vaults.slice(MAX_CONCURRENT_VAULTS, slots).map(({ index }) => claims.send(scanId, index)));
    return {
      scan: withoutKeys(running),
      claims: vaults.slice(0, Math.min(slots, MAX_CONCURRENT_VAULTS)),
      waiting: vaults.slice(slots).map((vault) => ({ ...vault, etag: writtenPlan.etags.get(vault.rowKey)! })),
    };
  }

  /** Sets the scan to running. Returns undefined if another worker plans it or if it has ended. */
  async function startRunning(scan: Row<ScanRecord>): Promise<Row<ScanRecord> | undefined> {
    const running = await undefinedIfChanged(tables.replace(Scans, scan));
    if (running) return running;
    // The row may have changed because this write was applied and its response lost, or because the scan was canceled
    // meanwhile. In both cases this worker's claims exist, so it must scan them.
    const currentScan = await tables.get(Scans, scan.partitionKey, SCAN_ROW);
    return currentScan?.status === "running" && currentScan.planner === scan.planner ? currentScan : undefined;
  }

  /**
   * Writes the plan's rows and removes those of an interrupted plan. Each transaction also replaces the scan's row by its ETag.
   * So it fails if another worker plans the scan or if the scan is running.
   *
   * @returns the scan's row, and the ETags of the plan's rows by key.
   * @throws {RowChanged} if another worker has changed the scan's row.
   */
  async function writeVaults(
    scan: Row<ScanRecord>,
    vaults: readonly ScanVault[],
  ): Promise<{ scan: Row<ScanRecord>; etags: Map<string, string> }> {
    const rows = new Map(vaults.map(({ rowKey, vault }) => [rowKey, vault]));
    const operations: Operation[] = [...rows].map(([key, row]) => put(PlannedVaults, key, row));
    const range = { partitionKey: scan.partitionKey, from: WAITING, before: DONE };
    for await (const staleRows of tables.pages(PlannedVaults, { ...range, select: [] })) {
      for (const row of staleRows) if (!rows.has(row.rowKey)) operations.push(remove(PlannedVaults, row.rowKey));
    }
    let { etag } = scan;
    const etags = new Map<string, string>();
    for (let start = 0; start < operations.length; start += MAX_TRANSACTION_OPERATIONS - 1) {
      // Requires the ETag of this planner's last write, so the whole transaction fails if another planner wrote in between. The
      // new ID distinguishes this write from another planner's if the storage service's answer is lost.
      const scanRowWrite = replace(Scans, SCAN_ROW, { ...withoutKeys(scan), planner: newPlannerId() }, etag);
      const part = operations.slice(start, start + MAX_TRANSACTION_OPERATIONS - 1);
      const written = await tables.transaction(PlannedVaults.table, scan.partitionKey, [scanRowWrite, ...part]);
      for (const [key, value] of written) etags.set(key, value);
      etag = written.get(SCAN_ROW)!;
    }
    return { scan: { ...scan, etag }, etags };
  }

  /** Awaits the last step and returns undefined: the caller has nothing to scan. */
  async function endPlan(lastStep: Promise<void>): Promise<undefined> {
    await lastStep;
  }

  async function planFailed(scanId: string): Promise<void> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    // The scan was planned after all. Its vaults have messages, or the timer that restarts stuck scans (scan-watch.ts) sends
    // them.
    if (scan?.status === "running") return;
    await end.fail(scanId, internalFailure(clock, "The scan could not be planned in five attempts."));
  }

  const newPlannerId = (): string => randomness.ulid(clock.now());

  return { plan, planFailed };
}

/** The failure of a scan without subscriptions. An empty scan must not be reported as "no changes". */
const nothingWatchedFailure = (clock: Clock) => ({
  code: "nothingWatched",
  message: "There is no subscription to scan: none is monitored, or the service's identity can read none.",
  remedy: `For each subscription to scan, assign ${INVENTORY_READER} to the identity. If the setting to monitor all subscriptions (watchAll) is off, add the subscription on the Vaults page or with POST /subscriptions.`,
  at: clock.now().toISOString(),
});
