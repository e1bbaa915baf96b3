import { readLogin, rewriteLogin } from "../../database-logins/login-values.ts";
import { readHeldValue } from "../../held-copies.ts";
import { databaseLoginOf, type RotationRecord } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, RollBack } from "../../step-errors.ts";
import type { TestResult } from "../issuer.ts";
import { attemptOf, newUserOf, pairOf } from "./create.ts";

/** Number of sign-ins in a row before a place is written. */
const REQUIRED_PROOFS = 2;
const INTERVAL_SECONDS = 5;
/** A password is valid at once, so a rejection that lasts for a minute has another cause. */
const MAX_TRIES = 12;

/**
 * Proves the new login once: it signs in, and its rights are those of the user in use.
 *
 * @throws {ContinueLater} until it is proven; {RollBack} if it is not, before any place is written.
 */
export async function proveLogin(context: StepContext): Promise<void> {
  const { newKeyId = "", proof } = context.record;
  const pair = pairOf(context.record);
  const password = await readPassword(context, newKeyId);
  if (password === undefined) {
    const message = "The new password is no longer in the service's own key vault, where it was held.";
    throw new RollBack("valueLost", message, "Check who deleted it, then start a new rotation.");
  }
  const result = await context.deps.loginServers.signIn(pair, newKeyId, password);
  const differences =
    result === "accepted" ? await context.deps.loginServers.differences(pair, newKeyId, password) : [];
  if (differences.length > 0) {
    const message = `${newKeyId} does not have the rights of the user in use. ${differences.join(" ")}`;
    throw new RollBack("grantsDiffer", message, "Give both users the same rights, then start a new rotation.");
  }
  const isAccepted = result === "accepted";
  const lastAt = context.now().toISOString();
  const { accepted: earlier = 0, tries: earlierTries = 0, startedAt = lastAt } = proof ?? {};
  const [accepted, tries] = [isAccepted ? earlier + 1 : 0, earlierTries + 1];
  await context.save(() => ({ proof: { accepted, tries, startedAt, lastAt } }));
  if (accepted >= REQUIRED_PROOFS) return;
  if (!isAccepted && tries >= MAX_TRIES) {
    const message = `The server did not accept a sign-in as ${newKeyId} with the new password, in ${tries} attempts.`;
    throw new RollBack("notProven", message, "Check the server and its network rules, then start a new rotation.");
  }
  throw new ContinueLater(INTERVAL_SECONDS);
}

/** Returns the password that this rotation gave a user. Undefined if its held copy was deleted. */
export async function readPassword(context: StepContext, user: string): Promise<string | undefined> {
  const copyId = attemptOf(context.record, user)?.copyId;
  return copyId === undefined ? undefined : await readHeldValue(context, copyId);
}

/** Returns whether a value names the user in use, with a password that signs in. @throws {CloudFailure} */
export async function testValue(context: StepContext, value: string): Promise<TestResult> {
  const { login } = readLogin(value);
  if (login?.user !== databaseLoginOf(context.record).oldUser) return "rejected";
  return await context.deps.loginServers.signIn(pairOf(context.record), login.user, login.password);
}

/** Returns what a place stores with the new login. */
export const valueFor = (record: RotationRecord, password: string, previousValue: string): string =>
  rewriteLogin(previousValue, { user: newUserOf(record), password });
