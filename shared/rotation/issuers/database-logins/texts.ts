import { resourceName } from "../../../platform/azure/resource-id.ts";
import { databaseLoginOf, type RotationRecord, type StepName } from "../../rotation.ts";
import type { AttentionTexts } from "../issuer.ts";
import { attemptOf, newUserOf } from "./create.ts";

/** Returns the sentences of a plan for the steps that concern logins. */
export function planTexts(record: RotationRecord): Partial<Record<StepName, string>> {
  const { serverId, database, oldUser } = databaseLoginOf(record);
  const user = newUserOf(record);
  return {
    create: `Give ${user}, which no known place names, a new password on ${resourceName(serverId)}, and keep a temporary copy of it in the service's own key vault.`,
    prove: `Sign in to the database ${database} as ${user}, and compare its rights with those of ${oldUser}, twice in a row.`,
    overlap: `Keep both logins valid for ${record.overlapDays} days.`,
    revoke: `Check that all known places and consumers use ${user}, then give ${oldUser} a random password that is stored nowhere. Its open sessions stay.`,
  };
}

/** Returns the sentences about finished steps that concern logins. */
export function resultTexts(record: RotationRecord): Partial<Record<StepName, string>> {
  const { oldUser } = databaseLoginOf(record);
  const user = newUserOf(record);
  return {
    create: `Gave ${user} a new password.`,
    prove: `Signed in as ${user} ${record.proof?.accepted ?? 0} times in a row. Its rights are those of ${oldUser}.`,
    revoke: `Gave ${oldUser} a random password that is stored nowhere.`,
    removeNew:
      attemptOf(record, user) === undefined
        ? `${user} was not changed.`
        : `${user} keeps its new password, which nothing known uses.`,
  };
}

/** Returns the sentences about the two users for a user who must act. */
export function attentionTexts(record: RotationRecord): AttentionTexts {
  const { oldUser } = databaseLoginOf(record);
  const { newKeyId, revokingSince, rotationId } = record;
  return {
    created:
      newKeyId === undefined
        ? `Rotation ${rotationId} has no new login in use.`
        : `${newKeyId} has a new password. Nothing can restore its previous one.`,
    ...(revokingSince !== undefined && {
      retiring: {
        state: `${oldUser} was about to get a random password that is stored nowhere, and its old password may be invalid.`,
        advice: "Then retry this rotation.",
      },
    }),
    safe: revokingSince === undefined ? `${oldUser} was not changed.` : `${newKeyId} works and stays.`,
  };
}
