import type { GraphApplication, PasswordCredential } from "../../platform/azure/graph.ts";
import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { lastingFailure } from "../end-conditions.ts";
import { heldClientSecret, heldCopyName } from "../held-copies.ts";
import { newValueOf } from "../new-value.ts";
import { type Attempt, clientSecretOf, type RotationFailure, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../step-errors.ts";
import { removeClientSecret } from "./remove-secret.ts";

/**
 * After this time a request without an answer was either carried out or never will be, and all replicas of the directory show
 * the result. Reads were observed to lag by up to five minutes.
 */
export const SETTLED_MS = 15 * MINUTE_MS;
const AGAIN_SECONDS = 60;

/**
 * Returns the application from the directory.
 *
 * @throws {GoBack} if the application was deleted.
 */
export async function applicationOf({ deps, record }: StepContext): Promise<GraphApplication> {
  const { appId, objectId, appName } = clientSecretOf(record);
  const app = await deps.graph.application({ objectId });
  if (app) return app;
  throw new RollBack(
    "applicationGone",
    `The application ${appName} (${appId}) is no longer in the directory.`,
    "If it was deleted by mistake, restore it within 30 days and start a new rotation.",
  );
}

/**
 * Returns client secrets that this rotation requested and whose answer was lost: they have the display name of an attempt, and
 * the record does not know them.
 */
function unrecordedSecrets({ attempts, knownKeyIds }: RotationRecord, app: GraphApplication): PasswordCredential[] {
  const named = attempts.flatMap(({ keyId }) => keyId ?? []);
  return app.passwords.filter(
    ({ keyId, displayName }) =>
      attempts.some((attempt) => attempt.displayName === displayName) &&
      !knownKeyIds.includes(keyId) &&
      !named.includes(keyId),
  );
}

const changed = (attempts: readonly Attempt[], which: (one: Attempt) => boolean, change: Partial<Attempt>): Attempt[] =>
  attempts.map((one) => (which(one) ? { ...one, ...change } : one));

/** Stores the new state of an attempt. */
export const saveAttempt = (context: StepContext, displayName: string, change: Partial<Attempt>): Promise<void> =>
  context.save(({ attempts }) => ({ attempts: changed(attempts, (one) => one.displayName === displayName, change) }));

/**
 * Finds the client secrets of attempts whose answer was lost, stores their key IDs, and removes them and all others in state
 * `discarding`.
 *
 * @param final - No more requests will follow: waits until no lost request can appear anymore.
 * @throws {Later} during that wait.
 */
export async function reconcile(context: StepContext, { final }: { final: boolean }): Promise<void> {
  const unsettled = () => context.record.attempts.filter(({ state }) => state === "asked");
  if (unsettled().length > 0) {
    const app = await context.deps.graph.application({ objectId: clientSecretOf(context.record).objectId });
    for (const { keyId, displayName, expiresOn } of app === undefined ? [] : unrecordedSecrets(context.record, app)) {
      const lost = final || (await newValueOf(context, keyId)) === undefined;
      if (lost) await saveAttempt(context, displayName ?? "", { state: "discarding", keyId });
      else await useSecret(context, displayName ?? "", keyId, expiresOn);
    }
  }
  for (const { keyId, state, askedAt, displayName } of context.record.attempts) {
    if (state !== "discarding" || keyId === undefined) continue;
    const kept = await removeCreated(context, keyId, askedAt, final);
    if (kept === undefined) await saveAttempt(context, displayName, { state: "removed" });
    else if (final) await keepSecret(context, displayName, keyId, kept);
  }
  if (!final) return;
  for (const { askedAt, displayName } of unsettled()) {
    const wait = Date.parse(askedAt) + SETTLED_MS - context.now().getTime();
    if (wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
    await saveAttempt(context, displayName, { state: "refused" });
  }
}

/** Continues with a client secret whose value is known after all, for example after the tables were restored from a backup. */
async function useSecret(
  context: StepContext,
  displayName: string,
  keyId: string,
  expiresOn: number | undefined,
): Promise<void> {
  await context.save(({ attempts, newExpiresAt }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresOn === undefined ? newExpiresAt : new Date(expiresOn * SECOND_MS).toISOString(),
    attempts: changed(attempts, (one) => one.displayName === displayName, { state: "made", keyId }),
  }));
}

/**
 * Removes a client secret that this rotation created and that its record names.
 *
 * @param final - Nothing else will decide about the secret: it is also kept if a place stores it or can't be read for long.
 * @returns Why the secret was kept, which is always the case if the application has no other valid client secret. Undefined if
 * it was removed.
 * @throws {Later} if the directory does not list the secret, which can happen shortly after its creation.
 */
async function removeCreated(
  context: StepContext,
  keyId: string,
  askedAt: string,
  final: boolean,
): Promise<RotationFailure | undefined> {
  try {
    const removed = await removeClientSecret(context, keyId, "new");
    if (removed === "removed" || context.now().getTime() - Date.parse(askedAt) > SETTLED_MS) return undefined;
  } catch (error) {
    if (error instanceof NeedsAttention) {
      if (final || error.failure.code === "lastCredential") return error.failure;
      throw error;
    }
    if (!final) throw error;
    const { code, message, remedy } = lastingFailure(context, error);
    return { code, message: `The client secret ${keyId} was not removed. ${message}`, remedy };
  }
  throw new ContinueLater(AGAIN_SECONDS);
}

/** Ends an attempt without removing its client secret. The held copy of an application's only valid secret stays. */
async function keepSecret(
  context: StepContext,
  displayName: string,
  keyId: string,
  why: RotationFailure,
): Promise<void> {
  const isValueKept = why.code === "lastCredential" && (await heldClientSecret(context, keyId)) !== undefined;
  const where = `Its value is in the secret ${heldCopyName(context.record.rotationId, keyId)} of the service's own key vault.`;
  await context.save(({ attempts, notes }) => ({
    attempts: changed(attempts, (one) => one.displayName === displayName, {
      state: "left",
      ...(isValueKept && { isValueKept }),
    }),
    notes: [...notes, isValueKept ? `${why.message} ${where}` : why.message],
  }));
}
