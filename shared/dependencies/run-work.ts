import type { Audit } from "../audit/audit.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { LeasedRow } from "../platform/runs/leased-row.ts";
import { recordRunEnd } from "../platform/runs/record-run-end.ts";
import { isOver, type RunStore } from "../platform/runs/run-store.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { put, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { readUnits } from "./coverage.ts";
import type { EdgeSource } from "./edge-source.ts";
import { markDamagedResources, type ReadDeps, readUnit, removeUnit } from "./read-unit.ts";
import type { References } from "./references.ts";
import {
  DEPENDENCIES,
  type Failure,
  type NotSeenRecord,
  NotSeenRows,
  notSeenKey,
  type RunRecord,
  Runs,
  runPartition,
  TABLE,
  Units,
  type UnitWork,
  UnitWorks,
  unitKey,
  unitRowKey,
  workKey,
} from "./rows.ts";
import { nextRun, nextUnit, phaseOf, type RunEvent, type UnitEvent } from "./run-states.ts";
import { readRunUnits, removeRunUnits, takeNextUnit, UNITS_AT_ONCE } from "./units.ts";

/**
 * Discovery runs. A run reads each unit of each source, such as each subscription. Several workers share the units of a run,
 * and the rows coordinate the workers. The states of runs and units are in run-states.ts.
 */

export const QUEUE = "dependencies-discover";

/** Time that one invocation works on units before it continues in a new message. */
const WORK_MS = 4 * MINUTE_MS;
/** Maximum time of one unit, less than the timeout of an invocation (host.json). */
const MAX_UNIT_MS = 20 * MINUTE_MS;
/** Delay before a retry if other workers have the maximum number of units. They may have crashed. */
const BUSY_SECONDS = 60;

export interface WorkDeps extends ReadDeps {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  sources: readonly EdgeSource[];
  runs: RunStore<RunRecord>;
  references: Pick<References, "requestEvaluations" | "removeOld">;
  /** Called after a run that may have changed something. */
  ended: (run: { mayHaveChanged: boolean }) => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * Continues a run: plans it, works on units for some minutes, and ends it when all units have ended. Each message has one
 * worker. The phases of a run (`phaseOf`) are `queued`, `running`, `ending` and `over`.
 *
 * @param isMessage - Whether the caller handles a message and must send another one for the remaining work. Otherwise a message
 * already exists.
 */
export async function workOnRun(runId: string, isMessage: boolean, deps: WorkDeps): Promise<void> {
  const { runs, clock } = deps;
  const continueLater = async (delaySeconds: number) => {
    if (isMessage) await send(runId, delaySeconds, deps);
  };
  const deadline = clock.now().getTime() + WORK_MS;
  for (;;) {
    const run = await runs.find(runId);
    if (!run || phaseOf(run) === "over") return;
    if (phaseOf(run) === "queued") {
      await planRun(run, deps);
      continue;
    }
    // The units of a run that is `ending` have ended.
    const unit = phaseOf(run) === "running" ? await takeNextUnit(run, deps) : undefined;
    // Other workers have the maximum number of units, or all remaining ones.
    if (unit === "busy") return await continueLater(BUSY_SECONDS);
    if (!unit) return await endRun(run, deps);
    await workOnUnit(unit, run, deps);
    if (clock.now().getTime() >= deadline) return await continueLater(0);
  }
}

/** Handles a message that failed permanently: fails the run if no worker has a unit. */
export async function failRun(runId: string, deps: WorkDeps): Promise<void> {
  const { runs, tables, audit, clock, log } = deps;
  const run = await runs.find(runId);
  if (!run || isOver(run)) return;
  log.error("Dependency discovery failed permanently", { runId, mode: run.mode });
  // Leases a unit only to find out whether other workers are active. If so, these workers end the run.
  const unit = await takeNextUnit(run, deps);
  if (unit === "busy") return;
  if (unit) await endLease(unit, { type: "released" }, tables);
  const failure = {
    source: "service",
    code: "internal",
    message: "The dependencies could not be written in five attempts.",
    remedy: "Check GET /system/failed-messages and the log. The next scheduled run tries again.",
  };
  await runs.end(run, nextRun(run, { type: "gaveUp", failure, at: clock.now() })!);
  await audit.append({
    type: "dependencies.discovered",
    caller: { actor: "system", requestId: run.requestId },
    outcome: "failure",
    target: { type: "dependencyRun", id: runId },
    details: { mode: run.mode, status: "failed", failures: ["service: internal"] },
  });
}

const send = (runId: string, delaySeconds: number, { queues }: WorkDeps) =>
  queues.send(QUEUE, { runId }, { delaySeconds });

/** Writes a run after an event. @throws A conflict if another worker changed it first. */
const changeRun = (run: Row<RunRecord>, event: RunEvent, { tables }: WorkDeps) =>
  tables.replace(Runs, { ...run, ...nextRun(run, event)! });

/** Writes a unit after an event that ends its lease, unless another worker has taken it. */
const endLease = (unit: LeasedRow<UnitWork>, event: UnitEvent, tables: Tables) =>
  undefinedIfChanged(unit.end((row) => tables.replace(UnitWorks, { ...row, ...nextUnit(row, event)! })));

/** Plans the units of each source to read, and the units to remove. `source.off` says why a source is turned off, if it is. */
async function planRun(run: Row<RunRecord>, deps: WorkDeps): Promise<void> {
  const { tables, sources, clock, randomness } = deps;
  if (run.mode === "full") await markDamagedResources(tables);
  const storedUnits = await readUnits(tables);
  const works: UnitWork[] = [];
  const failures: RunRecord["failures"] = [];
  const add = (source: string, unit: string, action: UnitWork["action"]) =>
    works.push({ source, unit, action, status: "waiting", attempts: 0 });
  for (const source of sources) {
    try {
      // A source that is off has no units, so its stored ones are removed.
      const units = new Set(source.off ? [] : await source.units());
      for (const unit of units) add(source.name, unit, "read");
      const keys = new Set([...units].map((unit) => unitKey(source.name, unit)));
      // The unit without a name is not removed: it has the coverage item of the source itself (`recordListing`).
      for (const [key, { source: storedSource, unit }] of storedUnits)
        if (storedSource === source.name && unit !== "" && !keys.has(key)) add(source.name, unit, "remove");
      await recordListing(source.name, storedUnits.has(unitKey(source.name, "")), source.off, deps);
    } catch (error) {
      if (!(error instanceof CloudFailure)) throw error;
      const { code, message, remedy } = error;
      failures.push({ source: source.name, code, message, remedy });
      await recordListing(source.name, storedUnits.has(unitKey(source.name, "")), { code, message, remedy }, deps);
    }
  }
  const planId = randomness.ulid(clock.now());
  const rows = works.map((work, index) => put(UnitWorks, workKey(planId, index), work));
  await tables.write(TABLE, runPartition(run.runId), rows);
  // Fails if another worker's plan became valid. The rows of this one are then never read: their keys contain its plan ID.
  await undefinedIfChanged(changeRun(run, { type: "planned", planId, units: works.length, failures }, deps));
  // Starts more workers beside this one.
  for (let more = 1; more < Math.min(UNITS_AT_ONCE, works.length); more++) await send(run.runId, 0, deps);
}

/**
 * Stores a coverage item if a source is off or its units could not be listed, in a unit without a name. Otherwise removes the
 * item of an earlier run.
 *
 * @param wasReported - Whether an earlier run stored such an item.
 */
async function recordListing(
  source: string,
  wasReported: boolean,
  failure: Failure | undefined,
  { tables, clock }: WorkDeps,
): Promise<void> {
  const key = unitKey(source, "");
  // The key contains no code, so that the next run finds the row even if the failure is another one.
  const rowKey = notSeenKey(key, { scope: source, code: "" });
  if (failure) {
    const { code, message, remedy } = failure;
    const now = clock.now().toISOString();
    const item = { scope: source, source, unit: "", code, message, remedy };
    const update = (before: NotSeenRecord | undefined) => ({
      ...item,
      since: before?.code === code ? before.since : now,
    });
    await tables.modify(NotSeenRows, DEPENDENCIES, rowKey, update, { replaceCorrupt: true });
    await tables.write(TABLE, DEPENDENCIES, [
      put(Units, unitRowKey(key), { source, unit: "", resources: 0, edges: 0, notSeen: 1, notSeenLeftOut: 0 }),
    ]);
  } else if (wasReported)
    await tables.write(TABLE, DEPENDENCIES, [remove(NotSeenRows, rowKey), remove(Units, unitRowKey(key))]);
}

async function workOnUnit(unit: LeasedRow<UnitWork>, { runId, mode }: RunRecord, deps: WorkDeps): Promise<void> {
  const { tables, sources, references, log } = deps;
  const { source: name, unit: unitName, action, readTo, worker, changed: changedBefore = 0 } = unit.row;
  // Set, because this worker has leased the unit.
  const workerId = worker!;
  const source = sources.find((one) => one.name === name);
  const signal = AbortSignal.any([unit.signal, AbortSignal.timeout(MAX_UNIT_MS)]);
  try {
    // Without `source`, a host of another version has planned a unit of a source that this version does not have.
    const outcome =
      action === "remove" || !source
        ? await removeUnit(name, unitName, { runId, workerId }, deps)
        : await readUnit(source, unitName, { mode, runId, workerId, signal, readTo }, deps);
    await references.requestEvaluations();
    const { failure } = outcome;
    const changed = changedBefore + outcome.changed;
    const event: UnitEvent = outcome.readTo
      ? { type: "handedOff", changed, readTo: outcome.readTo }
      : { type: "ended", changed, failure };
    await endLease(unit, event, tables);
    log.debug("A unit's dependencies were read", {
      source: name,
      unit: unitName,
      action,
      changed,
      failure: failure?.code,
    });
  } catch (error) {
    await endLease(unit, { type: "released" }, tables);
    // Another worker has taken the unit and ends it.
    if (!isConflict(error)) throw error;
  }
}

/** Ends a run whose units have all ended: records it in the audit log, and allows the next run. */
async function endRun(run: Row<RunRecord>, deps: WorkDeps): Promise<void> {
  try {
    await recordEnd(phaseOf(run) === "ending" ? run : await decideEnd(run, deps), deps);
  } catch (error) {
    // Another worker ends the run.
    if (!isConflict(error)) throw error;
    return;
  }
  if (run.mode === "full") {
    await deps.runs.removeOld((runIds) => removeRunUnits(runIds, deps.tables));
    await deps.references.removeOld();
  }
}

async function decideEnd(run: Row<RunRecord>, deps: WorkDeps): Promise<Row<RunRecord>> {
  const works = await readRunUnits(run, deps.tables);
  const stored = [...(await readUnits(deps.tables)).values()];
  const entryId = deps.randomness.ulid(deps.clock.now());
  return await changeRun(run, { type: "unitsEnded", works, stored, entryId }, deps);
}

/** Records the end in the audit log under the ID in the run's row, and ends the run. Safe to repeat. */
async function recordEnd(ending: Row<RunRecord>, deps: WorkDeps): Promise<void> {
  const { audit, runs, references, clock, log } = deps;
  let run = ending;
  const { runId, mode, requestId, units, unitsFailed, resources, edges, notSeen, changed } = run;
  const end = nextRun(run, { type: "recorded", at: clock.now() })!;
  const details = { mode, status: end.status, units, unitsFailed, resources, edges, notSeen, changed };
  await references.requestEvaluations();
  const event = {
    id: run.entryId!,
    type: "dependencies.discovered",
    caller: { actor: "system", requestId },
    outcome: end.status === "completed" ? ("success" as const) : ("failure" as const),
    target: { type: "dependencyRun", id: runId },
    details,
  };
  // Stores another ID for the entry, if the audit log no longer accepts the first one.
  const storeEntryId = async (entryId: string) => {
    run = await changeRun(run, { type: "entryMoved", entryId }, deps);
  };
  await recordRunEnd(audit, event, { ...deps, storeEntryId });
  await deps.ended({ mayHaveChanged: mode === "full" || changed !== 0 });
  await runs.end(run, end);
  log.info("Dependencies were read", { runId, ...details });
}
