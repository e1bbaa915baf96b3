import type { Taker } from "../platform/runs/leased-row.ts";
import { isOver } from "../platform/runs/run-store.ts";
import type { Failure, ReadTo, RunRecord, UnitRecord, UnitWork } from "./rows.ts";

/**
 * States of a discovery run and of its units (parts of a source, such as a subscription): pure functions of their records, for
 * run-work.ts.
 *
 * States of a unit (`status`). An event is rejected in any state for which this table has no row.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `waiting` | taken | `running` | worker, one more attempt |
 * | `running`, lease expired | taken | `running` | the new worker, one more attempt |
 * | either of them, after five attempts | taken | `failed` | failure |
 * | `running` | released | `waiting` | |
 * | `running` | handedOff | `waiting` | position, changed resources, attempts reset to 0, because the unit made progress |
 * | `running` | ended | `done` or `failed` | changed resources, failure |
 *
 * States of a run (`phaseOf`). An event is rejected in any state for which this table has no row.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `queued` | planned | `running` | plan ID, number of units, sources that could not be listed |
 * | `running` | unitsEnded | `ending` | counts, failures, ID of the audit entry |
 * | `ending` | entryMoved | `ending` | another ID, because the audit log no longer accepts the first one |
 * | `ending` | recorded | `over` | `completed`, `partial` or `failed`, time of the end |
 * | `queued`, `running`, `ending` | gaveUp | `over` | `failed`, failure, time of the end |
 */

/** After this many workers started a unit and none finished it, the unit fails. */
export const MAX_ATTEMPTS = 5;
/** Maximum number of failures that a run shows. */
const MAX_FAILURES = 100;

export type UnitEvent =
  | ({ type: "taken" } & Taker)
  | { type: "released" }
  | { type: "handedOff"; changed: number; readTo: ReadTo }
  | { type: "ended"; changed: number; failure?: Failure | undefined };

/** Returns the unit after an event; undefined if the event is rejected. */
export function nextUnit(unit: UnitWork, event: UnitEvent): UnitWork | undefined {
  if (event.type === "taken") {
    if (unit.status !== "waiting" && !(unit.status === "running" && event.abandoned)) return undefined;
    if (unit.attempts >= MAX_ATTEMPTS) return { ...unit, status: "failed", failure: TOO_MANY_ATTEMPTS };
    return { ...unit, status: "running", worker: event.worker, attempts: unit.attempts + 1 };
  }
  if (unit.status !== "running") return undefined;
  const free = { ...unit, worker: undefined };
  switch (event.type) {
    case "released":
      return { ...free, status: "waiting" };
    case "handedOff":
      return { ...free, status: "waiting", attempts: 0, changed: event.changed, readTo: event.readTo };
    case "ended": {
      const { changed, failure } = event;
      return { ...free, status: failure ? "failed" : "done", changed, ...(failure && { failure }) };
    }
  }
}

const TOO_MANY_ATTEMPTS: Failure = {
  code: "internal",
  message: `The unit could not be completed in ${MAX_ATTEMPTS} attempts.`,
  remedy: "Check GET /system/failed-messages and the log. The next run tries again.",
};

const unreadableUnits = (count: number): Failure => ({
  code: "internal",
  message: `${count} units of the run were not read, because their rows can't be read.`,
  remedy: "The log names the rows. The next run reads all units.",
});

type RunFailure = RunRecord["failures"][number];
/** An event of a run. `works`: the run's units. `stored`: all known units, from which the totals of the run follow. */
export type RunEvent =
  | { type: "planned"; planId: string; units: number; failures: RunFailure[] }
  | { type: "unitsEnded"; works: readonly UnitWork[]; stored: readonly UnitRecord[]; entryId: string }
  | { type: "entryMoved"; entryId: string }
  | { type: "recorded"; at: Date }
  | { type: "gaveUp"; failure: RunFailure; at: Date };

/** Returns the phase of a run. `ending`: all units have ended, and the audit entry of the end is being recorded. */
export function phaseOf(run: RunRecord): "queued" | "running" | "ending" | "over" {
  if (isOver(run)) return "over";
  return run.status === "queued" ? "queued" : run.entryId === undefined ? "running" : "ending";
}

/** Returns the members of a run that an event changes; undefined if the event is rejected. */
export function nextRun(run: RunRecord, event: RunEvent): Partial<RunRecord> | undefined {
  const phase = phaseOf(run);
  switch (event.type) {
    case "planned": {
      const { planId, units, failures } = event;
      return phase === "queued" ? { status: "running", planId, units, failures } : undefined;
    }
    case "unitsEnded":
      return phase === "running" ? { ...countsOf(run, event.works, event.stored), entryId: event.entryId } : undefined;
    case "entryMoved":
      return phase === "ending" ? { entryId: event.entryId } : undefined;
    case "recorded":
      return phase === "ending" ? { status: endStatusOf(run), finishedAt: event.at.toISOString() } : undefined;
    case "gaveUp": {
      const failures = [...run.failures, event.failure];
      return phase === "over" ? undefined : { status: "failed", finishedAt: event.at.toISOString(), failures };
    }
  }
}

/** Returns the status with which an `ending` run ends. */
const endStatusOf = ({ failures, units = 0, unitsFailed = 0 }: RunRecord): RunRecord["status"] =>
  failures.length === 0 ? "completed" : units > unitsFailed ? "partial" : "failed";

function countsOf(run: RunRecord, works: readonly UnitWork[], stored: readonly UnitRecord[]) {
  const failed = works.filter(({ status }) => status === "failed");
  const missing = Math.max(0, (run.units ?? 0) - works.length);
  const failures = [
    // Sources whose units could not be listed.
    ...run.failures.filter(({ unit }) => unit === undefined),
    ...(missing > 0 ? [{ source: "", ...unreadableUnits(missing) }] : []),
    ...failed.map(({ source, unit, failure }) => ({ source, unit, ...failure! })),
  ];
  const sum = (member: "resources" | "edges" | "notSeen") => stored.reduce((total, unit) => total + unit[member], 0);
  return {
    unitsFailed: failed.length + missing,
    resources: sum("resources"),
    edges: sum("edges"),
    notSeen: sum("notSeen"),
    changed: works.reduce((all, one) => all + (one.changed ?? 0), 0),
    failures: failures.slice(0, MAX_FAILURES),
  };
}
