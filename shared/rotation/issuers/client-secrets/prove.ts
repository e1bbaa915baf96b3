import { MINUTE_MS } from "../../../platform/time.ts";
import { readHeldValue } from "../../held-copies.ts";
import { signInUnclear } from "../../problems.ts";
import { readEnabledVersion } from "../../publications.ts";
import { clientSecretOf, type Publication, type RotationRecord } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, RollBack } from "../../step-errors.ts";
import type { TestResult } from "../issuer.ts";

/**
 * Number of sign-ins in a row that must succeed before the new secret is written anywhere: three at least 8 seconds apart, and
 * one more after a pause. For seconds to minutes, a new secret can work on one request and fail on the next.
 */
const REQUIRED_SIGN_INS = 4;
const SIGN_IN_INTERVAL_SECONDS = 8;
const LAST_PAUSE_SECONDS = 20;
/** Seconds to wait after each unsuccessful attempt. The last value repeats. */
const RETRY_WAITS_SECONDS = [5, 10, 20, 30, 60];
const MAX_DURATION_MS = 10 * MINUTE_MS;
/** Minimum number of attempts, even if the service was down in the meantime. */
const MIN_ATTEMPTS = 5;

/** Signs in once with the new secret. @throws {ContinueLater} until enough sign-ins were accepted. */
export async function testSignIn(context: StepContext): Promise<void> {
  const { record, deps } = context;
  const value = record.newKeyId === undefined ? undefined : await readCreatedSecret(context, record.newKeyId);
  if (value === undefined) {
    await context.save(discardNewSecret);
    throw new ContinueLater(0);
  }
  const { proof = { accepted: 0, tries: 0, startedAt: context.now().toISOString() } } = record;
  const result = await deps.signIn(clientSecretOf(record).appId, value);
  const now = context.now();
  const tries = proof.tries + 1;
  // A rejected sign-in restarts the row of accepted ones. An unclear answer says nothing about the secret.
  const accepted = result.kind === "accepted" ? proof.accepted + 1 : result.kind === "unclear" ? proof.accepted : 0;
  await context.save(() => ({ proof: { ...proof, tries, accepted, lastAt: now.toISOString() } }));
  if (accepted >= REQUIRED_SIGN_INS) return;
  if (result.kind === "accepted")
    throw new ContinueLater(accepted === REQUIRED_SIGN_INS - 1 ? LAST_PAUSE_SECONDS : SIGN_IN_INTERVAL_SECONDS);
  if (result.kind === "impossible") {
    throw new RollBack(
      "signInImpossible",
      `The application can't sign in with any secret. ${result.reason} (AADSTS${result.code}).`,
      "Check that the application is enabled and has a service principal in this tenant, then start a new rotation.",
    );
  }
  if (now.getTime() - Date.parse(proof.startedAt) > MAX_DURATION_MS && tries >= MIN_ATTEMPTS) {
    throw new RollBack(
      "notProven",
      `The new client secret did not sign in reliably within ${MAX_DURATION_MS / MINUTE_MS} minutes, in ${tries} attempts.`,
      "No place was changed. Check https://status.azure.com for an outage, then start a new rotation.",
    );
  }
  throw new ContinueLater(RETRY_WAITS_SECONDS[Math.min(tries, RETRY_WAITS_SECONDS.length) - 1]!);
}

/** Returns the changes that discard the new secret, whose value is lost, and return to the step that creates a secret. */
const discardNewSecret = ({ attempts, newKeyId }: RotationRecord): Partial<RotationRecord> => ({
  status: "creating",
  newKeyId: undefined,
  proof: undefined,
  attempts: attempts.map((one) => (one.keyId === newKeyId ? { ...one, state: "discarding" } : one)),
});

/** Returns whether a value of a place signs in as the application. */
export async function testValue({ deps, record }: StepContext, value: string): Promise<TestResult> {
  const { kind } = await deps.signIn(clientSecretOf(record).appId, value);
  return kind === "accepted" || kind === "unclear" ? kind : "rejected";
}

/**
 * Returns the value of a client secret that this rotation created, from the held copy or a place. Does not store a held copy
 * again, because Key Vault reserves the name of a deleted secret while it can be recovered.
 *
 * @throws {CloudFailure} if a place can't be read, or the sign-in with its value gives no clear answer.
 */
export async function readCreatedSecret(context: StepContext, keyId: string): Promise<string | undefined> {
  const heldCopy = await readHeldValue(context, keyId);
  if (heldCopy !== undefined) return heldCopy;
  for (const publication of context.record.publications) {
    const value = await readValueAtPlace(context, publication, keyId);
    if (value !== undefined) return value;
  }
  return undefined;
}

/**
 * Returns the value of a place if the tags name this client secret and the value signs in. Tags alone prove nothing, because
 * other writers can set them.
 */
async function readValueAtPlace(
  context: StepContext,
  publication: Publication,
  keyId: string,
): Promise<string | undefined> {
  const { deps, record } = context;
  const current = await readEnabledVersion(context, publication);
  const { "rotation-id": rotationId, "entra-key-id": taggedKeyId } = current?.tags ?? {};
  if (current === undefined || rotationId !== record.rotationId || taggedKeyId !== keyId) return undefined;
  const { kind } = await deps.signIn(clientSecretOf(record).appId, current.value);
  if (kind === "unclear") throw signInUnclear(clientSecretOf(record).appId);
  return kind === "accepted" ? current.value : undefined;
}
