import type { GraphApplication, PasswordCredential } from "../../../platform/azure/graph.ts";
import { MINUTE_MS, SECOND_MS } from "../../../platform/time.ts";
import { heldCopyName, readHeldValue } from "../../held-copies.ts";
import { throwIfTransient } from "../../problems.ts";
import { type Attempt, clientSecretOf, type RotationFailure, type RotationRecord } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../../step-errors.ts";
import { readCreatedSecret } from "./prove.ts";
import { removeClientSecret, requireNotInPlaces } from "./retire.ts";

/**
 * Time after which a request without a response has no further effect, and all replicas of the directory show its result. Reads
 * were observed to lag by up to five minutes.
 */
export const SETTLE_TIME_MS = 15 * MINUTE_MS;
const RETRY_SECONDS = 60;

/**
 * Step `removeNew` of a rollback, when places and consumers have the old value again. Removes the new secret, unless a consumer may
 * still use it, and finds and removes secrets of attempts whose response was lost.
 *
 * @param findUsers - Returns the names of consumers that may still use the new secret.
 * @throws {NeedsAttention} stillInUse if a place stores the new secret; {ContinueLater} while a secret of an attempt can still
 * appear, or a consumer still has time to read the old value.
 */
export async function removeNewSecret(context: StepContext, findUsers: () => Promise<string[]>): Promise<void> {
  const { newKeyId } = context.record;
  // This check comes before the attempt becomes `discarding`. Until then, a user can still finish the rotation.
  if (newKeyId !== undefined) {
    const app = await context.deps.graph.findApplication({ objectId: clientSecretOf(context.record).objectId });
    // Only `stillInUse` stops the rollback. If it is unclear who uses the secret, or a place can't be read after several attempts,
    // the rollback continues, and `removeCreated` below finds the same reason and keeps the secret.
    if (app !== undefined)
      await requireNotInPlaces(context, app, newKeyId).catch((error: unknown) => {
        if (error instanceof NeedsAttention && error.failure.code !== "stillInUse") return;
        throwIfTransient(context, error);
      });
  }
  const users = await findUsers();
  await context.save(({ attempts, notes, newKeyId }) => ({
    attempts: attempts.map((one) =>
      one.state === "made" ? { ...one, state: users.length > 0 ? "left" : "discarding" } : one,
    ),
    ...(users.length > 0 && { notes: [...notes, secretLeftText(newKeyId ?? "", users)] }),
  }));
  await reconcileAttempts(context, { final: true });
}

const secretLeftText = (keyId: string, users: readonly string[]): string =>
  `The new client secret ${keyId} was not removed, because the service can't see that these consumers have the old value again: ${users.join(", ")}. Remove it once they have.`;

/**
 * Returns the application from the directory.
 *
 * @throws {RollBack} if the application was deleted.
 */
export async function requireApplication({ deps, record }: StepContext): Promise<GraphApplication> {
  const { appId, objectId, appName } = clientSecretOf(record);
  const app = await deps.graph.findApplication({ objectId });
  if (app) return app;
  throw new RollBack(
    "applicationGone",
    `The application ${appName} (${appId}) is no longer in the directory.`,
    "If it was deleted by mistake, restore it within 30 days and start a new rotation.",
  );
}

/**
 * Returns the client secrets that this rotation added although the response was lost: they have the display name of an attempt,
 * and their key IDs are not in the record.
 */
function unrecordedSecrets({ attempts, knownKeyIds }: RotationRecord, app: GraphApplication): PasswordCredential[] {
  const recordedKeyIds = attempts.flatMap(({ keyId }) => keyId ?? []);
  return app.passwords.filter(
    ({ keyId, displayName }) =>
      attempts.some((attempt) => attempt.displayName === displayName) &&
      !knownKeyIds.includes(keyId) &&
      !recordedKeyIds.includes(keyId),
  );
}

const changeAttempts = (
  attempts: readonly Attempt[],
  which: (one: Attempt) => boolean,
  change: Partial<Attempt>,
): Attempt[] => attempts.map((one) => (which(one) ? { ...one, ...change } : one));

/** Stores the new state of an attempt. */
export const saveAttempt = (context: StepContext, displayName: string, change: Partial<Attempt>): Promise<void> =>
  context.save(({ attempts }) => ({
    attempts: changeAttempts(attempts, (one) => one.displayName === displayName, change),
  }));

/**
 * Finds the client secrets of attempts whose response was lost. Uses a secret whose value is still known. Removes the other
 * ones, and all secrets in state `discarding`.
 *
 * @param final - True at the end of the rotation: uses no secret, and waits until no secret of a lost request can appear
 * anymore.
 * @throws {ContinueLater} during that wait.
 */
export async function reconcileAttempts(context: StepContext, { final }: { final: boolean }): Promise<void> {
  // An attempt is `asked` before its request is sent. It stays `asked` if the response is lost.
  const withoutResponse = () => context.record.attempts.filter(({ state }) => state === "asked");
  if (withoutResponse().length > 0) {
    const app = await context.deps.graph.findApplication({ objectId: clientSecretOf(context.record).objectId });
    for (const { keyId, displayName, expiresOn } of app === undefined ? [] : unrecordedSecrets(context.record, app)) {
      const isUnusable = final || (await readCreatedSecret(context, keyId)) === undefined;
      if (isUnusable) await saveAttempt(context, displayName ?? "", { state: "discarding", keyId });
      else await useSecret(context, displayName ?? "", keyId, expiresOn);
    }
  }
  for (const { keyId, state, askedAt, displayName } of context.record.attempts) {
    if (state !== "discarding" || keyId === undefined) continue;
    const keepReason = await removeCreated(context, keyId, askedAt, final);
    if (keepReason === undefined) await saveAttempt(context, displayName, { state: "removed" });
    else if (final) await keepSecret(context, displayName, keyId, keepReason);
  }
  if (!final) return;
  // An attempt without a response counts as refused once its secret can no longer appear in the directory.
  for (const { askedAt, displayName } of withoutResponse()) {
    const wait = Date.parse(askedAt) + SETTLE_TIME_MS - context.now().getTime();
    if (wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
    await saveAttempt(context, displayName, { state: "refused" });
  }
}

/** Continues with a client secret whose value is known, for example after the tables were restored from a backup. */
async function useSecret(
  context: StepContext,
  displayName: string,
  keyId: string,
  expiresOn: number | undefined,
): Promise<void> {
  await context.save(({ attempts, newExpiresAt }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresOn === undefined ? newExpiresAt : new Date(expiresOn * SECOND_MS).toISOString(),
    attempts: changeAttempts(attempts, (one) => one.displayName === displayName, { state: "made", keyId }),
  }));
}

/**
 * Removes a client secret that this rotation created.
 *
 * @param final - True at the end of the rotation: the secret also stays if a place stores it, or if a place can't be read for
 * long.
 * @returns Undefined if the secret was removed, otherwise the reason why it stays, such as that the application has no other
 * valid client secret, or that it is unclear who uses the secret.
 * @throws {ContinueLater} if the directory does not list the secret, which can happen shortly after its creation.
 */
async function removeCreated(
  context: StepContext,
  keyId: string,
  askedAt: string,
  final: boolean,
): Promise<RotationFailure | undefined> {
  try {
    const removed = await removeClientSecret(context, keyId, "new");
    if (removed === "removed" || context.now().getTime() - Date.parse(askedAt) > SETTLE_TIME_MS) return undefined;
  } catch (error) {
    if (error instanceof NeedsAttention) {
      // During the rotation, a place that stores the secret needs a user. Any other reason only keeps the secret.
      if (final || error.failure.code !== "stillInUse") return error.failure;
      throw error;
    }
    if (!final) throw error;
    const { code, message, remedy } = throwIfTransient(context, error);
    return { code, message: `The client secret ${keyId} was not removed. ${message}`, remedy };
  }
  throw new ContinueLater(RETRY_SECONDS);
}

/** Ends an attempt without removing its client secret. If it is the application's only valid one, its held copy stays too. */
async function keepSecret(
  context: StepContext,
  displayName: string,
  keyId: string,
  keepReason: RotationFailure,
): Promise<void> {
  const isValueKept = keepReason.code === "lastCredential" && (await readHeldValue(context, keyId)) !== undefined;
  const where = `Its value is in the secret ${heldCopyName(context.record.rotationId, keyId)} of the service's own key vault.`;
  await context.save(({ attempts, notes }) => ({
    attempts: changeAttempts(attempts, (one) => one.displayName === displayName, {
      state: "left",
      ...(isValueKept && { isValueKept }),
    }),
    notes: [...notes, isValueKept ? `${keepReason.message} ${where}` : keepReason.message],
  }));
}
