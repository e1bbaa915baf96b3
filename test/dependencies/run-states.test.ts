import fc from "fast-check";
import { expect, test } from "vitest";
import type { RunRecord, UnitRecord, UnitWork } from "../../shared/dependencies/rows.ts";
import {
  MAX_ATTEMPTS,
  nextRun,
  nextUnit,
  phaseOf,
  type RunEvent,
  type UnitEvent,
} from "../../shared/dependencies/run-states.ts";
import { HEARTBEAT_LEASE } from "../../shared/platform/runs/leased-row.ts";
import { Reached, VersionedRow } from "../support/random-events.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";

// Drives the transition functions of discovery runs and their units (parts of a source, such as a subscription) with random
// events. Workers read rows, act on what they read, crash, and write late. Storage rejects a write if another worker wrote the row
// since it was read.

const { leaseMs } = HEARTBEAT_LEASE;
const FAILURE = { code: "accessDenied", message: "Could not read.", remedy: "Give the role Reader." };

/**
 * The tables at the head of run-states.ts, as `state event next state`. `entryMoved`: the run gets another ID for the audit entry
 * of its end, because the audit log no longer accepts the first one.
 */
const UNIT_TRANSITIONS = [
  "waiting taken running",
  "waiting taken failed",
  "running taken running",
  "running taken failed",
  "running released waiting",
  "running handedOff waiting",
  "running ended done",
  "running ended failed",
];
const RUN_TRANSITIONS = [
  "queued planned running",
  "running unitsEnded ending",
  "ending entryMoved ending",
  "ending recorded over",
  "queued gaveUp over",
  "running gaveUp over",
  "ending gaveUp over",
];

/** A worker's copy of a unit's row. */
interface UnitReader {
  row: VersionedRow<UnitWork>;
  value: UnitWork;
  version: number;
  abandoned: boolean;
}

/** A run with its units, and the workers that have read or leased them. */
class Model {
  now = 0;
  readonly run: VersionedRow<RunRecord>;
  readonly units: VersionedRow<UnitWork>[];
  /** Workers that have read a unit and may try to lease it. */
  readonly readers: UnitReader[] = [];
  /** Workers that have leased a unit. A crashed worker does nothing more. */
  readonly leasingWorkers: UnitReader[] = [];
  /** Copies of the run's row that workers have read. */
  readonly runReaders: { value: RunRecord; version: number }[] = [];
  /** Number of resources that the accepted results of units reported. */
  changed = 0;
  /** Number of times that the run ended. */
  ends = 0;
  readonly reached: Reached;

  constructor(units: number, failedListing: boolean, reached: Reached) {
    this.reached = reached;
    const listing = failedListing ? [{ source: "azure", ...FAILURE }] : [];
    const base = { runId: "run", mode: "full", trigger: "api", requestedBy: "admin", requestId: "request" } as const;
    this.run = new VersionedRow<RunRecord>({ ...base, status: "queued", createdAt: "", failures: listing }, 0);
    const unit = { source: "azure", unit: "s1", action: "read", status: "waiting", attempts: 0 } as const;
    this.units = Array.from({ length: units }, () => new VersionedRow<UnitWork>({ ...unit }, 0));
  }

  /** A worker reads a unit. Later it tries to take the unit as it was then. */
  readUnit(index: number): UnitReader {
    const row = this.units[index % this.units.length]!;
    const abandoned = row.value.status === "running" && this.now - row.writtenAt >= leaseMs;
    return { row, value: row.value, version: row.version, abandoned };
  }

  /** Returns whether the worker has the unit now. */
  take(reader: UnitReader, worker: string): boolean {
    const isTaken =
      this.applyUnit(reader, { type: "taken", worker, abandoned: reader.abandoned }) &&
      reader.value.status === "running";
    if (isTaken) this.leasingWorkers.push(reader);
    return isTaken;
  }

  /** Applies an event to a worker's copy of a unit and writes it. Returns whether storage accepted the write. */
  applyUnit(reader: UnitReader, event: UnitEvent): boolean {
    const before = reader.value;
    const next = nextUnit(before, event);
    if (next === undefined) {
      this.reached.count(`${event.type} rejected`);
      return false;
    }
    const version = reader.row.write(reader.version, next, this.now);
    if (version === undefined) {
      this.reached.count("late write");
      return false;
    }
    this.reached.count(`unit ${before.status} ${event.type} ${next.status}`);
    expect(UNIT_TRANSITIONS).toContain(`${before.status} ${event.type} ${next.status}`);
    expect(next.attempts).toBeLessThanOrEqual(MAX_ATTEMPTS);
    expect(next.worker !== undefined || next.status !== "running").toBe(true);
    expect(next.status === "failed").toBe(next.failure !== undefined);
    if (before.status === "running" && event.type === "taken") expect(event.abandoned).toBe(true);
    if (event.type === "handedOff" || event.type === "ended") this.changed += event.changed - (before.changed ?? 0);
    reader.value = next;
    reader.version = version;
    return true;
  }

  applyRun(reader: { value: RunRecord; version: number }, event: RunEvent) {
    const before = phaseOf(reader.value);
    const change = nextRun(reader.value, event);
    if (change === undefined) return this.reached.count(`${event.type} rejected`);
    const next = { ...reader.value, ...change };
    if (this.run.write(reader.version, next, this.now) === undefined) return this.reached.count("late write");
    this.reached.count(`run ${before} ${event.type} ${phaseOf(next)}`);
    expect(RUN_TRANSITIONS).toContain(`${before} ${event.type} ${phaseOf(next)}`);
    if (phaseOf(next) !== "over") return;
    this.ends++;
    expect(this.ends).toBe(1);
    expect(next.finishedAt).toBeDefined();
    if (event.type === "recorded") this.checkCounts(next);
  }

  /** A worker acts on its copy of the run as run-work.ts does: it plans the run, ends it, or records its end. */
  workOnRun(reader: { value: RunRecord; version: number }, moveEntry: boolean) {
    const entryId = `entry-${this.now}`;
    const works = this.units.map(({ value }) => value);
    switch (phaseOf(reader.value)) {
      case "queued":
        return this.applyRun(reader, {
          type: "planned",
          planId: "plan",
          units: works.length,
          failures: reader.value.failures,
        });
      case "running":
        if (works.some(({ status }) => status === "waiting" || status === "running")) return;
        return this.applyRun(reader, { type: "unitsEnded", works, stored: [STORED], entryId });
      case "ending":
        if (moveEntry) return this.applyRun(reader, { type: "entryMoved", entryId });
        return this.applyRun(reader, { type: "recorded", at: new Date(this.now) });
      case "over":
        return this.applyRun(reader, { type: "recorded", at: new Date(this.now) });
    }
  }

  checkCounts(run: RunRecord): void {
    const failed = this.units.filter(({ value }) => value.status === "failed").length;
    const failures = failed + run.failures.filter(({ unit }) => unit === undefined).length;
    const status = failures === 0 ? "completed" : this.units.length > failed ? "partial" : "failed";
    expect([run.status, run.unitsFailed, run.changed]).toEqual([status, failed, this.changed]);
    expect([run.edges, run.resources, run.notSeen]).toEqual([STORED.edges, STORED.resources, STORED.notSeen]);
    this.reached.count(`run ends ${run.status}`);
  }

  /**
   * Works until the run is over.
   *
   * @param fault - What each worker does with the first unit: it ends it, crashes, or releases it after an error.
   */
  finish(fault: "none" | "crash" | "error"): void {
    for (let round = 0; phaseOf(this.run.value) !== "over"; round++) {
      expect(round, "the run does not end").toBeLessThan(20);
      this.now += leaseMs;
      if (phaseOf(this.run.value) === "running") {
        for (const index of this.units.keys()) {
          const reader = this.readUnit(index);
          if (!this.take(reader, "last") || (index === 0 && fault === "crash")) continue;
          if (index === 0 && fault === "error") this.applyUnit(reader, { type: "released" });
          else this.applyUnit(reader, { type: "ended", changed: reader.value.changed ?? 0 });
        }
      }
      this.workOnRun({ ...this.run }, false);
    }
  }
}

const STORED: UnitRecord = { source: "azure", unit: "s1", resources: 3, edges: 5, notSeen: 1, notSeenLeftOut: 0 };

// Commands that occur twice are more frequent. `handOff`: a worker stops at a position, and the next message continues from there.
// `release`: a worker gives its unit back after an error. `which` is a random number that selects a worker, a unit or a variant.
const COMMANDS = ["read", "read", "take", "take", "wait", "heartbeat", "end", "fail", "handOff", "release"] as const;
const RUN_COMMANDS = ["readRun", "workOnRun", "workOnRun", "moveEntry", "giveUp", "stray"] as const;
const command = fc.record({
  kind: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...COMMANDS) },
    { weight: 3, arbitrary: fc.constantFrom(...RUN_COMMANDS) },
  ),
  which: fc.nat(50),
});

function execute(
  model: Model,
  { kind, which }: { kind: (typeof COMMANDS | typeof RUN_COMMANDS)[number]; which: number },
) {
  const pick = <T>(all: readonly T[]): T | undefined => all[which % Math.max(1, all.length)];
  const leasingWorker = pick(model.leasingWorkers);
  const runReader = pick(model.runReaders);
  switch (kind) {
    case "read":
      return model.readers.push(model.readUnit(which));
    case "take": {
      const reader = pick(model.readers);
      // A copy of the worker's message takes the unit again from the same read.
      return reader && model.take({ ...reader }, `worker-${model.leasingWorkers.length}`);
    }
    case "wait":
      model.now += which % 2 === 0 ? leaseMs : leaseMs / 4;
      return;
    case "heartbeat": {
      const version = leasingWorker?.row.write(leasingWorker.version, leasingWorker.value, model.now);
      if (version !== undefined) leasingWorker!.version = version;
      return;
    }
    case "end":
      return (
        leasingWorker &&
        model.applyUnit(leasingWorker, { type: "ended", changed: (leasingWorker.value.changed ?? 0) + which })
      );
    case "fail":
      return (
        leasingWorker &&
        model.applyUnit(leasingWorker, {
          type: "ended",
          changed: leasingWorker.value.changed ?? 0,
          failure: FAILURE,
        })
      );
    case "handOff": {
      const readTo = { place: String(which), startedAt: "" };
      return (
        leasingWorker &&
        model.applyUnit(leasingWorker, {
          type: "handedOff",
          changed: (leasingWorker.value.changed ?? 0) + which,
          readTo,
        })
      );
    }
    case "release":
      return leasingWorker && model.applyUnit(leasingWorker, { type: "released" });
    case "readRun":
      return model.runReaders.push({ value: model.run.value, version: model.run.version });
    case "workOnRun":
    case "moveEntry":
      // A worker mostly reads the run just before it acts.
      return model.workOnRun(which % 3 === 0 && runReader ? runReader : { ...model.run }, kind === "moveEntry");
    case "stray": {
      // An event that no worker sends in most phases.
      const { failures } = model.run.value;
      const stray: RunEvent[] = [
        { type: "planned", planId: "plan", units: model.units.length, failures },
        { type: "recorded", at: new Date(model.now) },
        { type: "entryMoved", entryId: "stray" },
      ];
      return model.applyRun({ ...model.run }, pick(stray)!);
    }
    case "giveUp":
      // Five deliveries of a message failed, which is rare.
      if (which < 48 && which > 1) return;
      return model.applyRun(
        { ...model.run },
        { type: "gaveUp", failure: { source: "service", ...FAILURE }, at: new Date(model.now) },
      );
  }
}

test("after any sequence of events, units and runs have followed the tables of states, and each run ends once and loses no result", () => {
  const reached = new Reached();
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 4 }),
      fc.boolean(),
      fc.constantFrom("none" as const, "crash" as const, "error" as const),
      fc.array(command, { minLength: 5, maxLength: 120, size: "max" }),
      (units, failedListing, fault, commands) => {
        const model = new Model(units, failedListing, reached);
        for (const one of commands) execute(model, one);
        model.finish(fault);
      },
    ),
    { numRuns: IS_CAMPAIGN ? 100_000 : 2_000 },
  );
  console.info(`Reached by random runs:\n${reached}`);
  const situations = [
    ...UNIT_TRANSITIONS.map((transition) => `unit ${transition}`),
    ...RUN_TRANSITIONS.map((transition) => `run ${transition}`),
    ...["completed", "partial", "failed"].map((status) => `run ends ${status}`),
    ...["taken", "released", "handedOff", "ended", "planned", "entryMoved", "recorded", "gaveUp"].map(
      (event) => `${event} rejected`,
    ),
    "late write",
  ];
  expect(reached.situations).toEqual(situations.sort());
});

test("units whose rows can't be read count as failed", () => {
  const run = { status: "running", units: 3, failures: [] } as unknown as RunRecord;
  const done = { source: "azure", unit: "one", status: "done" } as unknown as UnitWork;
  const ending = nextRun(run, { type: "unitsEnded", works: [done], stored: [], entryId: "entry" });
  expect(ending).toMatchObject({ unitsFailed: 2, failures: [{ code: "internal" }] });
  expect(nextRun({ ...run, ...ending }, { type: "recorded", at: new Date(0) })?.status).toBe("partial");
});
