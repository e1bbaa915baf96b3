import { CloudFailure } from "../../../platform/azure/failure.ts";
import { DAY_SECONDS, SECOND_MS } from "../../../platform/time.ts";
import { auditedEffect } from "../../audited-effect.ts";
import { holdValue } from "../../held-copies.ts";
import { clientSecretOf, type RotationRecord } from "../../rotation.ts";
import type { StepContext } from "../../step-context.ts";
import { ContinueLater, RollBack } from "../../step-errors.ts";
import { isExpired, MAX_CLOCK_DIFFERENCE_MS } from "./plan.ts";
import { reconcileAttempts, requireApplication, saveAttempt } from "./restore.ts";
import { removeClientSecret } from "./retire.ts";
import { tagsOf } from "./tags.ts";

/** Number of attempts to add a client secret. Each has its own display name. */
const MAX_ATTEMPTS = 5;
const RETRY_SECONDS = 60;

/**
 * Returns the display name of the next attempt. It has at most 90 characters, the limit for applications for personal accounts.
 */
const displayNameOf = ({ rotationId, attempts }: RotationRecord, now: Date): string =>
  `credential-lifecycle ${rotationId} ${attempts.length + 1} (${now.toISOString().slice(0, 10)})`;

/** Removes an expired client secret to free a slot for the new one. */
export async function removeExpiredSecret(context: StepContext): Promise<void> {
  const keyId = context.record.removeExpired!;
  const app = await requireApplication(context);
  const expiredSecret = app.passwords.find((one) => one.keyId === keyId);
  if (expiredSecret === undefined) return;
  if (!isExpired(expiredSecret, context.now())) {
    const message = `The client secret ${keyId} was planned for removal as expired, but has not expired.`;
    throw new RollBack("notExpired", message, "Start a new rotation, and name a secret that has expired.");
  }
  await removeClientSecret(context, keyId, "expired");
}

/** Adds a client secret and immediately stores its held copy, because Entra ID returns the value only once. */
export async function createSecret(context: StepContext): Promise<void> {
  // True if an earlier worker crashed after it stored the new key ID.
  if (context.record.newKeyId !== undefined) return;
  // Sets `newKeyId` if the secret of an earlier attempt, whose response was lost, can be used.
  await reconcileAttempts(context, { final: false });
  if (context.record.newKeyId !== undefined) return;
  const app = await requireApplication(context);
  const { record } = context;
  const { oldKeyId } = clientSecretOf(record);
  // The secret to replace can be the expired one that the step `makeRoom` removed.
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

/**
 * Adds a client secret. The attempt is stored as `asked` before the request, so that a secret whose response is lost is found later
 * by its display name.
 */
async function addSecret(context: StepContext): Promise<void> {
  const { graph } = context.deps;
  const { objectId } = clientSecretOf(context.record);
  const { expiryDays } = context.record;
  const now = context.now();
  const displayName = displayNameOf(context.record, now);
  // The tenant's policy uses the directory's clock and rejects a lifetime that is a second too long. Clocks may differ.
  const expiresOn = Math.floor((now.getTime() - MAX_CLOCK_DIFFERENCE_MS) / SECOND_MS) + expiryDays * DAY_SECONDS;
  await context.save(({ attempts }) => ({
    attempts: [...attempts, { displayName, askedAt: now.toISOString(), state: "asked" }],
  }));
  const created = await auditedEffect(
    context,
    "rotation.secretAdded",
    { displayName, expiresOn: new Date(expiresOn * SECOND_MS).toISOString() },
    () => graph.addPassword(objectId, { displayName, expiresOn }),
    ({ keyId }) => ({ keyId }),
  ).catch(async (error: unknown) => {
    if (error instanceof CloudFailure && !error.unclear) {
      await saveAttempt(context, displayName, { state: "refused" });
      // The slot may be taken by a secret of an earlier attempt that the directory does not list yet.
      const hasLostAttempt = context.record.attempts.some(({ state }) => state === "asked");
      if (error.code === "noRoomForSecret" && hasLostAttempt) throw new ContinueLater(RETRY_SECONDS);
    }
    throw error;
  });
  const { keyId } = created;
  try {
    await holdValue(context, keyId, created.secretText, Object.fromEntries(tagsOf(context.record, keyId)));
  } catch (error) {
    // The value is lost, so the next run of this step creates another secret.
    await saveAttempt(context, displayName, { state: "discarding", keyId });
    throw error;
  }
  const expiresAt = new Date((created.expiresOn ?? expiresOn) * SECOND_MS).toISOString();
  await context.save(({ attempts }) => ({
    newKeyId: keyId,
    newExpiresAt: expiresAt,
    attempts: attempts.map((one) => (one.displayName === displayName ? { ...one, state: "made", keyId } : one)),
  }));
}
