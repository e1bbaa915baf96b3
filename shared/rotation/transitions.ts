import { attentionFor } from "./attention.ts";
import {
  type Attempt,
  isToRestore,
  isVaultSecret,
  type Publication,
  type RotationFailure,
  type RotationRecord,
  type RotationStatus,
  type Step,
  type StepName,
} from "./rotation.ts";

/**
 * States of a rotation: pure functions of its record, for step-runner.ts.
 *
 * A step is started (`startStep`) before its work and ends with one event: finished (`finishStep`), failed (`startRollback`) or
 * stopped (`requestAttention`). The state is `status`. During a rollback it is `ending`, the status that follows the rollback.
 * `nextStep` returns the step of each state. An event is rejected in any state for which this table has no row.
 *
 * | state | step | event | next state | written |
 * |---|---|---|---|---|
 * | `planned` | `makeRoom`, `create`; vault secret: `publish` | started | `creating`; vault secret: `publishing` | |
 * | `creating` | `makeRoom` | finished | `creating` | |
 * | `creating` | `create` | finished | `proving` | |
 * | `proving` | `prove` | finished | `publishing` | |
 * | `publishing` | `publish` | finished | `verifying` | |
 * | `verifying` | `verify` | finished | `overlapping` | |
 * | `overlapping` | `overlap` | finished | `revoking` | |
 * | `overlapping`, cancelled meanwhile | `overlap` | finished | `overlapping` | the next start begins the rollback |
 * | `revoking` | `revoke`, not for a vault secret | finished | `revoking` | |
 * | `revoking` | `cleanUp` | finished | `completed` | time of the end |
 * | `creating` to `verifying` | its step | failed | rollback (see below) | failure; `ending`: `rolledBack` or `failed` |
 * | any before the old secret is removed, cancelled | the next of the rollback | started | rollback | `ending`: `cancelled` |
 * | rollback, places may have the new value | `putBack` | finished | rollback | |
 * | rollback, consumers may have the new value | `restore` | finished | rollback | |
 * | rollback, a created client secret may exist | `removeNew` | finished | rollback | |
 * | rollback, nothing is left | `cleanUp` | finished | `ending` | time of the end |
 * | `overlapping`, `revoking`, rollback | its step | stopped | `needsAttention` | attention with the state to resume |
 * | any, if only a user can decide | its step | stopped | `needsAttention` | attention with the state to resume |
 * | `needsAttention` | none | retried or cancelled by a user (rotations.ts) | the state to resume | |
 * | `needsAttention` | none | finished by a user (rotations.ts) | `overlapping` | |
 *
 * After a failure, `ending` is `failed` if no place may have the new value, otherwise `rolledBack`. A failure during a
 * rollback starts no other rollback.
 *
 * Steps also write the status. `prove` returns to `creating` to replace a secret whose value is lost. `overlap` returns to
 * `publishing` to write places that a user confirmed. `revoke` returns to `overlapping` if the last check is too old.
 */

/** Status after a step is done, if the step changes the status. */
const NEXT_STATUS: Partial<Record<StepName, RotationStatus | "ended">> = {
  create: "proving",
  prove: "publishing",
  publish: "verifying",
  verify: "overlapping",
  overlap: "revoking",
  cleanUp: "ended",
};

/** Steps whose permanent failure starts a rollback. A failure of any other step needs the attention of a user. */
const REVERSIBLE_STEPS: readonly StepName[] = ["makeRoom", "create", "prove", "publish", "verify"];
export const canRollBack = (name: StepName): boolean => REVERSIBLE_STEPS.includes(name);

/** Returns whether a place may have the new value. */
export const mayHoldNewValue = ({ state }: Publication): boolean =>
  state === "writing" || state === "written" || state === "restoring";

/** Returns whether a requested client secret may still have to be removed. */
const mayNeedRemoval = ({ state }: Attempt): boolean => state === "asked" || state === "made" || state === "discarding";

const isDone = ({ steps }: RotationRecord, name: StepName): boolean =>
  steps.some((step) => step.name === name && step.status === "done");

/** Returns the step that runs next. */
export function nextStep(record: RotationRecord): StepName {
  // `ending` is set during a rollback, which restores the places, then the consumers, and then removes the new secret.
  if (record.ending) {
    if (record.publications.some(mayHoldNewValue)) return "putBack";
    if (record.consumers?.some(isToRestore)) return "restore";
    return record.attempts.some(mayNeedRemoval) ? "removeNew" : "cleanUp";
  }
  switch (record.status) {
    case "proving":
      return "prove";
    case "publishing":
      return "publish";
    case "verifying":
      return "verify";
    case "overlapping":
      return "overlap";
    case "revoking":
      return isVaultSecret(record) || isDone(record, "revoke") ? "cleanUp" : "revoke";
    default:
      // `planned` or `creating`: no step runs in any other status.
      if (isVaultSecret(record)) return "publish";
      return record.removeExpired !== undefined && !isDone(record, "makeRoom") ? "makeRoom" : "create";
  }
}

const startedStep =
  (now: Date) =>
  (step: Step): Step => ({
    ...step,
    status: "running",
    attempts: step.attempts + 1,
    startedAt: step.startedAt ?? now.toISOString(),
  });

/** Returns the steps with a change of one. Adds the step if it is one of a rollback, which a new rotation does not have. */
const changeStep = (steps: readonly Step[], name: StepName, change: (step: Step) => Step): Step[] => {
  const all = steps.some((step) => step.name === name)
    ? steps
    : [...steps, { name, status: "waiting" as const, attempts: 0 }];
  return all.map((step) => (step.name === name ? change(step) : step));
};

/** Starts the next step. A cancellation takes effect here. */
export function startStep(record: RotationRecord, now: Date): Partial<RotationRecord> {
  const cancelled = record.cancel && !record.ending && record.revokingSince === undefined;
  const started = { ...record, ...(cancelled && { ending: "cancelled" as const }) };
  return {
    ...(cancelled && { ending: "cancelled" }),
    ...(record.status === "planned" && !cancelled && { status: isVaultSecret(record) ? "publishing" : "creating" }),
    steps: changeStep(record.steps, nextStep(started), startedStep(now)),
  };
}

/** Completes a step and sets the status that follows. */
export function finishStep(record: RotationRecord, name: StepName, now: Date): Partial<RotationRecord> {
  const steps = changeStep(record.steps, name, (step) => ({
    ...step,
    status: "done",
    finishedAt: now.toISOString(),
    failure: undefined,
  }));
  const nextStatus = NEXT_STATUS[name];
  if (nextStatus === "ended") {
    // A step that a user ended by a cancellation or a forced finish is still `running`.
    const skippedIfUnfinished = (step: Step): Step =>
      step.status === "waiting" || step.status === "running" ? { ...step, status: "skipped" } : step;
    return { steps: steps.map(skippedIfUnfinished), status: record.ending ?? "completed", endedAt: now.toISOString() };
  }
  // If a user cancelled during the overlap step, the status stays, and the next step starts the rollback.
  const rollsBackNext = record.cancel !== undefined && nextStatus === "revoking";
  return { steps, ...(nextStatus !== undefined && !rollsBackNext && { status: nextStatus }) };
}

/** Starts a rollback after a step failed permanently. */
export function startRollback(
  record: RotationRecord,
  name: StepName,
  failure: RotationFailure,
  now: Date,
): Partial<RotationRecord> {
  return {
    steps: stepFailed(record, name, failure, now),
    failure,
    ending: record.publications.some(mayHoldNewValue) ? "rolledBack" : "failed",
  };
}

/** Stops the rotation until a user acts. */
export function requestAttention(
  record: RotationRecord,
  name: StepName,
  failure: RotationFailure,
  now: Date,
): Partial<RotationRecord> {
  return {
    steps: stepFailed(record, name, failure, now),
    attention: attentionFor(record, failure, now),
    status: "needsAttention",
  };
}

const stepFailed = ({ steps }: RotationRecord, name: StepName, failure: RotationFailure, now: Date): Step[] =>
  changeStep(steps, name, (step) => ({ ...step, status: "failed", finishedAt: now.toISOString(), failure }));
