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
    done: describeChanges(record),
    safe: describeSafeState(record, code),
    next: `${remedy} ${retryAdvice(record)}`,
    since: now.toISOString(),
    resume: record.status,
  };
}

function describeChanges(record: RotationRecord): string {
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
    ...(restored.length > 0 ? [`${restored.join(", ")} got the previous value again.`] : []),
    ...(back.length > 0 ? [`Consumers with the previous value again: ${back.join(", ")}.`] : []),
    ...(removed.length > 0 ? [`Created and removed again: ${removed.join(", ")}.`] : []),
    ...(revokingSince ? [`The old client secret ${oldKeyId} was about to be removed and may be gone.`] : []),
  ].join(" ");
}

/** `revokingSince` is stored before the old secret is removed. From then on only the new secret is safe. */
function describeSafeState(record: RotationRecord, code: string): string {
  const { revokingSince, oldKeyId, newKeyId } = record;
  if (isVaultSecret(record)) return "The version with the old value is still in the vault and can be read.";
  if (revokingSince && code === "newSecretGone") return `The old client secret ${oldKeyId} was not removed.`;
  if (revokingSince) return `The new client secret ${newKeyId} works and stays.`;
  return newKeyId === undefined
    ? `The old client secret ${oldKeyId} was not touched.`
    : `The old client secret ${oldKeyId} was not removed. While the rotation waits, it removes no secret that it did not create.`;
}

function retryAdvice({ revokingSince, ending }: RotationRecord): string {
  if (revokingSince)
    return "Then retry this rotation, or finish it with force. After two minutes you can also cancel it if the directory still lists the old client secret.";
  return ending
    ? "Then retry this rotation, which continues the rollback."
    : "Then retry this rotation, or cancel it, which rolls everything back.";
}
