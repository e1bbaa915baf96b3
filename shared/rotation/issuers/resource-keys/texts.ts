import { resourceName } from "../../../platform/azure/resource-id.ts";
import { isProvenByRequest, requestOf } from "../../resource-keys/kinds.ts";
import { type RotationRecord, resourceKeyOf, type StepName } from "../../rotation.ts";
import type { AttentionTexts } from "../issuer.ts";
import { kindOf, newKeyOf } from "./create.ts";

/** Returns the sentences of a plan for the steps that concern keys. */
export function planTexts(record: RotationRecord): Partial<Record<StepName, string>> {
  const { resourceId, oldKeyId } = resourceKeyOf(record);
  const { overlapDays, regenerateOld } = record;
  const [newKeyId, title] = [newKeyOf(record), kindOf(record).title];
  return {
    create: `Regenerate ${newKeyId} of the ${title} ${resourceName(resourceId)}, which no known place stores, and keep a temporary copy of its value in the service's own key vault.`,
    prove: isProvenByRequest(kindOf(record))
      ? `Check that the ${title} lists the new value of ${newKeyId} and accepts a request with it (${requestOf(kindOf(record), resourceName(resourceId).split("/").at(-2))}), twice in a row.`
      : `Check that the ${title} lists the new value of ${newKeyId}, twice in a row. The check makes no request with the key.`,
    overlap: `Keep both keys valid for ${overlapDays} days.`,
    revoke: regenerateOld
      ? `Check that all known consumers still use ${newKeyId}, then regenerate ${oldKeyId}, so that its old value is no longer valid.`
      : `Leave ${oldKeyId} as it is. It stays valid until the next rotation regenerates it.`,
  };
}

/** Returns the sentences about finished steps that concern keys. */
export function resultTexts(record: RotationRecord): Partial<Record<StepName, string>> {
  const { oldKeyId } = resourceKeyOf(record);
  const newKeyId = newKeyOf(record);
  const isLeft = record.attempts.some(({ keyId, state }) => keyId === newKeyId && state === "left");
  return {
    create: `Regenerated ${newKeyId}.`,
    prove: `The resource listed the new value of ${newKeyId}${isProvenByRequest(kindOf(record)) ? " and did not reject a request with it" : ""}, ${record.proof?.accepted ?? 0} times in a row.`,
    revoke: record.regenerateOld
      ? `Regenerated ${oldKeyId}. Its old value is no longer valid.`
      : `Left ${oldKeyId} as it is. It stays valid until the next rotation regenerates it.`,
    removeNew: isLeft ? `${newKeyId} keeps its new value.` : `${newKeyId} was not regenerated.`,
  };
}

/** Returns the sentences about the keys of the resource for a user who must act. */
export function attentionTexts(record: RotationRecord): AttentionTexts {
  const { oldKeyId } = resourceKeyOf(record);
  const { newKeyId, revokingSince, rotationId } = record;
  return {
    created:
      newKeyId === undefined
        ? `Rotation ${rotationId} has no new key in use.`
        : `${newKeyId} was regenerated. Nothing can restore its previous value.`,
    ...(revokingSince !== undefined && {
      retiring: {
        state: `${oldKeyId} was about to be regenerated, and its old value may be invalid.`,
        advice: "Then retry this rotation, or finish it with force.",
      },
    }),
    safe: revokingSince === undefined ? `${oldKeyId} was not touched.` : `${newKeyId} works and stays.`,
  };
}
