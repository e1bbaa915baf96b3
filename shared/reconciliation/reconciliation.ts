import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { LINES_KEY, Lines, STATE } from "../compliance/layout.ts";
import { faultOfTotals, renewTotals } from "../inventory/renew-totals.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { insert, type Operation, put, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { type Doubt, readStanding } from "./doubt.ts";
import { createMender, type Restorers, type WalkIdentity } from "./mend.ts";
import { readDirectory, type StageContext, type Step, stepsOf } from "./stages.ts";
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
} from "./walk.ts";

/** A walk begins so long after the last one began, so that every vault is seen weekly even where one takes days. */
const EVERY_MS = 3 * DAY_MS;
/** A run ends with the first step after `runMs`; the next run goes on. */
const LIMITS = { runMs: 4 * MINUTE_MS, rowsPerStep: 50_000, pauseMs: 2000 };
const VAULTS_AT_ONCE = 4;

/** The newest walk, and the last one that came to its end. */
export interface ReconciliationStatus {
  readonly newest: WalkRecord | undefined;
  readonly completed: WalkRecord | undefined;
  /** The record of one of them can't be read. */
  readonly unreadable: boolean;
}

/**
 * The slow walk that finds and mends what no scan would: rows of the inventory and of compliance that do not follow from
 * the vaults' own rows, whatever put them there.
 *
 * It reads every row whole, so that a change of any member shows. With 5,000 vaults, 500,000 assets and 300 subscriptions
 * that is some 30,000 requests a walk, 70,000 a week: per vault its partition, its copy and its partition once more beside
 * its subscription's, a request per 1,000 rows of those, 6,000 for all subscriptions beside all assets, 5,300 for the names
 * of partitions, and for each 100 vaults one per check.
 */
export interface Reconciliation {
  /**
   * Goes on with the walk under way for some minutes, or begins one when it is time. May run twice at once: who is second
   * to write down a step leaves the walk to the other.
   */
  run(requestId: string): Promise<void>;
  /** Two requests. */
  status(): Promise<ReconciliationStatus>;
}

export interface ReconciliationDeps extends Restorers {
  readonly tables: Tables;
  readonly audit: Pick<Audit, "append">;
  readonly settings: Pick<Settings, "values">;
  readonly clock: Clock;
  readonly randomness: Randomness;
  readonly log: Logger;
  /** Milliseconds a run may take, rows a step compares, and milliseconds between looks at a busy vault; for tests. */
  readonly limits?: { readonly runMs?: number; readonly rowsPerStep: number; readonly pauseMs: number };
}

export function createReconciliation(deps: ReconciliationDeps): Reconciliation {
  const { tables, writer, clock, log } = deps;
  const { runMs, rowsPerStep, pauseMs } = { ...LIMITS, ...deps.limits };
  const settle = createMender({ ...deps, pauseMs });

  const read = (key: string) => readStanding(tables, Walks, WALKS, key);

  async function walkDue(requestId: string): Promise<Row<WalkRecord> | undefined> {
    const { row: newest, unreadable } = await read(NEWEST);
    if (newest && !newest.finishedAt) return newest;
    const now = clock.now();
    // A walk that began days from now is none that this service wrote down.
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

  /** Where the walk before stood is lost with its record: this one looks at everything, in the record's place. */
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

  /** Results change with the rules; while nothing is evaluated, or all of it is about to be, they say nothing. */
  async function isEvaluating(): Promise<boolean> {
    const { enableComplianceScanning } = await deps.settings.values();
    return enableComplianceScanning && (await tables.get(Lines, STATE, LINES_KEY))?.paused === false;
  }

  async function goOn(begun: Row<WalkRecord>, requestId: string): Promise<void> {
    const until = clock.now().getTime() + runMs;
    const owner = `reconciliation/${begun.walkId}/${deps.randomness.ulid(clock.now())}`;
    const identity: WalkIdentity = { walkId: begun.walkId, owner, caller: { actor: "system", requestId } };
    const compliance = await isEvaluating();
    let walk = begun;
    while (!walk.finishedAt) {
      // Read anew for each stage: what the one before mended counts.
      const context: StageContext = {
        tables,
        directory: await readDirectory(tables),
        compliance,
        rowsPerStep,
        removeOldFences: (partitionKeys) => writer.removeOldFences(partitionKeys),
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
    const mended = added(walk.mended, await mendTotals(identity));
    return { ...walk, mended, finishedAt: clock.now().toISOString() };
  }

  /** Counts all vaults and results anew, now that their rows are looked at, and enters where totals said anything else. */
  async function mendTotals({ walkId, caller }: WalkIdentity): Promise<FaultCounts> {
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

  /** The walk once a step's doubts are settled. */
  async function settled(walk: Row<WalkRecord>, step: Step, identity: WalkIdentity): Promise<Row<WalkRecord>> {
    const byVault = new Map<string, Doubt[]>();
    for (const doubt of step.doubts) byVault.set(doubt.vault, [...(byVault.get(doubt.vault) ?? []), doubt]);
    const outcomes = await pMap(
      byVault,
      async ([vault, doubts]) => ({ vault, ...(await settle(vault, doubts, identity)) }),
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
        if (walk) await goOn(walk, requestId);
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
