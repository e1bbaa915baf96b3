import { placeOf } from "./publications.ts";
import {
  type Attention,
  isToRestore,
  isVaultSecret,
  type RotationFailure,
  type RotationRecord,
  titleOf,
} from "./rotation.ts";

/**
 * Returns the text that a user gets when a rotation needs attention: what happened, what was done, what is safe and what to do.
 * Names places and key IDs, never a value.
 */
export function attentionFor(record: RotationRecord, { code, message, remedy }: RotationFailure, now: Date): Attention {
  return {
    code,
    message,
    done: doneSoFar(record),
    safe: whatIsSafe(record),
    next: `${remedy} ${waysOn(record)}`,
    since: now.toISOString(),
    resume: record.status,
  };
}

function doneSoFar(record: RotationRecord): string {
  const { newKeyId, oldKeyId, publications, revokingSince, attempts, consumers = [] } = record;
  const written = publications.filter(({ state }) => state === "written" || state === "writing").map(placeOf);
  const restored = publications.filter(({ state }) => state === "restored").map(placeOf);
  const removed = attempts.flatMap(({ state, keyId }) => (state === "removed" && keyId ? [keyId] : []));
  const touched = consumers.filter(isToRestore).map(({ kind, name }) => `${kind} ${name}`);
  const back = consumers.filter(({ state }) => state === "restored").map(({ kind, name }) => `${kind} ${name}`);
  return [
    ...(isVaultSecret(record)
      ? []
      : [
          newKeyId === undefined
            ? `No new client secret of ${titleOf(record)} is in use.`
            : `The client secret ${newKeyId} was added to ${titleOf(record)}.`,
        ]),
    written.length > 0 ? `The new value was written to ${written.join(", ")}.` : "No vault holds the new value.",
    ...(touched.length > 0 ? [`Refreshed to take it: ${touched.join(", ")}.`] : []),
    ...(restored.length > 0 ? [`${restored.join(", ")} got the value from before again.`] : []),
    ...(back.length > 0 ? [`Back on the value from before: ${back.join(", ")}.`] : []),
    ...(removed.length > 0 ? [`Made and removed again: ${removed.join(", ")}.`] : []),
    ...(revokingSince ? [`The old client secret ${oldKeyId} was about to be removed, and may be.`] : []),
  ].join(" ");
}

function whatIsSafe(record: RotationRecord): string {
  const { revokingSince, oldKeyId, newKeyId } = record;
  if (isVaultSecret(record)) return "The version with the old value is still in the vault and can be read.";
  if (revokingSince) return `The new client secret ${newKeyId} works, and stays.`;
  return newKeyId === undefined
    ? `The old client secret ${oldKeyId} was not touched.`
    : `The old client secret ${oldKeyId} was not removed. No secret that this rotation did not make is removed while it stands still.`;
}

function waysOn({ revokingSince, ending }: RotationRecord): string {
  if (revokingSince) return "Then retry this rotation.";
  return ending
    ? "Then retry this rotation, which continues the rollback."
    : "Then retry this rotation, or cancel it, which puts everything back.";
}
