import fc from "fast-check";
import { expect, test } from "vitest";
import { draftRotation } from "../../shared/rotation/draft.ts";
import type { RotationPlan } from "../../shared/rotation/request.ts";
import {
  isOver,
  isToRestore,
  isVaultSecret,
  type RotationRecord,
  type StepName,
} from "../../shared/rotation/rotation.ts";
import {
  canRollBack,
  finishStep,
  mayHoldNewValue,
  nextStep,
  requestAttention,
  startRollback,
  startStep,
} from "../../shared/rotation/transitions.ts";
import { Reached, VersionedRow } from "../support/random-events.ts";
import { IS_CAMPAIGN } from "../support/sampling.ts";

// Drives the transition functions of rotations with random events. These are steps that succeed, fail or need a user, workers
// that crash or write late, copies of messages, and users that cancel or retry. A step's effects on places and client secrets
// are simulated.
//
// Members of a rotation: `ending` is set by a rollback, and is the status with which the rotation will end. `revokingSince` is
// set before the old secret is removed. The state of an attempt to add a secret goes from `asked` to `made`, and in a rollback
// over `discarding` to `removed`. The state of a place goes from `planned` over `writing` to `written`, and back over
// `restoring` to `restored`.

const NOW = new Date("2026-11-01T00:00:00Z");
const FAILURE = { code: "internal", message: "It failed.", remedy: "Fix it." };
const FORWARD: StepName[] = ["makeRoom", "create", "prove", "publish", "verify", "overlap", "revoke", "cleanUp"];
const BACKWARD: StepName[] = ["putBack", "restore", "removeNew", "cleanUp"];

const KINDS = ["client secret", "client secret without room", "vault secret"] as const;

/** Returns a new rotation in its first stored state. */
function plannedRotation(kind: (typeof KINDS)[number]): RotationRecord {
  const places = ["kv-one", "kv-two"].map((vaultName) => ({
    vaultName,
    vaultUri: `https://${vaultName}.vault.azure.net`,
    secretName: "db",
    kind: kind === "vault secret" ? ("secret" as const) : ("match" as const),
    plannedVersion: "v1",
    state: "planned" as const,
  }));
  const plan = {
    status: "planned",
    expiryDays: 90,
    overlapDays: 1,
    updateKeyVaults: true,
    knownKeyIds: ["old"],
    publications: places,
    notUpdated: [],
    notes: [],
    coverage: [],
    ...(kind === "vault secret"
      ? { assetId: "kv-one.secret.db" }
      : { appId: "app", objectId: "object", appName: "Shop", oldKeyId: "old" }),
    ...(kind === "client secret without room" ? { removeExpired: "expired" } : {}),
  } as unknown as RotationPlan;
  const caller = { actor: "admin", requestId: "request" };
  return { ...draftRotation(plan, { rotationId: "rotation", caller, automatic: undefined, now: NOW }), writeId: "" };
}

/** A worker that has started a step, with the version of the rotation that it wrote. */
interface Worker {
  name: StepName;
  version: number;
}

class Model {
  readonly row: VersionedRow<RotationRecord>;
  readonly workers: Worker[] = [];
  readonly reached: Reached;

  constructor(kind: (typeof KINDS)[number], reached: Reached) {
    this.reached = reached;
    this.row = new VersionedRow(plannedRotation(kind), 0);
  }

  get record(): RotationRecord {
    return this.row.value;
  }
  get isWaiting(): boolean {
    return isOver(this.record.status) || this.record.status === "needsAttention";
  }

  /** Writes a change of the rotation that was read at `version`. Returns the new version; undefined if the write is rejected. */
  write(version: number, change: Partial<RotationRecord>, event: string): number | undefined {
    const before = this.record;
    const written = this.row.write(version, { ...before, ...change }, 0);
    if (written === undefined) {
      this.reached.count("late write");
      return undefined;
    }
    this.reached.count(`${before.status}${before.ending ? ` to ${before.ending}` : ""}: ${event}`);
    this.check(before);
    return written;
  }

  /** Checks what must be true after each write. */
  check(before: RotationRecord): void {
    const { record } = this;
    expect(isOver(before.status), "an ended rotation stays unchanged").toBe(false);
    if (before.ending) expect(record.ending, "a rollback is never taken back").toBe(before.ending);
    if (before.revokingSince)
      expect(record.ending, "nothing is rolled back after the old secret is removed").toBeUndefined();
    if (isOver(record.status)) {
      expect(record.status).toBe(record.ending ?? "completed");
      expect(record.endedAt).toBeDefined();
      expect(record.steps.filter(({ status }) => status === "waiting" || status === "running")).toEqual([]);
      const isLeft = record.publications.some(mayHoldNewValue) || record.consumers?.some(isToRestore);
      if (record.ending) expect(isLeft, "a rollback restores everything").not.toBe(true);
      else expect(record.publications.every(({ state }) => state === "written")).toBe(true);
      this.reached.count(`ends ${record.status}`);
    } else if (record.status !== "needsAttention") {
      const next = nextStep(record);
      expect(record.ending ? BACKWARD : FORWARD).toContain(next);
      const isRestored = !record.publications.some(mayHoldNewValue) && !record.consumers?.some(isToRestore);
      if (next === "removeNew") expect(isRestored, "places and consumers are restored before the removal").toBe(true);
      if (isVaultSecret(record)) expect(["makeRoom", "create", "prove", "revoke", "removeNew"]).not.toContain(next);
    } else expect(record.attention?.resume).toBe(before.status);
  }

  /** A message starts the next step. `version` is outdated for a copy that read the rotation earlier. */
  start(version = this.row.version): Worker | undefined {
    if (this.isWaiting) return undefined;
    const change = startStep(this.record, NOW);
    const name = nextStep({ ...this.record, ...change });
    const written = this.write(version, change, `starts ${name}`);
    if (written === undefined) return undefined;
    const worker = { name, version: written };
    this.workers.push(worker);
    return worker;
  }

  /** Simulates what a step stores before it ends. `half`: the worker stops after the intent of a change. */
  stepEffects({ name }: Worker, half: boolean): Partial<RotationRecord> {
    const { publications, attempts, consumers = [] } = this.record;
    switch (name) {
      case "create": {
        const attempt = { displayName: "new", askedAt: "", keyId: "new" };
        return half
          ? { attempts: [{ ...attempt, state: "asked" }] }
          : { attempts: [{ ...attempt, state: "made" }], newKeyId: "new" };
      }
      case "publish":
        return {
          publications: publications.map((one, index) =>
            half ? (index === 0 ? { ...one, state: "writing" } : one) : { ...one, state: "written" },
          ),
        };
      case "verify": {
        const consumer = {
          id: "site",
          kind: "webApp",
          name: "site",
          touchedAt: "t",
          state: half ? "acting" : "verified",
        };
        return { consumers: [consumer] as unknown as NonNullable<RotationRecord["consumers"]> };
      }
      case "revoke":
        return { revokingSince: "t" };
      case "putBack":
        return {
          publications: publications.map((one) =>
            mayHoldNewValue(one) ? { ...one, state: half ? "restoring" : "restored" } : one,
          ),
        };
      case "restore":
        return { consumers: consumers.map((one) => ({ ...one, state: half ? "restoring" : "restored" })) };
      case "removeNew":
        return { attempts: attempts.map((one) => ({ ...one, state: half ? "discarding" : "removed" })) };
      default:
        return {};
    }
  }

  /** A worker stores the effects of its step. */
  save(worker: Worker, half: boolean): boolean {
    const effects = worker.version === this.row.version ? this.stepEffects(worker, half) : {};
    const version = this.write(
      worker.version,
      effects,
      `${worker.name} ${half ? "stores its intent" : "stores its result"}`,
    );
    if (version !== undefined) worker.version = version;
    return version !== undefined;
  }

  finish(worker: Worker): void {
    if (!this.save(worker, false)) return;
    this.write(worker.version, finishStep(this.record, worker.name, NOW), `finishes ${worker.name}`);
  }

  /** A step fails for good, as step-runner.ts handles it. */
  fail(worker: Worker, needsUser: boolean): void {
    const { record } = this;
    const rollsBack = !needsUser && record.ending === undefined && canRollBack(worker.name);
    const change = (rollsBack ? startRollback : requestAttention)(record, worker.name, FAILURE, NOW);
    this.write(worker.version, change, rollsBack ? "rolls back" : "needs attention");
  }

  /** A user cancels, as rotations.ts allows it. */
  cancel(): void {
    const { status, ending, revokingSince, attention } = this.record;
    if (isOver(status) || ending || revokingSince !== undefined || status === "revoking") return;
    const resumed = attention ? { status: attention.resume, attention: undefined } : {};
    if (attention?.resume === "revoking") return;
    this.write(this.row.version, { cancel: { by: "admin", at: "" }, ...resumed }, "is cancelled");
  }

  retry(): void {
    const { attention } = this.record;
    if (attention) this.write(this.row.version, { status: attention.resume, attention: undefined }, "is retried");
  }

  /** Works without faults until the rotation has ended. */
  finishAll(): void {
    for (let steps = 0; !isOver(this.record.status); steps++) {
      expect(steps, "the rotation does not end").toBeLessThan(20);
      this.retry();
      this.finish(this.start()!);
    }
  }
}

/**
 * `half`: a worker stores the intent of its step. `fail`: the step fails for good. `needsUser`: the same, and only a user can fix
 * it. `copy`: a copy of an earlier message starts a step. Kinds that occur twice are more frequent.
 */
const EVENTS = ["start", "start", "finish", "finish", "half", "fail", "needsUser", "cancel", "retry", "copy"] as const;
const events = fc.array(fc.record({ kind: fc.constantFrom(...EVENTS), which: fc.nat(20) }), {
  maxLength: 60,
  size: "max",
});

/**
 * Executes an event.
 *
 * @param event.which - Random number from 0 to 20. It selects the worker, and makes cancellations and failures rarer.
 */
function execute(model: Model, { kind, which }: { kind: (typeof EVENTS)[number]; which: number }): void {
  // Mostly the current worker acts, sometimes a worker that another one has replaced.
  const worker = which < 15 ? model.workers.at(-1) : model.workers[which % Math.max(1, model.workers.length)];
  if (kind === "start") model.start();
  else if (kind === "copy") model.start(Math.max(0, model.row.version - 1));
  else if (kind === "cancel") {
    if (which < 4) model.cancel();
  } else if (kind === "retry") model.retry();
  else if (worker !== undefined) {
    if (kind === "finish") model.finish(worker);
    else if (kind === "half") model.save(worker, true);
    else if (which % 4 === 0) model.fail(worker, kind === "needsUser");
  }
}

test("after any sequence of events, a rotation ends, rolls back only before the old secret is removed, and leaves no half-written place", () => {
  const reached = new Reached();
  fc.assert(
    fc.property(fc.constantFrom(...KINDS), events, (kind, all) => {
      const model = new Model(kind, reached);
      for (const event of all) execute(model, event);
      model.finishAll();
    }),
    { numRuns: IS_CAMPAIGN ? 100_000 : 3_000 },
  );
  console.info(`Reached by random rotations:\n${reached}`);
  const situations = reached.situations.join("\n");
  for (const name of [...FORWARD, ...BACKWARD]) {
    expect(situations).toContain(`: starts ${name}`);
    expect(situations).toContain(`: finishes ${name}`);
  }
  for (const status of ["completed", "failed", "cancelled", "rolledBack"])
    expect(situations).toContain(`ends ${status}`);
  for (const event of ["rolls back", "needs attention", "is cancelled", "is retried"])
    expect(situations).toContain(`: ${event}`);
  expect(reached.situations).toContain("late write");
});
