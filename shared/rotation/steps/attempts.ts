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
 * After so long a request without an answer was either carried out or never will be, and every replica of the directory
 * shows it: reads have been seen to lag by up to five minutes.
 */
export const SETTLED_MS = 15 * MINUTE_MS;
const AGAIN_SECONDS = 60;

/** @throws {GoBack} when the application is gone. */
export async function applicationOf({ world, record }: Turn): Promise<GraphApplication> {
  const { appId, objectId, appName } = clientSecretOf(record);
  const app = await world.graph.application({ objectId });
  if (app) return app;
  throw new GoBack(
    "applicationGone",
    `The application ${appName} (${appId}) is not in the directory any more.`,
    "If it was deleted by mistake, restore it within 30 days and begin a new rotation.",
  );
}

/**
 * Client secrets that this rotation asked for and whose value nobody has: their display names are those of its tries. They
 * are not in use and not known to the record yet.
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

/** Writes down that a try is in another state. */
export const settle = (turn: Turn, displayName: string, change: Partial<Attempt>): Promise<void> =>
  turn.save(({ attempts }) => ({ attempts: changed(attempts, (one) => one.displayName === displayName, change) }));

/**
 * Finds the secrets of tries whose answer was lost, writes their key ids into the record and removes them, and all others
 * that are to be discarded.
 *
 * @param final - Nothing more will be asked for: waits until no lost request can come to light any more.
 * @throws {Later} while that is so.
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

/** The answer was not lost after all: the secret is in use, as a copy of the tables taken before that does not tell. */
async function resume(turn: Turn, displayName: string, keyId: string, expiresOn: number | undefined): Promise<void> {
  await turn.save(({ attempts, newExpiresAt }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresOn === undefined ? newExpiresAt : new Date(expiresOn * SECOND_MS).toISOString(),
    attempts: changed(attempts, (one) => one.displayName === displayName, { state: "made", keyId }),
  }));
}

/**
 * Removes a client secret that this rotation made; the record names it already.
 *
 * @param final - Nothing else will decide about the secret: it is also kept if a target holds it or can't be read for long.
 * @returns Why the secret was kept; always if the application has no other valid client secret. Undefined if it is gone.
 * @throws {Later} when the directory says that it is not there, which it may say of a young one that is.
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

/** Ends an attempt without removing its client secret. The value of an application's only valid secret stays held. */
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
