import { CloudFailure } from "../azure/failure.ts";
import type { ResourceManager } from "../azure/resource-manager.ts";
import type { Clock, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { unlessChanged } from "../storage/conflict.ts";
import { type Row, withoutKeys } from "../storage/entity.ts";
import { MAX_TRANSACTION_OPERATIONS } from "../storage/limits.ts";
import type { Queues } from "../storage/queues.ts";
import { type Operation, put, remove, replace, type Tables } from "../storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import type { ActiveScanList } from "./active.ts";
import type { Claims } from "./claims.ts";
import type { ScanEnd } from "./end.ts";
import { planVaults, type VaultPlan } from "./plan-vaults.ts";
import { failureRecord } from "./read-vault.ts";
import {
  claimedKey,
  DONE,
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
import { internalFailure } from "./work.ts";

/** How long a scan waits for the workers of other scans before it asks again. */
const NO_WORKER_DELAY_SECONDS = 5;
/** The longest that listing the vaults may take: shorter than the watch waits before it has the plan made again. */
export const LISTING_MS = 8 * MINUTE_MS;

export interface PlanDeps {
  tables: Tables;
  queues: Queues;
  settings: Settings;
  resourceManager: ResourceManager;
  /** The subscriptions configured and added; empty for all that the identity may see. */
  configuredSubscriptions: () => Promise<string[]>;
  active: ActiveScanList;
  claims: Claims;
  end: ScanEnd;
  clock: Clock;
  randomness: Randomness;
}

/** The plan of a scan: its vaults, of which as many are claimed as there may be workers, each with a message. */
export interface ScanPlan {
  /**
   * Plans a queued scan. A message may come while another one's worker plans: whoever changed the scan's row last goes on,
   * and the other stops at its next step, so that no late plan lies over a scan that runs.
   *
   * @param delivery - 1 for the message's first delivery.
   */
  plan(scanId: string, delivery: number): Promise<void>;
  /** Ends a scan whose plan failed for good; the scan says why. */
  planFailed(scanId: string): Promise<void>;
}

export function createScanPlan(deps: PlanDeps): ScanPlan {
  const { tables, queues, active, claims, end, clock, randomness } = deps;

  async function plan(scanId: string, delivery: number): Promise<void> {
    const found = await tables.get(Scans, scanPartition(scanId), SCAN_ROW);
    if (!found || isOver(found.status)) return;
    if (found.status === "running") {
      // A delivery before this one may have died among its messages. Any other message comes too late to be needed.
      if (delivery > 1 && (await claims.sendAll(scanId)) === 0) await end.finish(scanId);
      return;
    }
    if (found.cancelledBy) return await end.finish(scanId);
    const scan = await unlessChanged(tables.replace(Scans, { ...found, planner: planner() }));
    if (!scan) return;
    const settings = await deps.settings.values();
    const free = await active.takeWorkers(scanId, 1, settings.discoveryMaxWorkers);
    if (free === 0) return await queues.send(QUEUES.plan, { scanId }, { delaySeconds: NO_WORKER_DELAY_SECONDS });

    let planned: VaultPlan;
    try {
      planned = await planVaults(scan, {
        tables,
        resourceManager: deps.resourceManager,
        configured: deps.configuredSubscriptions,
        clock,
        signal: AbortSignal.timeout(Math.min(LISTING_MS, settings.discoveryScanTimeout * SECOND_MS)),
      });
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      return await end.fail(scanId, failureRecord(error, clock.now().toISOString()));
    }
    const wanted = Math.max(1, planned.vaults.length);
    const workers = Math.max(1, await active.takeWorkers(scanId, wanted, settings.discoveryMaxWorkers));
    const claimed = planned.vaults.slice(0, workers).map((vault, at) => ({ ...vault, chain: at }));
    const running = await unlessChanged(
      writeVaults(scan, [...claimed, ...planned.vaults.slice(workers)], claimed.length).then((row) => {
        const now = clock.now();
        return tables.replace(Scans, {
          ...row,
          status: "running",
          startedAt: now.toISOString(),
          deadline: new Date(now.getTime() + settings.discoveryScanTimeout * SECOND_MS).toISOString(),
          vaultsTotal: planned.vaults.length,
          subscriptionOutcomes: planned.subscriptions,
        });
      }),
    );
    if (!running) return;
    if (planned.vaults.length === 0) return await end.finish(scanId);
    await Promise.all(claimed.map((vault, at) => claims.send(scanId, { index: indexAt(at), vault })));
  }

  /**
   * Writes the plan, whose first vaults are claimed, over what a plan that died half way may have left. Each transaction
   * changes the scan's row too, by its ETag, so that none can land once another worker plans, or the scan runs.
   * @throws RowChanged then.
   */
  async function writeVaults(scan: Row<ScanRecord>, vaults: PlannedVault[], claimed: number): Promise<Row<ScanRecord>> {
    const keyAt = (at: number) => (at < claimed ? claimedKey(indexAt(at)) : waitingKey(indexAt(at)));
    const rows = new Map(vaults.map((vault, at) => [keyAt(at), vault]));
    const operations: Operation[] = [...rows].map(([key, row]) => put(PlannedVaults, key, row));
    const range = { partitionKey: scan.partitionKey, from: WAITING, before: DONE };
    for await (const left of tables.pages(PlannedVaults, { ...range, select: ["name"] })) {
      for (const row of left) if (!rows.has(row.rowKey)) operations.push(remove(PlannedVaults, row.rowKey));
    }
    let { etag } = scan;
    for (let at = 0; at < operations.length; at += MAX_TRANSACTION_OPERATIONS - 1) {
      const fence = replace(Scans, SCAN_ROW, { ...withoutKeys(scan), planner: planner() }, etag);
      const part = operations.slice(at, at + MAX_TRANSACTION_OPERATIONS - 1);
      const etags = await tables.transaction(PlannedVaults.table, scan.partitionKey, [fence, ...part]);
      etag = etags.get(SCAN_ROW)!;
    }
    return { ...scan, etag };
  }

  const planner = (): string => randomness.ulid(clock.now());

  return {
    plan,
    planFailed: (scanId) => end.fail(scanId, internalFailure(clock, "The scan could not be planned, in five tries.")),
  };
}

/** A vault's place in the plan, as its rows' keys and its messages have it. */
const indexAt = (at: number): string => String(at).padStart(6, "0");
