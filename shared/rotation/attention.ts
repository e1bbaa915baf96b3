import { placeOf } from "./publications.ts";
import type { Attention, RotationFailure, RotationRecord } from "./rotation.ts";

/** What a person is told who is asked to look. Names places and key ids, never a value. */
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

function doneSoFar({ newKeyId, oldKeyId, publications, appName, revokingSince, attempts }: RotationRecord): string {
  const written = publications.filter(({ state }) => state === "written" || state === "writing").map(placeOf);
  const restored = publications.filter(({ state }) => state === "restored").map(placeOf);
  const removed = attempts.flatMap(({ state, keyId }) => (state === "removed" && keyId ? [keyId] : []));
  return [
    newKeyId === undefined
      ? `No new client secret of ${appName} is in use.`
      : `The client secret ${newKeyId} was added to ${appName}.`,
    ...(written.length > 0 ? [`It was written to ${written.join(", ")}.`] : []),
    ...(restored.length > 0 ? [`${restored.join(", ")} got the value from before again.`] : []),
    ...(removed.length > 0 ? [`Made and removed again: ${removed.join(", ")}.`] : []),
    ...(revokingSince ? [`The old client secret ${oldKeyId} was about to be removed, and may be.`] : []),
  ].join(" ");
}

function whatIsSafe({ revokingSince, oldKeyId, newKeyId }: RotationRecord): string {
  if (revokingSince) return `The new client secret ${newKeyId} works, and stays.`;
  return newKeyId === undefined
    ? `The old client secret ${oldKeyId} was not touched.`
    : `The old client secret ${oldKeyId} was not removed. No secret that this rotation did not make is removed while it stands still.`;
}

function waysOn({ revokingSince, ending }: RotationRecord): string {
  if (revokingSince) return "Then retry this rotation.";
  return ending
    ? "Then retry this rotation, which goes on putting things back."
    : "Then retry this rotation, or cancel it, which puts everything back.";
}
