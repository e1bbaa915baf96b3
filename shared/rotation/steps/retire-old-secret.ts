import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { reasonsAgainstEnd } from "../end-conditions.ts";
import { heldCopyNames } from "../held-copies.ts";
import { clientSecretOf, isVaultSecret } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater } from "../step-errors.ts";
import { addPlaces } from "./add-places.ts";
import { reconcile } from "./attempts.ts";
import { checkWaitingConsumers } from "./refresh-consumers.ts";
import { removeClientSecret } from "./remove-secret.ts";

const AGAIN_SECONDS = 60;
/** How long a check of the places stays valid. */
const CHECK_HOLDS_MS = 5 * MINUTE_MS;

/** Waits until the overlap period is over and no reason keeps the old value. @throws {Later} until then. */
export async function waitForOverlap(context: StepContext): Promise<void> {
  const { finish, overlapEndsAt = "", placeConfirmedAt } = context.record;
  const wait = Date.parse(overlapEndsAt) - context.now().getTime();
  const isDue = wait <= 0 || finish !== undefined || placeConfirmedAt !== undefined;
  if (isDue && (await addPlaces(context))) throw new ContinueLater(0);
  const again = finish === undefined ? await checkWaitingConsumers(context) : undefined;
  if (wait > 0 && finish === undefined) {
    throw new ContinueLater(Math.min(Math.ceil(wait / SECOND_MS), again ?? Number.POSITIVE_INFINITY));
  }
  const checkedAt = context.now().toISOString();
  if (finish?.force) return await context.save(() => ({ checkedAt }));
  const { reasons, consumers, againSeconds } = await reasonsAgainstEnd(context, finish !== undefined);
  // The user who finished the rotation has seen the earlier reasons. New reasons must be shown first.
  const against = reasons.length > 0;
  await context.save(() => ({
    checkedAt,
    reasons,
    consumers,
    needsConfirmation: against,
    finish: against ? undefined : finish,
  }));
  if (reasons.length > 0) throw new ContinueLater(againSeconds);
}

/** Removes the old secret, the only one that this rotation did not create. The record names it from the start. */
export async function revokeOldSecret(context: StepContext): Promise<void> {
  const { graph } = context.deps;
  const { objectId, oldKeyId } = clientSecretOf(context.record);
  const { revokingSince, checkedAt = "" } = context.record;
  if (revokingSince === undefined && context.now().getTime() - Date.parse(checkedAt) > CHECK_HOLDS_MS) {
    await context.save(() => ({ status: "overlapping" }));
    throw new ContinueLater(0);
  }
  const removed = await removeClientSecret(context, oldKeyId, "old", () =>
    context.save(({ revokingSince }) => ({ revokingSince: revokingSince ?? context.now().toISOString() })),
  );
  if (removed === "removed") return;
  // The directory may answer so although the secret exists.
  const app = await graph.application({ objectId });
  if (app?.passwords.some(({ keyId }) => keyId === oldKeyId)) throw new ContinueLater(AGAIN_SECONDS);
}

/** Deletes the held copies, and the client secrets that this rotation created and does not use. */
export async function deleteLeftovers(context: StepContext): Promise<void> {
  if (!isVaultSecret(context.record)) await reconcile(context, { final: true });
  for (const name of heldCopyNames(context.record)) await context.deps.own.removeSecret(name);
}
