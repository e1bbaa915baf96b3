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

/** Number of attempts to add a client secret. Each has its own display name. */
const MAX_ATTEMPTS = 5;
const AGAIN_SECONDS = 60;

/** Returns at most 90 characters, the limit of applications for personal accounts. */
const displayNameOf = ({ rotationId, attempts }: RotationRecord, now: Date): string =>
  `credential-lifecycle ${rotationId} ${attempts.length + 1} (${now.toISOString().slice(0, 10)})`;

/** Removes an expired client secret to free a slot for the new one. */
export async function makeRoom(turn: Turn): Promise<void> {
  const keyId = turn.record.removeExpired!;
  const app = await applicationOf(turn);
  const found = app.passwords.find((one) => one.keyId === keyId);
  if (found === undefined) return;
  if (!isExpired(found, turn.now())) {
    const message = `The client secret ${keyId} was planned for removal as expired, but has not expired.`;
    throw new GoBack("notExpired", message, "Start a new rotation, and name a secret that has expired.");
  }
  await removeClientSecret(turn, keyId, "expired");
}

/** Adds a client secret and stores its held copy immediately. */
export async function create(turn: Turn): Promise<void> {
  // An earlier worker crashed after it stored the new key ID.
  if (turn.record.newKeyId !== undefined) return;
  await reconcile(turn, { final: false });
  if (turn.record.newKeyId !== undefined) return;
  const app = await applicationOf(turn);
  const { record } = turn;
  const { oldKeyId } = clientSecretOf(record);
  if (!app.passwords.some(({ keyId }) => keyId === oldKeyId) && record.removeExpired !== oldKeyId) {
    const message = `The client secret ${oldKeyId} to replace no longer exists.`;
    throw new GoBack("oldSecretGone", message, "Check in the audit log of the directory who removed it.");
  }
  if (record.attempts.length >= MAX_ATTEMPTS) {
    const message = `A new client secret could not be created and stored in ${MAX_ATTEMPTS} attempts.`;
    throw new GoBack("notCreated", message, "Check the step's last failure, then start a new rotation.");
  }
  await turn.directory(() => addSecret(turn));
}

async function addSecret(turn: Turn): Promise<void> {
  const { graph } = turn.world;
  const { objectId } = clientSecretOf(turn.record);
  const { expiryDays } = turn.record;
  const now = turn.now();
  const displayName = displayNameOf(turn.record, now);
  // The tenant's policy counts from the directory's clock and rejects a lifetime that is a second too long.
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
      // The slot may be taken by a secret of an earlier attempt that the directory does not list yet.
      const lost = turn.record.attempts.some(({ state }) => state === "asked");
      if (error.code === "noRoomForSecret" && lost) throw new Later(AGAIN_SECONDS);
    }
    throw error;
  });
  const { keyId } = made;
  try {
    await hold(turn, keyId, made.secretText);
  } catch (error) {
    // The value is lost, so the next worker creates another secret.
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
