import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { LINES_KEY, Lines, STATE } from "../compliance/compliance-rows.ts";
import { faultOfTotals, renewTotals } from "../inventory/renew-totals.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { createMender, type Restorers, type WalkIdentity } from "./repair-differences.ts";
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

/** Time from the start of one walk to that of the next, so that every vault is checked weekly even if a walk takes days. */
const EVERY_MS = 3 * DAY_MS;
/** A run ends with the first step after `runMs`. The next run continues. */
const LIMITS = { runMs: 4 * MINUTE_MS, rowsPerStep: 50_000, pauseMs: 2000 };
const VAULTS_AT_ONCE = 4;

/** The newest walk, and the last complete one. */
export interface ReconciliationStatus {
  readonly newest: WalkRecord | undefined;
  readonly completed: WalkRecord | undefined;
  /** Whether one of the two records can't be read. */
  readonly unreadable: boolean;
}

/**
 * Finds and repairs inconsistencies that no scan would find: rows of the inventory and of compliance that do not match the
 * vaults' own rows, whatever caused them.
 *
 * A walk reads every row completely, so that a change of any member is found. With 5,000 vaults, 500,000 assets and 300
 * subscriptions it takes some 30,000 requests, 70,000 a week: per vault its partition, its copy, and its partition again for
 * the comparison with its subscription's, one request per 1,000 rows of those, 6,000 to compare all subscriptions with all
 * assets, 5,300 for the names of partitions, and for each 100 vaults one per check.
 */
export interface Reconciliation {
  /**
   * Continues the current walk for some minutes, or starts one if it is due. Two calls may overlap: the second one to store a
   * step leaves the walk to the other.
   */
  run(requestId: string): Promise<void>;
  /** Returns the newest walk and the last complete one. Two requests. */
  status(): Promise<ReconciliationStatus>;
}

export interface ReconciliationDeps extends Restorers {
  readonly tables: Tables;
  readonly audit: Pick<Audit, "append">;
  readonly settings: Pick<Settings, "values">;
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly log: Logger;
  /** Milliseconds a run may take, rows a step compares, and milliseconds between attempts at a busy vault; for tests. */
  readonly limits?: { readonly runMs?: number; readonly rowsPerStep: number; readonly pauseMs: number };
}

export function createReconciliation(deps: ReconciliationDeps): Reconciliation {
  const { tables, writer, clock, log } = deps;
  const { runMs, rowsPerStep, pauseMs } = { ...LIMITS, ...deps.limits };
  const settle = createMender({ ...deps, pauseMs });

  const read = (key: string) => readRowOrCorrupt(tables, Walks, WALKS, key);

  async function walkDue(requestId: string): Promise<Row<WalkRecord> | undefined> {
    const { row: newest, unreadable } = await read(NEWEST);
    if (newest && !newest.finishedAt) return newest;
    const now = clock.now();
    // A walk that starts days in the future was not written by this service.
    if (newest && Math.abs(now.getTime() - Date.parse(newest.startedAt)) < EVERY_MS) return undefined;
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

  /** The previous walk's position is lost with its record. This walk starts at the beginning and replaces the record. */
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

  /** Results change with the rules. While evaluation is off, or everything is about to be evaluated, they can't be compared. */
  async function isEvaluating(): Promise<boolean> {
    const { enableComplianceScanning } = await deps.settings.values();
    return enableComplianceScanning && (await tables.get(Lines, STATE, LINES_KEY))?.paused === false;
  }

  async function continueWalk(stored: Row<WalkRecord>, requestId: string): Promise<void> {
    const until = clock.now().getTime() + runMs;
    const owner = `reconciliation/${stored.walkId}/${deps.randomness.ulid(clock.now())}`;
    const identity: WalkIdentity = { walkId: stored.walkId, owner, caller: { actor: "system", requestId } };
    const compliance = await isEvaluating();
    let walk = stored;
    while (!walk.finishedAt) {
      // Read again for each stage, to include repairs of the previous one.
      const context: StageContext = {
        tables,
        directory: await readDirectory(tables),
        compliance,
        rowsPerStep,
        removeOldFences: (partitionKeys) => writer.purgeFencesAndMarkers(partitionKeys),
      };
      for await (const step of stepsOf[walk.stage](context, walk)) {
        const taken = await settled(walk, step, identity);
        walk = await tables.replace(Walks, step.ends ? await stageDone(taken, identity) : taken);
        if (clock.now().getTime() >= until) return;
      }
    }
    await deps.compliance.removeOldFences();
    log.info("A reconciliation is complete", { walkId: walk.walkId, vaults: walk.vaults, ...walk.mended });
  }

  async function stageDone(walk: Row<WalkRecord>, identity: WalkIdentity): Promise<Row<WalkRecord>> {
    const stage = STAGES[STAGES.indexOf(walk.stage) + 1];
    if (stage !== undefined) return { ...walk, stage, at: "", after: "" };
    const mended = added(walk.mended, await repairTotals(identity));
    return { ...walk, mended, finishedAt: clock.now().toISOString() };
  }

  /** Recomputes all totals now that their rows are checked, and records wrong totals in the audit log. */
  async function repairTotals({ walkId, caller }: WalkIdentity): Promise<FaultCounts> {
    const { criticalExpiryDays, warningExpiryDays } = await deps.settings.values();
    const moment = { criticalDays: criticalExpiryDays, warningDays: warningExpiryDays };
    const inventory = {
      target: { type: "inventory", id: "totals" },
      type: "inventory.mended",
      fault: () => faultOfTotals(tables),
      renew: async () => {
        await renewTotals(tables, { now: clock.now().getTime(), ...moment });
      },
    };
    const compliance = {
      target: { type: "compliance", id: "totals" },
      type: "compliance.mended",
      fault: () => deps.compliance.faultOfTotals(),
      renew: () => deps.compliance.renewTotals({ all: true }),
    };
    const mended = noFaults();
    for (const { target, type, fault, renew } of [inventory, compliance]) {
      const wrong = await fault();
      if (wrong === undefined) await renew();
      else {
        await audited(deps.audit, { type, caller, target, details: { walkId, totals: wrong } }, renew);
        mended[wrong]++;
      }
    }
    return mended;
  }

  /** Returns the walk after a step's suspected differences are resolved. */
  async function settled(walk: Row<WalkRecord>, step: Step, identity: WalkIdentity): Promise<Row<WalkRecord>> {
    const byVault = new Map<string, SuspectedDifference[]>();
    for (const difference of step.suspected)
      byVault.set(difference.vault, [...(byVault.get(difference.vault) ?? []), difference]);
    const outcomes = await pMap(
      byVault,
      async ([vault, suspected]) => ({ vault, ...(await settle(vault, suspected, identity)) }),
      { concurrency: VAULTS_AT_ONCE },
    );
    const left = outcomes.flatMap(({ vault, left: reason }) => (reason === undefined ? [] : [{ vault, reason }]));
    for (const { vault, reason } of left) log.warn("A vault is left to the next reconciliation", { vault, reason });
    return {
      ...walk,
      at: step.at,
      after: step.after,
      vaults: walk.vaults + step.vaults,
      rows: walk.rows + step.rows,
      mended: outcomes.reduce((sum, one) => added(sum, one.mended), walk.mended),
      awaiting: outcomes.reduce((sum, one) => sum + one.awaiting, walk.awaiting),
      left: [...walk.left, ...left].slice(0, MAX_NAMED_LEFT),
      leftTotal: walk.leftTotal + left.length,
    };
  }

  return {
    async run(requestId) {
      try {
        const walk = await walkDue(requestId);
        if (walk) await continueWalk(walk, requestId);
      } catch (error) {
        if (!isConflict(error) || error.table !== Walks.table) throw error;
        log.info("Another worker continues the storage verification");
      }
    },

    async status() {
      const [newest, before] = await Promise.all([read(NEWEST), read(BEFORE)]);
      const completed = newest.row?.finishedAt ? newest.row : before.row;
      return {
        newest: newest.row && withoutKeys(newest.row),
        completed: completed && withoutKeys(completed),
        unreadable: newest.unreadable !== undefined || before.unreadable !== undefined,
      };
    },
  };
}

const added = (sum: FaultCounts, part: FaultCounts): FaultCounts => ({
  missing: sum.missing + part.missing,
  extra: sum.extra + part.extra,
  stale: sum.stale + part.stale,
  unreadable: sum.unreadable + part.unreadable,
  listings: sum.listings + part.listings,
  compliance: sum.compliance + part.compliance,
});
