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
import type { ActiveScanList } from "./active.ts";
import { type Claims, PLAN_WORKER } from "./claims.ts";
import type { ScanEnd } from "./end.ts";
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
import { internalFailure, type PlannedScan, VAULTS_AT_ONCE } from "./work.ts";

/** How long a scan waits for the workers of other scans before it asks again. */
const NO_WORKER_DELAY_SECONDS = 5;
/** The longest that listing the vaults may take: shorter than the watch waits before it has the plan made again. */
export const LISTING_MS = 8 * MINUTE_MS;

export interface PlanDeps {
  tables: Tables;
  queues: Queues;
  settings: Settings;
  resourceManager: ResourceManager;
  /** Which subscriptions a scan is about that names none, and who is told what the identity sees. */
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

/** The plan of a scan: its vaults, of which as many are claimed as there may be workers. */
export interface ScanPlan {
  /**
   * Plans a queued scan. A message may come while another one's worker plans: whoever changed the scan's row last goes on,
   * and the other stops at its next step, so that no late plan lies over a scan that runs.
   *
   * @param delivery - 1 for the message's first delivery.
   * @returns what the caller has to scan, if anything. Messages are sent for more workers than one process should be.
   */
  plan(scanId: string, delivery: number): Promise<PlannedScan | undefined>;
  /** Ends a scan whose plan failed for good; the scan says why. */
  planFailed(scanId: string): Promise<void>;
}

export function createScanPlan(deps: PlanDeps): ScanPlan {
  const { tables, queues, active, claims, end, clock, randomness } = deps;

  async function plan(scanId: string, delivery: number): Promise<PlannedScan | undefined> {
    const found = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (!found || isOver(found.status)) return undefined;
    if (found.status === "running") {
      // A delivery before this one died or failed among its vaults. Any other message comes too late to be needed.
      if (delivery > 1 && (await claims.sendLeft(scanId, PLAN_WORKER)) === 0) await end.finish(scanId);
      return undefined;
    }
    if (found.cancelledBy) return await over(end.finish(scanId));
    const scan = await undefinedIfChanged(tables.replace(Scans, { ...found, planner: planner() }));
    if (!scan) return undefined;
    const settings = await deps.settings.values();
    const free = await active.takeWorkers(scanId, 1, settings.discoveryMaxWorkers);
    if (free === 0) {
      return await over(queues.send(QUEUES.plan, { scanId }, { delaySeconds: NO_WORKER_DELAY_SECONDS }));
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
      return await over(end.fail(scanId, failureRecord(error, clock.now().toISOString())));
    }
    if (planned.subscriptions.length === 0) return await over(end.fail(scanId, nothingWatched(clock)));
    const wanted = Math.max(1, planned.vaults.length);
    const workers = Math.max(1, await active.takeWorkers(scanId, wanted, settings.discoveryMaxWorkers));
    const vaults = planned.vaults.map((vault, at) => {
      if (at >= workers) return vault;
      return at < VAULTS_AT_ONCE ? { ...vault, begun: true, worker: PLAN_WORKER } : { ...vault, begun: false };
    });
    const written = await undefinedIfChanged(writeVaults(scan, vaults));
    if (!written) return undefined;
    const now = clock.now();
    const running = await begin({
      ...written.scan,
      status: "running",
      startedAt: now.toISOString(),
      deadline: new Date(now.getTime() + settings.discoveryScanTimeout * SECOND_MS).toISOString(),
      vaultsTotal: vaults.length,
      subscriptionOutcomes: planned.subscriptions,
    });
    if (!running) return undefined;
    if (vaults.length === 0) return await over(end.finish(scanId));
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

  /** From here on the scan runs. Undefined when another worker plans it, or it is over. */
  async function begin(scan: Row<ScanRecord>): Promise<Row<ScanRecord> | undefined> {
    const running = await undefinedIfChanged(tables.replace(Scans, scan));
    if (running) return running;
    // The answer may have been lost, and the scan cancelled before it was written again: its vaults are claimed all the same.
    const now = await tables.get(Scans, scan.partitionKey, SCAN_ROW);
    return now?.status === "running" && now.planner === scan.planner ? now : undefined;
  }

  /**
   * Writes the plan, whose first vaults are claimed, over what a plan that died half way may have left. Each transaction
   * changes the scan's row too, by its ETag, so that none can land once another worker plans, or the scan runs.
   * @returns the scan's row, and the ETags of the plan's rows by their keys.
   * @throws RowChanged then.
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

  /** The scan's part here is done: there is nothing to scan. */
  async function over(done: Promise<void>): Promise<undefined> {
    await done;
  }

  async function planFailed(scanId: string): Promise<void> {
    const scan = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    // Its vaults have messages of their own by now, or the watch sends them.
    if (scan?.status === "running") return;
    await end.fail(scanId, internalFailure(clock, "The scan could not be planned, in five tries."));
  }

  const planner = (): string => randomness.ulid(clock.now());

  return { plan, planFailed };
}

/** A scan of nothing must not look like one that found everything as it was. */
const nothingWatched = (clock: Clock) => ({
  code: "nothingWatched",
  message: "There is no subscription to scan: none is watched, or the service's identity sees none.",
  remedy: `For each subscription to scan, give the identity ${INVENTORY_READER}. If watchAll is false, add the subscription with POST /subscriptions.`,
  at: clock.now().toISOString(),
});
