import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import { isOver } from "../platform/runs/run-store.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { readUnits } from "./coverage.ts";
import type { EdgeSource } from "./edge-source.ts";
import { type ReadDeps, readUnit, removeUnit } from "./read-unit.ts";
import type { References } from "./references.ts";
import {
  DEPENDENCIES,
  type Failure,
  NotSeenRows,
  notSeenKey,
  type RunRecord,
  TABLE,
  Units,
  type UnitWork,
  unitKey,
  unitRowKey,
} from "./rows.ts";
import { type DependencyRuns, type LeasedUnit, UNITS_AT_ONCE } from "./runs.ts";

export const QUEUE = "dependencies-discover";

/** Time that one invocation works on units before it continues in a new message. */
const WORK_MS = 4 * MINUTE_MS;
/** Maximum time of one unit, less than the timeout of an invocation (host.json). */
const MAX_UNIT_MS = 20 * MINUTE_MS;
/** Delay before a retry if other workers have the maximum number of units. They may have crashed. */
const BUSY_SECONDS = 60;
/** Maximum number of failures that a run shows. */
const MAX_FAILURES = 100;

export interface WorkDeps extends ReadDeps {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  sources: readonly EdgeSource[];
  runs: DependencyRuns;
  references: Pick<References, "requestEvaluations" | "removeOld">;
  /** Called after a run that may have changed something. */
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * Works on discovery runs. A run reads each unit of each source, such as each subscription. Several workers share the units of
 * a run.
 */
export interface RunWork {
  /**
   * Continues a run: plans it, works on units for some minutes, and ends it when all units are done. Each message has one
   * worker. The rows coordinate the workers.
   *
   * @param isMessage - Whether the caller handles a message and must send another one for the remaining work. Otherwise a
   * message already exists.
   */
  work(runId: string, isMessage: boolean): Promise<void>;
  /** Handles a message that failed permanently: fails the run if no worker has a unit. */
  failRun(runId: string): Promise<void>;
}

export function createRunWork(deps: WorkDeps): RunWork {
  const { tables, queues, audit, sources, runs, references, clock, randomness, log } = deps;
  const send = (runId: string, delaySeconds = 0) => queues.send(QUEUE, { runId }, { delaySeconds });

  async function work(runId: string, isMessage: boolean): Promise<void> {
    const found = await runs.find(runId);
    if (!found || isOver(found)) return;
    if (found.status === "queued") await plan(found);
    const deadline = clock.now().getTime() + WORK_MS;
    for (;;) {
      const run = await runs.find(runId);
      if (!run || isOver(run)) return;
      // A run with `entryId` has no units left: a worker has started to end it.
      const leased = run.entryId === undefined ? await runs.leaseNextUnit(run) : undefined;
      if (leased === "busy") return isMessage ? await send(runId, BUSY_SECONDS) : undefined;
      if (!leased) return await finish(run);
      await workOn(leased);
      if (clock.now().getTime() >= deadline) return isMessage ? await send(runId) : undefined;
    }
  }

  /** Plans the units of each source to read, and the units to remove. */
  async function plan(run: Row<RunRecord>): Promise<void> {
    const storedUnits = await readUnits(tables);
    const works: UnitWork[] = [];
    const failures: RunRecord["failures"] = [];
    const add = (source: string, unit: string, action: UnitWork["action"]) =>
      works.push({ source, unit, action, status: "waiting", attempts: 0 });
    for (const source of sources) {
      try {
        const units = new Set(source.off ? [] : await source.units());
        for (const unit of units) add(source.name, unit, "read");
        const keys = new Set([...units].map((unit) => unitKey(source.name, unit)));
        for (const [key, { source: storedSource, unit }] of storedUnits)
          if (storedSource === source.name && unit !== "" && !keys.has(key)) add(source.name, unit, "remove");
        await recordListing(source.name, storedUnits.has(unitKey(source.name, "")), source.off);
      } catch (error) {
        if (!(error instanceof CloudFailure)) throw error;
        const { code, message, remedy } = error;
        failures.push({ source: source.name, code, message, remedy });
        await recordListing(source.name, storedUnits.has(unitKey(source.name, "")), { code, message, remedy });
      }
    }
    await runs.plan(run, works, failures);
    // Starts more workers beside this one.
    for (let more = 1; more < Math.min(UNITS_AT_ONCE, works.length); more++) await send(run.runId);
  }

  /** Stores a coverage item if a source is off or its units could not be listed, in a unit without a name. */
  async function recordListing(source: string, wasReported: boolean, failure: Failure | undefined): Promise<void> {
    const key = unitKey(source, "");
    // The key contains no code, so that the next run finds the row even if the failure is another one.
    const rowKey = notSeenKey(key, { scope: source, code: "" });
    if (failure) {
      const { code, message, remedy } = failure;
      const before = wasReported ? await tables.get(NotSeenRows, DEPENDENCIES, rowKey) : undefined;
      const since = before?.code === code ? before.since : clock.now().toISOString();
      await tables.write(TABLE, DEPENDENCIES, [
        put(NotSeenRows, rowKey, { scope: source, source, unit: "", code, message, remedy, since }),
        put(Units, unitRowKey(key), { source, unit: "", resources: 0, edges: 0, notSeen: 1, notSeenLeftOut: 0 }),
      ]);
    } else if (wasReported)
      await tables.write(TABLE, DEPENDENCIES, [remove(NotSeenRows, rowKey), remove(Units, unitRowKey(key))]);
  }

  async function workOn(leased: LeasedUnit): Promise<void> {
    const { source: name, unit, action, readTo } = leased.work;
    const source = sources.find((one) => one.name === name);
    const signal = AbortSignal.any([leased.signal, AbortSignal.timeout(MAX_UNIT_MS)]);
    try {
      const outcome =
        action === "remove" || !source
          ? await removeUnit(name, unit, { runId: leased.runId, owner: leased.worker }, deps)
          : await readUnit(
              source,
              unit,
              { mode: leased.mode, runId: leased.runId, owner: leased.worker, signal, readTo },
              deps,
            );
      await references.requestEvaluations();
      const { failure } = outcome;
      const changed = (leased.work.changed ?? 0) + outcome.changed;
      if (outcome.readTo) await leased.handOff({ changed, readTo: outcome.readTo });
      else await leased.end({ status: failure ? "failed" : "done", changed, ...(failure ? { failure } : {}) });
      log.debug("A unit's dependencies were read", { source: name, unit, action, changed, failure: failure?.code });
    } catch (error) {
      await leased.release();
      // Another worker has taken the unit and ends it.
      if (!isConflict(error)) throw error;
    }
  }

  /** Ends a run whose units are all done: records it in the audit log, and allows the next run. */
  async function finish(run: Row<RunRecord>): Promise<void> {
    try {
      const works = await runs.works(run);
      const failed = works.filter(({ status }) => status === "failed");
      const failures = [
        ...run.failures.filter(({ unit }) => unit === undefined),
        ...failed.map(({ source, unit, failure }) => ({ source, unit, ...failure! })),
      ];
      const status =
        failures.length === 0 ? "completed" : works.some((one) => one.status === "done") ? "partial" : "failed";
      const units = await readUnits(tables);
      const sum = (member: "resources" | "edges" | "notSeen") =>
        [...units.values()].reduce((total, unit) => total + unit[member], 0);
      const counts = {
        unitsFailed: failed.length,
        resources: sum("resources"),
        edges: sum("edges"),
        notSeen: sum("notSeen"),
        changed: works.reduce((all, one) => all + (one.changed ?? 0), 0),
      };
      const entryId = run.entryId ?? randomness.ulid(clock.now());
      let decided = await runs.change(run, { ...counts, failures: failures.slice(0, MAX_FAILURES), entryId });
      await references.requestEvaluations();
      const { runId, mode, requestId } = run;
      await recordRunEnd(
        audit,
        {
          id: entryId,
          type: "dependencies.discovered",
          caller: { actor: "system", requestId },
          outcome: status === "completed" ? "success" : "failure",
          target: { type: "dependencyRun", id: runId },
          details: { mode, status, units: works.length, ...counts },
        },
        {
          clock,
          randomness,
          // Called if the audit log needs another entry ID. The run's row stores the new ID before the entry is written.
          async keep(id) {
            decided = await runs.change(decided, { entryId: id });
          },
        },
      );
      await deps.ended();
      await runs.end(decided, { status, finishedAt: clock.now().toISOString() });
      log.info("Dependencies were read", { runId, mode, status, units: works.length, ...counts });
      if (mode === "full") {
        await runs.removeOld();
        await references.removeOld();
      }
    } catch (error) {
      // Another worker ends the run.
      if (!isConflict(error)) throw error;
    }
  }

  return {
    work,

    async failRun(runId) {
      const run = await runs.find(runId);
      if (!run || isOver(run)) return;
      log.error("Dependency discovery failed permanently", { runId, mode: run.mode });
      // Leases a unit only to find out whether other workers are active. If so, these workers end the run.
      const leased = run.planId === undefined ? undefined : await runs.leaseNextUnit(run);
      if (leased === "busy") return;
      await leased?.release();
      const failure = {
        source: "service",
        code: "internal",
        message: "The dependencies could not be written in five attempts.",
        remedy: "Check GET /system/failed-messages and the log. The next scheduled run tries again.",
      };
      const failures = [...run.failures, failure];
      await runs.end(run, { status: "failed", finishedAt: clock.now().toISOString(), failures });
      await audit.append({
        type: "dependencies.discovered",
        caller: { actor: "system", requestId: run.requestId },
        outcome: "failure",
        target: { type: "dependencyRun", id: runId },
        details: { mode: run.mode, status: "failed", failures: ["service: internal"] },
      });
    },
  };
}
