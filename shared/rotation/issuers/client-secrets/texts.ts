import { type RotationRecord, type StepName, titleOf } from "../../rotation.ts";
import type { AttentionTexts } from "../issuer.ts";

/** Returns the sentences of a plan for the steps that concern client secrets. */
export function planTexts(record: RotationRecord): Partial<Record<StepName, string>> {
  const { appName, appId, oldKeyId, expiryDays, overlapDays, publications, removeExpired } = record;
  const handover = publications.length > 0 && publications.every(({ kind }) => kind === "handover");
  return {
    ...(removeExpired !== undefined && { makeRoom: `Delete the expired client secret ${removeExpired}.` }),
    create: `Add a client secret to ${appName} (${appId}), valid for ${expiryDays} days, and store a temporary copy of its value in the service's own key vault.`,
    prove: "Sign in with the new secret until it works reliably: several times in a row, over more than 15 seconds.",
    overlap: `Keep both secrets valid for ${overlapDays} days.`,
    revoke: handover
      ? `Delete the old client secret ${oldKeyId} when a user finishes the rotation.`
      : `Check that all known consumers still use the new secret, then delete the old client secret ${oldKeyId}.`,
  };
}

/** Returns the sentences about the application's client secrets for a user who must act. */
export function attentionTexts(record: RotationRecord, code: string): AttentionTexts {
  const { newKeyId, oldKeyId, revokingSince } = record;
  return {
    created:
      newKeyId === undefined
        ? `No new client secret of ${titleOf(record)} is in use.`
        : `The client secret ${newKeyId} was added to ${titleOf(record)}.`,
    ...(revokingSince !== undefined && {
      retiring: {
        state: `The old client secret ${oldKeyId} was about to be removed and may be gone.`,
        advice:
          "Then retry this rotation, or finish it with force. After two minutes you can also cancel it if the directory still lists the old client secret.",
      },
    }),
    safe: safeText(record, code),
  };
}

/**
 * `revokingSince` is stored before the old secret is removed. From then on only the new secret is safe. After a retry or
 * cancellation the rotation can still remove secrets that it created and does not use (`reconcileAttempts`).
 */
function safeText({ revokingSince, oldKeyId, newKeyId }: RotationRecord, code: string): string {
  if (revokingSince && code === "newSecretGone") return `The old client secret ${oldKeyId} was not removed.`;
  if (revokingSince) return `The new client secret ${newKeyId} works and stays.`;
  return newKeyId === undefined
    ? `The old client secret ${oldKeyId} was not touched.`
    : `The old client secret ${oldKeyId} was not removed. While the rotation waits, it removes no secret that it did not create.`;
}
