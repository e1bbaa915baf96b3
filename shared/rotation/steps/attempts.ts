import type { GraphApplication, PasswordCredential } from "../../platform/azure/graph.ts";
import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { lastingFailure } from "../conditions.ts";
import { heldValueOf, holdingName } from "../holding.ts";
import { newValueOf } from "../recover.ts";
import { type Attempt, clientSecretOf, type RotationFailure, type RotationRecord } from "../rotation.ts";
import { GoBack, Later, NeedsPerson } from "../stop.ts";
import type { Turn } from "../turn.ts";
import { removeClientSecret } from "./remove.ts";

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
export async function applicationOf({ world, record }: Turn): Promise<GraphApplication> {
  const { appId, objectId, appName } = clientSecretOf(record);
  const app = await world.graph.application({ objectId });
  if (app) return app;
  throw new GoBack(
    "applicationGone",
    `The application ${appName} (${appId}) is no longer in the directory.`,
    "If it was deleted by mistake, restore it within 30 days and start a new rotation.",
  );
}

/**
 * Returns client secrets that this rotation requested and whose answer was lost: they have the display name of an attempt, and
 * the record does not know them.
 */
function strays({ attempts, knownKeyIds }: RotationRecord, app: GraphApplication): PasswordCredential[] {
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
export const settle = (turn: Turn, displayName: string, change: Partial<Attempt>): Promise<void> =>
  turn.save(({ attempts }) => ({ attempts: changed(attempts, (one) => one.displayName === displayName, change) }));

/**
 * Finds the client secrets of attempts whose answer was lost, stores their key IDs, and removes them and all others in state
 * `discarding`.
 *
 * @param final - No more requests will follow: waits until no lost request can appear anymore.
 * @throws {Later} during that wait.
 */
export async function reconcile(turn: Turn, { final }: { final: boolean }): Promise<void> {
  const unsettled = () => turn.record.attempts.filter(({ state }) => state === "asked");
  if (unsettled().length > 0) {
    const app = await turn.world.graph.application({ objectId: clientSecretOf(turn.record).objectId });
    for (const { keyId, displayName, expiresOn } of app === undefined ? [] : strays(turn.record, app)) {
      const lost = final || (await newValueOf(turn, keyId)) === undefined;
      if (lost) await settle(turn, displayName ?? "", { state: "discarding", keyId });
      else await resume(turn, displayName ?? "", keyId, expiresOn);
    }
  }
  for (const { keyId, state, askedAt, displayName } of turn.record.attempts) {
    if (state !== "discarding" || keyId === undefined) continue;
    const kept = await removeMade(turn, keyId, askedAt, final);
    if (kept === undefined) await settle(turn, displayName, { state: "removed" });
    else if (final) await leave(turn, displayName, keyId, kept);
  }
  if (!final) return;
  for (const { askedAt, displayName } of unsettled()) {
    const wait = Date.parse(askedAt) + SETTLED_MS - turn.now().getTime();
    if (wait > 0) throw new Later(Math.ceil(wait / SECOND_MS));
    await settle(turn, displayName, { state: "refused" });
  }
}

/** Continues with a client secret whose value is known after all, for example after the tables were restored from a backup. */
async function resume(turn: Turn, displayName: string, keyId: string, expiresOn: number | undefined): Promise<void> {
  await turn.save(({ attempts, newExpiresAt }) => ({
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
async function removeMade(
  turn: Turn,
  keyId: string,
  askedAt: string,
  final: boolean,
): Promise<RotationFailure | undefined> {
  try {
    const removed = await removeClientSecret(turn, keyId, "new");
    if (removed === "removed" || turn.now().getTime() - Date.parse(askedAt) > SETTLED_MS) return undefined;
  } catch (error) {
    if (error instanceof NeedsPerson) {
      if (final || error.failure.code === "lastCredential") return error.failure;
      throw error;
    }
    if (!final) throw error;
    const { code, message, remedy } = lastingFailure(turn, error);
    return { code, message: `The client secret ${keyId} was not removed. ${message}`, remedy };
  }
  throw new Later(AGAIN_SECONDS);
}

/** Ends an attempt without removing its client secret. The held copy of an application's only valid secret stays. */
async function leave(turn: Turn, displayName: string, keyId: string, why: RotationFailure): Promise<void> {
  const isValueKept = why.code === "lastCredential" && (await heldValueOf(turn, keyId)) !== undefined;
  const where = `Its value is in the secret ${holdingName(turn.record.rotationId, keyId)} of the service's own key vault.`;
  await turn.save(({ attempts, notes }) => ({
    attempts: changed(attempts, (one) => one.displayName === displayName, {
      state: "left",
      ...(isValueKept && { isValueKept }),
    }),
    notes: [...notes, isValueKept ? `${why.message} ${where}` : why.message],
  }));
}
