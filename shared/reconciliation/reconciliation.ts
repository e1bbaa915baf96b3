import pMap from "p-map";
import { audited } from "../audit/audited.ts";
import { STATE, THRESHOLDS_KEY, ThresholdsRows } from "../compliance/compliance-rows.ts";
import { findTotalsFault, renewTotals } from "../inventory/renew-totals.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, replace } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import type { RecordCheckDeps } from "./record-checks.ts";
import { createRepairer, type Restorers, type WalkIdentity } from "./repair-differences.ts";
import { readDirectory, type StageContext, type Step, stepsOf } from "./stages.ts";
import { readRowOrCorrupt, type SuspectedDifference } from "./suspected-differences.ts";
import {
  BEFORE,
  type FaultCounts,
  MAX_NAMED_LEFT,
  NEWEST,
  noFaults,
  STAGES,
  WALKS,
  type WalkRecord,
  Walks,
} from "./walk-record.ts";

/**
 * Time between the starts of two walks. A walk is one pass over all stored rows and can take days; with this interval, every
 * vault is still checked weekly.
 */
const WALK_INTERVAL_MS = 3 * DAY_MS;
/**
 * A run handles one queue message. It ends with the first step after `runMs`, and the next run continues. See
 * `ReconciliationDeps.limits`.
 */
const LIMITS = { runMs: 4 * MINUTE_MS, rowsPerStep: 50_000, pauseMs: 2000 };
const VAULTS_AT_ONCE = 4;

/**
 * The records of the newest walk and of the last complete one, which may be the same. A walk is one pass over all stored rows.
 */
export interface ReconciliationStatus {
  readonly newest: WalkRecord | undefined;
  readonly completed: WalkRecord | undefined;
  /** Whether one of the two records can't be read. */
  readonly unreadable: boolean;
}

/**
 * The reconciliation is a job that finds and repairs inconsistencies that no scan would find. It compares rows of the inventory
 * and of compliance with the original rows of the vaults, and other rows with the records from which they follow. A timer,
 * hourly by default, sends a queue message that calls `run`.
 *
 * One pass over all rows is a walk. It reads every row completely, so that a change of any member is found. With 5,000 vaults,
 * 500,000 assets and 300 subscriptions, a walk takes about 30,000 storage requests:
 * - per vault three: its partition, the copy of its row, and its partition again to compare it with that of its subscription;
 * - one more per 1,000 rows of a partition;
 * - 6,000 to compare the subscriptions with the partition of all assets;
 * - 5,300 for the names of the partitions;
 * - per 100 vaults one for each compliance check.
 *
 * The last stage reads the remaining rows of all tables, one request per 1,000 rows of each kind. It adds two requests per alert
 * delivery, five per 1,000 audit entries, two per day with audit entries, and about 200.
 */
export interface Reconciliation {
  /**
   * Continues the current walk for some minutes, or starts one if it is due. If two calls overlap, the first call that stores
   * its step continues, and the other call ends.
   */
  run(requestId: string): Promise<void>;
  /** Returns the newest walk and the last complete one. Two requests. */
  status(): Promise<ReconciliationStatus>;
}

export interface ReconciliationDeps extends Restorers, RecordCheckDeps {
  readonly settings: Pick<Settings, "values">;
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly log: Logger;
  /**
   * Limits for tests. `runMs`: milliseconds that a run may take. `rowsPerStep`: rows that a step compares. `pauseMs`:
   * milliseconds between attempts at a vault that another worker writes.
   */
  readonly limits?: { readonly runMs?: number; readonly rowsPerStep: number; readonly pauseMs: number };
}

export function createReconciliation(deps: ReconciliationDeps): Reconciliation {
  const { tables, writer, clock, log } = deps;
  const { runMs, rowsPerStep, pauseMs } = { ...LIMITS, ...deps.limits };
  const repairVault = createRepairer({ ...deps, pauseMs });

  const readRecord = (key: string) => readRowOrCorrupt(tables, Walks, WALKS, key);

  /** Returns the walk to continue, or starts the next one. Undefined if none is due. */
  async function findOrStartWalk(requestId: string): Promise<Row<WalkRecord> | undefined> {
    const { row: newest, unreadable } = await readRecord(NEWEST);
    if (newest && !newest.finishedAt) return newest;
    const now = clock.now();
    // A start days in the future was not written by this service, so it does not delay the next walk.
    if (newest && Math.abs(now.getTime() - Date.parse(newest.startedAt)) < WALK_INTERVAL_MS) return undefined;
    const record: WalkRecord = {
      walkId: deps.randomness.ulid(now),
      startedAt: now.toISOString(),
      stage: STAGES[0],
      at: "",
      after: "",
      vaults: 0,
      rows: 0,
      mended: noFaults(),
      awaiting: 0,
      left: [],
      leftTotal: 0,
    };
    if (unreadable) return await startOver({ ...record, startedOver: true }, unreadable.etag, requestId);
    return await begin(
      record,
      newest
        ? [put(Walks, BEFORE, withoutKeys(newest)), replace(Walks, NEWEST, record, newest.etag)]
        : [insert(Walks, NEWEST, record)],
    );
  }

  async function begin(record: WalkRecord, operations: Operation[]): Promise<Row<WalkRecord>> {
    const etags = await tables.transaction(Walks.table, WALKS, operations);
    return { ...record, partitionKey: WALKS, rowKey: NEWEST, etag: etags.get(NEWEST)! };
  }

  /** Replaces a record that can't be read. The position of its walk is lost, so the new walk starts at the beginning. */
  async function startOver(record: WalkRecord, etag: string, requestId: string): Promise<Row<WalkRecord>> {
    log.warn("The record of the reconciliation can't be read; it starts over", { walkId: record.walkId });
    const event = {
      type: "reconciliation.startedOver",
      caller: { actor: "system", requestId },
      target: { type: "reconciliation", id: record.walkId },
      details: { reason: "the record of the walk before could not be read" },
    };
    return await audited(deps.audit, event, () => begin(record, [replace(Walks, NEWEST, record, etag)]));
  }

  /**
   * Returns whether compliance results can be compared. They can't while the evaluation is turned off, or while the row of the
   * thresholds can't be read. They also can't while all assets are evaluated again after a change of the rules (`paused` in
   * that row).
   */
  async function isEvaluating(): Promise<boolean> {
    const { enableComplianceScanning } = await deps.settings.values();
    const { row } = await readRowOrCorrupt(tables, ThresholdsRows, STATE, THRESHOLDS_KEY);
    return enableComplianceScanning && row?.paused === false;
  }

  /** Runs steps of the walk until it is complete or the time of the run is over. */
  async function continueWalk(stored: Row<WalkRecord>, requestId: string): Promise<void> {
    const until = clock.now().getTime() + runMs;
    // Names this run in the leases of vaults, so that no scan writes a vault while it is repaired.
    const workerId = `reconciliation/${stored.walkId}/${deps.randomness.ulid(clock.now())}`;
    const identity: WalkIdentity = { walkId: stored.walkId, workerId, caller: { actor: "system", requestId } };
    const compliance = await isEvaluating();
    let walk = stored;
    while (!walk.finishedAt) {
      // Read again for each stage, to include repairs of the previous one.
      const context: StageContext = {
        tables,
        directory: await readDirectory(tables),
        compliance,
        rowsPerStep,
        checks: deps,
        walk: identity,
        removeOldFences: (partitionKeys) => writer.purgeFencesAndMarkers(partitionKeys),
      };
      for await (const step of stepsOf[walk.stage](context, walk)) {
        const stepDone = await afterStep(walk, step, identity);
        walk = await tables.replace(Walks, step.ends ? await afterStage(stepDone, identity) : stepDone);
        if (clock.now().getTime() >= until) return;
      }
    }
    await deps.compliance.removeOldFences();
    log.info("A reconciliation is complete", { walkId: walk.walkId, vaults: walk.vaults, ...walk.mended });
  }

  /** Returns the walk with its next stage, or as finished after the last stage. */
  async function afterStage(walk: Row<WalkRecord>, identity: WalkIdentity): Promise<Row<WalkRecord>> {
    const stage = STAGES[STAGES.indexOf(walk.stage) + 1];
    if (stage !== undefined) return { ...walk, stage, at: "", after: "" };
    const mended = addCounts(walk.mended, await repairTotals(identity));
    return { ...walk, mended, finishedAt: clock.now().toISOString() };
  }

  /**
   * Recomputes the totals of the inventory and of compliance. Wrong totals are recorded in the audit log and counted by their
   * kind of fault, such as `stale`.
   */
  async function repairTotals({ walkId, caller }: WalkIdentity): Promise<FaultCounts> {
    const { criticalExpiryDays, warningExpiryDays } = await deps.settings.values();
    const expiryDays = { criticalDays: criticalExpiryDays, warningDays: warningExpiryDays };
    const inventory = {
      target: { type: "inventory", id: "totals" },
      type: "inventory.mended",
      findFault: () => findTotalsFault(tables),
      renew: async () => {
        await renewTotals(tables, { now: clock.now().getTime(), ...expiryDays });
      },
    };
    const compliance = {
      target: { type: "compliance", id: "totals" },
      type: "compliance.mended",
      findFault: () => deps.compliance.findTotalsFault(),
      renew: () => deps.compliance.renewTotals({ all: true }),
    };
    const mended = noFaults();
    for (const { target, type, findFault, renew } of [inventory, compliance]) {
      const fault = await findFault();
      // `findFault` also finds no fault if there are no totals, or if other writes prevented the comparison. Renewed totals also
      // make queries cheaper. Only the repair of a fault is recorded.
      if (fault === undefined) await renew();
      else {
        await audited(deps.audit, { type, caller, target, details: { walkId, totals: fault } }, renew);
        mended[fault]++;
      }
    }
    return mended;
  }

  /** Checks and repairs a step's suspected differences. Returns the walk with the step's position and counts. */
  async function afterStep(walk: Row<WalkRecord>, step: Step, identity: WalkIdentity): Promise<Row<WalkRecord>> {
    const byVault = new Map<string, SuspectedDifference[]>();
    for (const difference of step.suspected)
      byVault.set(difference.vault, [...(byVault.get(difference.vault) ?? []), difference]);
    const outcomes = await pMap(
      byVault,
      async ([vault, suspected]) => ({ vault, ...(await repairVault(vault, suspected, identity)) }),
      { concurrency: VAULTS_AT_ONCE },
    );
    const left = outcomes.flatMap(({ vault, left: reason }) => (reason === undefined ? [] : [{ vault, reason }]));
    const { result } = step;
    // A skipped check is also left to the next walk. Its name takes the place of a vault's name.
    if (result?.skipped) left.push({ vault: result.skipped.check, reason: result.skipped.reason });
    for (const { vault, reason } of left) log.warn("A vault is left to the next reconciliation", { vault, reason });
    return {
      ...walk,
      at: step.at,
      after: step.after,
      vaults: walk.vaults + step.vaults,
      rows: walk.rows + step.rows,
      mended: [...outcomes.map(({ mended }) => mended), { ...noFaults(), ...result?.mended }].reduce(
        addCounts,
        walk.mended,
      ),
      awaiting: outcomes.reduce((sum, { awaiting }) => sum + awaiting, walk.awaiting),
      left: [...walk.left, ...left].slice(0, MAX_NAMED_LEFT),
      leftTotal: walk.leftTotal + left.length,
      unverified: (walk.unverified ?? 0) + (result?.unverified ?? 0),
      unreadable: (walk.unreadable ?? 0) + (result?.unreadable ?? 0),
    };
  }

  return {
    async run(requestId) {
      try {
        const walk = await findOrStartWalk(requestId);
        if (walk) await continueWalk(walk, requestId);
      } catch (error) {
        // Another run has stored its step since this one read the record.
        if (!isConflict(error) || error.table !== Walks.table) throw error;
        log.info("Another worker continues the reconciliation");
      }
    },

    async status() {
      const [newest, previous] = await Promise.all([readRecord(NEWEST), readRecord(BEFORE)]);
      const completed = newest.row?.finishedAt ? newest.row : previous.row;
      return {
        newest: newest.row && withoutKeys(newest.row),
        completed: completed && withoutKeys(completed),
        unreadable: newest.unreadable !== undefined || previous.unreadable !== undefined,
      };
    },
  };
}

const addCounts = (sum: FaultCounts, part: FaultCounts): FaultCounts => ({
  missing: sum.missing + part.missing,
  extra: sum.extra + part.extra,
  stale: sum.stale + part.stale,
  unreadable: sum.unreadable + part.unreadable,
  listings: sum.listings + part.listings,
  compliance: sum.compliance + part.compliance,
});
