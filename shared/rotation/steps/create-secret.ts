import { CloudFailure } from "../../platform/azure/failure.ts";
import { DAY_SECONDS, SECOND_MS } from "../../platform/time.ts";
import { auditedEffect } from "../audited-effect.ts";
import { holdClientSecret } from "../held-copies.ts";
import { CLOCKS_DIFFER_MS, isExpired } from "../plan.ts";
import { clientSecretOf, type RotationRecord } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, RollBack } from "../step-errors.ts";
import { applicationOf, reconcile, saveAttempt } from "./attempts.ts";
import { removeClientSecret } from "./remove-secret.ts";

/** Number of attempts to add a client secret. Each has its own display name. */
const MAX_ATTEMPTS = 5;
const AGAIN_SECONDS = 60;

/** Returns at most 90 characters, the limit of applications for personal accounts. */
const displayNameOf = ({ rotationId, attempts }: RotationRecord, now: Date): string =>
  `credential-lifecycle ${rotationId} ${attempts.length + 1} (${now.toISOString().slice(0, 10)})`;

/** Removes an expired client secret to free a slot for the new one. */
export async function removeExpiredSecret(context: StepContext): Promise<void> {
  const keyId = context.record.removeExpired!;
  const app = await applicationOf(context);
  const found = app.passwords.find((one) => one.keyId === keyId);
  if (found === undefined) return;
  if (!isExpired(found, context.now())) {
    const message = `The client secret ${keyId} was planned for removal as expired, but has not expired.`;
    throw new RollBack("notExpired", message, "Start a new rotation, and name a secret that has expired.");
  }
  await removeClientSecret(context, keyId, "expired");
}

/** Adds a client secret and stores its held copy immediately. */
export async function createSecret(context: StepContext): Promise<void> {
  // An earlier worker crashed after it stored the new key ID.
  if (context.record.newKeyId !== undefined) return;
  await reconcile(context, { final: false });
  if (context.record.newKeyId !== undefined) return;
  const app = await applicationOf(context);
  const { record } = context;
  const { oldKeyId } = clientSecretOf(record);
  if (!app.passwords.some(({ keyId }) => keyId === oldKeyId) && record.removeExpired !== oldKeyId) {
    const message = `The client secret ${oldKeyId} to replace no longer exists.`;
    throw new RollBack("oldSecretGone", message, "Check in the audit log of the directory who removed it.");
  }
  if (record.attempts.length >= MAX_ATTEMPTS) {
    const message = `A new client secret could not be created and stored in ${MAX_ATTEMPTS} attempts.`;
    throw new RollBack("notCreated", message, "Check the step's last failure, then start a new rotation.");
  }
  await context.withDirectoryLease(() => addSecret(context));
}

async function addSecret(context: StepContext): Promise<void> {
  const { graph } = context.deps;
  const { objectId } = clientSecretOf(context.record);
  const { expiryDays } = context.record;
  const now = context.now();
  const displayName = displayNameOf(context.record, now);
  // The tenant's policy counts from the directory's clock and rejects a lifetime that is a second too long.
  const expiresOn = Math.floor((now.getTime() - CLOCKS_DIFFER_MS) / SECOND_MS) + expiryDays * DAY_SECONDS;
  await context.save(({ attempts }) => ({
    attempts: [...attempts, { displayName, askedAt: now.toISOString(), state: "asked" }],
  }));
  const made = await auditedEffect(
    context,
    "rotation.secretAdded",
    { displayName, expiresOn: new Date(expiresOn * SECOND_MS).toISOString() },
    () => graph.addPassword(objectId, { displayName, expiresOn }),
    ({ keyId }) => ({ keyId }),
  ).catch(async (error: unknown) => {
    if (error instanceof CloudFailure && !error.unclear) {
      await saveAttempt(context, displayName, { state: "refused" });
      // The slot may be taken by a secret of an earlier attempt that the directory does not list yet.
      const lost = context.record.attempts.some(({ state }) => state === "asked");
      if (error.code === "noRoomForSecret" && lost) throw new ContinueLater(AGAIN_SECONDS);
    }
    throw error;
  });
  const { keyId } = made;
  try {
    await holdClientSecret(context, keyId, made.secretText);
  } catch (error) {
    // The value is lost, so the next worker creates another secret.
    await saveAttempt(context, displayName, { state: "discarding", keyId });
    throw error;
  }
  const expiresAt = new Date((made.expiresOn ?? expiresOn) * SECOND_MS).toISOString();
  await context.save(({ attempts }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresAt,
    attempts: attempts.map((one) => (one.displayName === displayName ? { ...one, state: "made", keyId } : one)),
  }));
}
