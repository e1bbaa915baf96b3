import { MINUTE_MS } from "../../platform/time.ts";
import { newValue } from "../new-value.ts";
import { clientSecretOf, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, RollBack } from "../step-errors.ts";

/**
 * A new secret works on one request and fails on the next, for seconds to minutes. So three sign-ins in a row, at least 8
 * seconds apart, and one more after a pause must succeed before any place gets it.
 */
const ACCEPTED = 4;
const SPACED_SECONDS = 8;
const PAUSE_SECONDS = 20;
/** Seconds between attempts while the secret does not work. */
const WAITS = [5, 10, 20, 30, 60];
const MOST_MS = 10 * MINUTE_MS;
/** Minimum number of attempts, even if the service was down in the meantime. */
const LEAST_TRIES = 5;

/** Signs in once with the new secret. @throws {Later} until enough sign-ins were accepted. */
export async function testSignIn(context: StepContext): Promise<void> {
  const { record, deps } = context;
  const value = await newValue(context);
  if (value === undefined) {
    await context.save(withoutValue);
    throw new ContinueLater(0);
  }
  const { proof = { accepted: 0, tries: 0, startedAt: context.now().toISOString() } } = record;
  const result = await deps.signIn(clientSecretOf(record).appId, value);
  const now = context.now();
  const tries = proof.tries + 1;
  const accepted = result.kind === "accepted" ? proof.accepted + 1 : result.kind === "unclear" ? proof.accepted : 0;
  await context.save(() => ({ proof: { ...proof, tries, accepted, lastAt: now.toISOString() } }));
  if (accepted >= ACCEPTED) return;
  if (result.kind === "accepted") throw new ContinueLater(accepted === ACCEPTED - 1 ? PAUSE_SECONDS : SPACED_SECONDS);
  if (result.kind === "impossible") {
    throw new RollBack(
      "signInImpossible",
      `The application can't sign in with any secret. ${result.reason} (AADSTS${result.code}).`,
      "Check that the application is enabled and has a service principal in this tenant, then start a new rotation.",
    );
  }
  if (now.getTime() - Date.parse(proof.startedAt) > MOST_MS && tries >= LEAST_TRIES) {
    throw new RollBack(
      "notProven",
      `The new client secret did not sign in reliably within ${MOST_MS / MINUTE_MS} minutes, in ${tries} attempts.`,
      "No place was changed. Check https://status.azure.com for an outage, then start a new rotation.",
    );
  }
  throw new ContinueLater(WAITS[Math.min(tries, WAITS.length) - 1]!);
}

/** The held copy is gone: creates another secret and discards this one. */
const withoutValue = ({ attempts, newKeyId }: RotationRecord): Partial<RotationRecord> => ({
  status: "creating",
  newKeyId: undefined,
  proof: undefined,
  attempts: attempts.map((one) => (one.keyId === newKeyId ? { ...one, state: "discarding" } : one)),
});
