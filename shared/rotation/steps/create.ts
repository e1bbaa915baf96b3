import { CloudFailure } from "../../platform/azure/failure.ts";
import { DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { entered } from "../effect.ts";
import { hold } from "../holding.ts";
import { CLOCKS_DIFFER_MS, isExpired } from "../plan.ts";
import { clientSecretOf, type RotationRecord } from "../rotation.ts";
import { GoBack, Later } from "../stop.ts";
import type { Turn } from "../turn.ts";
import { applicationOf, reconcile, settle } from "./attempts.ts";
import { removeClientSecret } from "./remove.ts";

/** Tries to add a client secret, each with a display name of its own. */
const MAX_ATTEMPTS = 5;
const AGAIN_SECONDS = 60;

/** At most 90 characters, as applications for personal accounts take. */
const displayNameOf = ({ rotationId, attempts }: RotationRecord, now: Date): string =>
  `credential-lifecycle ${rotationId} ${attempts.length + 1} (${now.toISOString().slice(0, 10)})`;

/** Removes the expired client secret that stands in the way. */
export async function makeRoom(turn: Turn): Promise<void> {
  const keyId = turn.record.removeExpired!;
  const app = await applicationOf(turn);
  const found = app.passwords.find((one) => one.keyId === keyId);
  if (found === undefined) return;
  if (!isExpired(found, turn.now())) {
    const message = `The client secret ${keyId} was to be removed as an expired one, and is not expired.`;
    throw new GoBack("notExpired", message, "Begin a new rotation, and name a secret that has expired.");
  }
  await removeClientSecret(turn, keyId, "expired");
}

/** Adds a client secret and holds its value at once. */
export async function create(turn: Turn): Promise<void> {
  // An earlier worker died when it had just written that down.
  if (turn.record.newKeyId !== undefined) return;
  await reconcile(turn, { final: false });
  if (turn.record.newKeyId !== undefined) return;
  const app = await applicationOf(turn);
  const { record } = turn;
  const { oldKeyId } = clientSecretOf(record);
  if (!app.passwords.some(({ keyId }) => keyId === oldKeyId) && record.removeExpired !== oldKeyId) {
    const message = `The client secret ${oldKeyId} that was to be replaced is not there any more.`;
    throw new GoBack("oldSecretGone", message, "See in the audit log of the directory who removed it.");
  }
  if (record.attempts.length >= MAX_ATTEMPTS) {
    const message = `A new client secret could not be made and kept in ${MAX_ATTEMPTS} tries.`;
    throw new GoBack("notCreated", message, "See the step's last failure; then begin a new rotation.");
  }
  await turn.directory(() => addSecret(turn));
}

async function addSecret(turn: Turn): Promise<void> {
  const { graph } = turn.world;
  const { objectId } = clientSecretOf(turn.record);
  const { expiryDays } = turn.record;
  const now = turn.now();
  const displayName = displayNameOf(turn.record, now);
  // A policy's limit counts from the directory's clock, and what is a second longer is refused for good.
  const expiresOn = Math.floor((now.getTime() - CLOCKS_DIFFER_MS) / SECOND_MS) + expiryDays * DAY_SECONDS;
  await turn.save(({ attempts }) => ({
    attempts: [...attempts, { displayName, askedAt: now.toISOString(), state: "asked" }],
  }));
  const made = await entered(
    turn,
    "rotation.secretAdded",
    { displayName, expiresOn: new Date(expiresOn * SECOND_MS).toISOString() },
    () => graph.addPassword(objectId, { displayName, expiresOn }),
    ({ keyId }) => ({ keyId }),
  ).catch(async (error: unknown) => {
    if (error instanceof CloudFailure && !error.unclear) {
      await settle(turn, displayName, { state: "refused" });
      // A secret of an earlier try, which no answer shows yet, may be what takes the place.
      const lost = turn.record.attempts.some(({ state }) => state === "asked");
      if (error.code === "noRoomForSecret" && lost) throw new Later(AGAIN_SECONDS);
    }
    throw error;
  });
  const { keyId } = made;
  try {
    await hold(turn, keyId, made.secretText);
  } catch (error) {
    // The value is lost with this worker: the next one makes another.
    await settle(turn, displayName, { state: "discarding", keyId });
    throw error;
  }
  const expiresAt = new Date((made.expiresOn ?? expiresOn) * SECOND_MS).toISOString();
  await turn.save(({ attempts }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresAt,
    attempts: attempts.map((one) => (one.displayName === displayName ? { ...one, state: "made", keyId } : one)),
  }));
}
