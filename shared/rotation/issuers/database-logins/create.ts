import { MINUTE_MS, SECOND_MS } from "../../../platform/time.ts";
import { auditedEffect } from "../../audited-effect.ts";
import type { LoginPair } from "../../database-logins/login-servers.ts";
import type { ComparedLogin, DatabaseLogin } from "../../database-logins/registrations.ts";
import { generateValue } from "../../generate.ts";
import { holdValue, readHeldValue } from "../../held-copies.ts";
import { placeOf } from "../../publications.ts";
import { type Attempt, databaseLoginOf, type RotationRecord } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, RollBack } from "../../step-errors.ts";
import { placeKey } from "../../targets.ts";
import { tagsOf } from "./tags.ts";

/** Time after which a statement without a response has no further effect. Its connection ends within a minute. */
export const SETTLE_TIME_MS = 10 * MINUTE_MS;
/** 238 bits. The characters need no escaping in any format of a secret. */
const PASSWORD = { length: 40, alphabet: "alphanumeric" };
/** Servers can require characters of these kinds: https://learn.microsoft.com/azure/mysql/flexible-server/concepts-security */
const REQUIRED = [/[A-Z]/, /[a-z]/, /[0-9]/];

/** Returns the pair of users that a rotation concerns. */
export function pairOf(record: RotationRecord): LoginPair {
  const { serverId, database, users, signInAs } = databaseLoginOf(record);
  return { serverId, database, users, signInAs };
}

/** Returns the user that the places get: the one that is not in use. */
export function newUserOf(record: RotationRecord): string {
  const { users, oldUser } = databaseLoginOf(record);
  return users[0] === oldUser ? users[1] : users[0];
}

export const attemptOf = ({ attempts }: RotationRecord, user: string): Attempt | undefined =>
  attempts.findLast(({ keyId }) => keyId === user);

/**
 * Waits until a statement without a response has no further effect.
 *
 * @throws {ContinueLater} until then.
 */
export function requireSettled({ askedAt }: Attempt, now: Date): void {
  const wait = Date.parse(askedAt) + SETTLE_TIME_MS - now.getTime();
  if (wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
}

/** Returns the attempts with a change of the last one that sets the password of a user. */
export const withAttempt = ({ attempts }: RotationRecord, user: string, change: Partial<Attempt>): Attempt[] => {
  const last = attempts.findLastIndex(({ keyId }) => keyId === user);
  return attempts.map((one, index) => (index === last ? { ...one, ...change } : one));
};

/** Returns a random password. */
export function generatePassword({ deps }: Pick<StepContext, "deps">): string {
  for (;;) {
    const password = generateValue(PASSWORD, deps.randomness);
    if (REQUIRED.every((kind) => kind.test(password))) return password;
  }
}

/**
 * Reads the places of a rotation, and those that are registered now.
 *
 * @throws {CloudFailure}
 */
export async function comparePlaces({ deps, record }: Pick<StepContext, "deps" | "record">): Promise<ComparedLogin[]> {
  const { loginId, serverId, users } = databaseLoginOf(record);
  const registered = (await deps.logins.all()).find(({ credentialId }) => credentialId === loginId)?.places ?? [];
  const unread = { user: "", version: "", comparedAt: "", by: "" };
  const places: DatabaseLogin["places"] = [
    ...record.publications.map(({ vaultName, secretName, vaultId = "" }) => ({
      vaultName,
      secretName,
      vaultId,
      ...unread,
    })),
    ...registered,
  ];
  const unique = [...new Map(places.map((place) => [placeKey(place), place])).values()];
  return await deps.logins.comparePlaces({ serverId, users: [...users], places: unique });
}

/**
 * Gives the user that nothing uses a new password. Every attempt has a password of its own, whose held copy is stored before the
 * statement is sent. So a statement that is repeated after a lost response sets the same password again.
 */
export async function setNewPassword(context: StepContext): Promise<void> {
  const { deps } = context;
  // True if an earlier worker crashed after it stored that the password was set.
  if (context.record.newKeyId !== undefined) return;
  const [pair, user] = [pairOf(context.record), newUserOf(context.record)];
  const store = () =>
    context.save((record) => ({
      newKeyId: user,
      attempts: withAttempt(record, user, { state: "made" }),
    }));
  const earlier = attemptOf(context.record, user);
  let password = earlier?.copyId === undefined ? undefined : await readHeldValue(context, earlier.copyId);
  if (password !== undefined && (await deps.loginServers.signIn(pair, user, password)) === "accepted")
    return await store();
  if (password === undefined) {
    // Without the held copy, the earlier worker crashed before it sent a statement, unless someone deleted the copy.
    if (earlier?.state === "asked") requireSettled(earlier, context.now());
    const now = context.now();
    const copyId = `${user}-${deps.randomness.ulid(now)}`;
    const attempt = { displayName: user, keyId: user, copyId, askedAt: now.toISOString(), state: "asked" as const };
    await context.save((record) => ({
      attempts: [...withAttempt(record, user, { state: "refused" }), attempt],
    }));
    password = generatePassword(context);
    await holdValue(context, copyId, password, Object.fromEntries(tagsOf(context.record, user)));
  }
  await requireUnused(context);
  // Fails if another worker has taken over, which then has sent another password.
  const askedAt = context.now().toISOString();
  await context.save((record) => ({ attempts: withAttempt(record, user, { state: "asked", askedAt }) }));
  await sendPassword(context, user, password, "new");
  await store();
}

/**
 * Sends the statement that sets a password, between audit entries. The attempt stays `asked` after every failure, also after a
 * clear one, because an earlier statement of the attempt can still have an effect.
 *
 * @throws {CloudFailure}
 */
export async function sendPassword(
  context: StepContext,
  user: string,
  password: string,
  which: "new" | "old",
): Promise<void> {
  const pair = pairOf(context.record);
  await auditedEffect(context, "rotation.passwordSet", { keyId: user, which }, () =>
    context.withHeartbeat(() => context.deps.loginServers.setPassword(pair, user, password)),
  );
}

/**
 * Immediately before the statement: the users must still be registered, and every place must name the user in use.
 *
 * @throws {RollBack} otherwise; {CloudFailure}
 */
async function requireUnused(context: StepContext): Promise<void> {
  const { loginId, oldUser } = databaseLoginOf(context.record);
  const user = newUserOf(context.record);
  // A deletion of the registration can overlap with the start of the rotation. Then another registration may have the user.
  if (!(await context.deps.logins.all()).some(({ credentialId }) => credentialId === loginId))
    throw new RollBack(
      "notRegistered",
      `The registration of ${oldUser} and ${user} was deleted, or its row can't be read. No password in use was changed.`,
      "Register the users again, then start a new rotation.",
    );
  const others = (await comparePlaces(context)).filter(({ login }) => login?.user !== oldUser);
  if (others.length === 0) return;
  throw new RollBack(
    "targetHoldsOther",
    `${others.map(placeOf).join(", ")} does not name ${oldUser} any more, or can't be read, so it is not certain that nothing uses ${user}. No password in use was changed.`,
    "Check who changed the vault secret, then start a new rotation.",
  );
}
