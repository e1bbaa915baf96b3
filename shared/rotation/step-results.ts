import { counted } from "../platform/counted.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { placeOf } from "./publications.ts";
import { isVaultSecret, type RotationRecord, type Step } from "./rotation.ts";

/**
 * Returns what a finished step did, in one or two sentences for users. Undefined if the step has not finished. Times are
 * ISO 8601.
 */
export function resultOf(record: RotationRecord, step: Step): string | undefined {
  if (step.status !== "done") return undefined;
  const { newExpiresAt, proof, publications } = record;
  switch (step.name) {
    case "makeRoom":
      return "Deleted an expired client secret, because the application can't have another one.";
    case "create":
      return `Created a client secret in Entra${newExpiresAt === undefined ? "" : `, valid until ${newExpiresAt}`}.`;
    case "prove":
      return proof && `Signed in ${counted(proof.accepted, "time")} in a row with the new secret.`;
    case "publish":
      return `Wrote the new value as a new version to ${publications.map(placeOf).join(", ")}.`;
    case "verify":
      return consumersResult(record);
    case "overlap":
      return overlapResult(record, step);
    case "revoke":
      return "Deleted the old client secret in Entra. It no longer signs in.";
    case "putBack":
      return placesRestored(record);
    case "restore":
      return `Switched ${counted(countOf(record, "restored"), "consumer")} back to the old value.`;
    case "removeNew":
      return newSecretResult(record);
    case "cleanUp":
      return record.attempts.some(({ isValueKept }) => isValueKept)
        ? "Kept the copy of the new value in the service's own key vault, because the client secret stays. The notes name it."
        : "Deleted the temporary copy of the new value from the service's own key vault.";
  }
}

const countOf = ({ consumers = [] }: RotationRecord, wantedState: string): number =>
  consumers.filter(({ state }) => state === wantedState).length;

function consumersResult(record: RotationRecord): string {
  const updated = (record.consumers ?? []).filter(({ actedAt }) => actedAt !== undefined).length;
  const verified = countOf(record, "verified");
  return [
    updated === 0
      ? "No consumer had to be updated or restarted."
      : `Updated or restarted ${counted(updated, "consumer")}.`,
    ...(verified === 0 ? [] : [`${counted(verified, "consumer")} ${verified === 1 ? "uses" : "use"} the new value.`]),
    ...(record.skipVerification ? ["The request turned the check off."] : []),
  ].join(" ");
}

/** The overlap period can end at once: if none was requested and no consumer needs time, or if a user ends it. */
function overlapResult(record: RotationRecord, { startedAt = "" }: Step): string {
  const { finish, overlapDays, overlapEndsAt = "" } = record;
  if (finish?.force) return `${finish.by} ended it, without a check that everything uses the new value.`;
  // A user who ends it vouches for the consumers that the service can't check.
  if (finish) return `${finish.by} ended it. The checks of places and consumers found no use of the old value.`;
  const hasWaited = Date.parse(overlapEndsAt) - Date.parse(startedAt) > MINUTE_MS;
  if (!hasWaited && isVaultSecret(record))
    return "Ended at once, because no consumer needs time to read the new value.";
  if (!hasWaited) return "Ended at once, because an overlap period of 0 days was requested.";
  if (overlapDays === 0) return "Waited until the slowest consumer had time to read the new value.";
  return `Both secrets were valid for ${counted(overlapDays, "day")}.`;
}

/** The new secret stays if something may still use it, or if it is the application's only valid one. The notes give the reason. */
function newSecretResult({ attempts }: RotationRecord): string {
  if (attempts.some(({ state }) => state === "left"))
    return "Kept a new client secret in Entra. The notes give the reason.";
  return attempts.some(({ state }) => state === "removed")
    ? "Deleted the new client secret in Entra."
    : "Entra has no new client secret of this rotation.";
}

function placesRestored({ publications }: RotationRecord): string {
  const restored = publications.filter(({ state }) => state === "restored").map(placeOf);
  const left = publications.filter(({ state }) => state === "left").map(placeOf);
  return [
    ...(restored.length === 0 ? [] : [`Wrote the old value again to ${restored.join(", ")}.`]),
    ...(left.length === 0 ? [] : [`Left ${left.join(", ")}, because another writer changed it.`]),
  ].join(" ");
}
