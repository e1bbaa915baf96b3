import { unlessMissing } from "../../../platform/azure/failure.ts";
import { readLogin } from "../../database-logins/login-values.ts";
import { placeOf, unlessDisabled } from "../../publications.ts";
import { databaseLoginOf, type RotationRecord } from "../../rotation.ts";
import type { StepContext, StepDependencies } from "../../step-context.ts";
import { NeedsAttention } from "../../step-errors.ts";
import type { Target } from "../../targets.ts";
import type { ReasonsToKeepOld } from "../issuer.ts";
import {
  attemptOf,
  comparePlaces,
  generatePassword,
  pairOf,
  requireSettled,
  SETTLE_TIME_MS,
  sendPassword,
  withAttempt,
} from "./create.ts";
import { readPassword } from "./prove.ts";

/** Gives the old user a random password, which is not stored. A repeat after a lost response sets another one. */
export async function retireOldUser(context: StepContext): Promise<void> {
  const { oldUser } = databaseLoginOf(context.record);
  const earlier = attemptOf(context.record, oldUser);
  // True if an earlier worker crashed after it stored that the password was set.
  if (earlier?.state === "made") return;
  // An earlier statement must not change the password that the next rotation gives this user.
  if (earlier?.state === "asked") requireSettled(earlier, context.now());
  await requireReplaced(context);
  const askedAt = context.now().toISOString();
  await context.save(({ attempts, revokingSince }) => ({
    attempts: [
      ...attempts.filter(({ keyId }) => keyId !== oldUser),
      { displayName: oldUser, keyId: oldUser, askedAt, state: "asked" as const },
    ],
    revokingSince: revokingSince ?? askedAt,
  }));
  await sendPassword(context, oldUser, generatePassword(context), "old");
  await context.save((record) => ({ attempts: withAttempt(record, oldUser, { state: "made" }) }));
}

/**
 * Immediately before the statement: no known place may name the old user, not even if a user finished the rotation with force.
 *
 * @throws {NeedsAttention} otherwise.
 */
async function requireReplaced(context: StepContext): Promise<void> {
  const { oldUser } = databaseLoginOf(context.record);
  const { newKeyId } = context.record;
  const written = new Set(context.record.publications.map(placeOf));
  const others = (await comparePlaces(context)).filter(
    (place) =>
      place.login?.user === oldUser ||
      place.unreadable === true ||
      (written.has(placeOf(place)) && place.login?.user !== newKeyId),
  );
  if (others.length === 0) return;
  throw new NeedsAttention(
    "stillInUse",
    `The password of ${oldUser} was not changed: ${others.map(placeOf).join(", ")} names it, does not name ${newKeyId}, or can't be read.`,
    `Give the service access to that vault secret, or write the login of ${newKeyId} to it. Then retry the rotation.`,
  );
}

/**
 * Returns whether the old user still has the password that the places had, although its change was requested. A user can then
 * cancel the rotation.
 */
export async function isOldKept(deps: StepDependencies, record: RotationRecord): Promise<boolean> {
  const { oldUser } = databaseLoginOf(record);
  const askedAt = attemptOf(record, oldUser)?.askedAt;
  if (askedAt !== undefined && deps.clock.now().getTime() - Date.parse(askedAt) < SETTLE_TIME_MS) return false;
  for (const { vaultName, vaultUri, secretName, plannedVersion } of record.publications) {
    const vault = deps.vaults.open({ name: vaultName, vaultUri });
    const previous = await unlessDisabled(unlessMissing(vault.read(secretName, plannedVersion)));
    const login = previous === undefined ? undefined : readLogin(previous.value).login;
    if (login?.user !== oldUser) continue;
    return (await deps.loginServers.signIn(pairOf(record), oldUser, login.password)) === "accepted";
  }
  return false;
}

/** Returns the places that name the old user now. */
export async function findTargets(context: StepContext): Promise<Target[]> {
  const { oldUser } = databaseLoginOf(context.record);
  return (await comparePlaces(context)).filter(({ login }) => login?.user === oldUser);
}

/** Returns why the rotation should not end: the new login no longer works, or a registered place can't be checked. */
export async function reasonsToKeepOld(context: StepContext): Promise<ReasonsToKeepOld> {
  const { newKeyId = "" } = context.record;
  const password = await readPassword(context, newKeyId);
  const result =
    password === undefined
      ? "unclear"
      : await context.deps.loginServers.signIn(pairOf(context.record), newKeyId, password);
  const compared = await comparePlaces(context);
  const { oldUser } = databaseLoginOf(context.record);
  return {
    reasons: [
      ...(result === "accepted" ? [] : [`A sign-in as ${newKeyId} with the new password gave the answer: ${result}.`]),
      ...compared.flatMap((one) => (one.unreadable ? [`${placeOf(one)} can't be read and may name ${oldUser}.`] : [])),
    ],
    targets: compared.filter(({ login }) => login?.user === oldUser),
  };
}
