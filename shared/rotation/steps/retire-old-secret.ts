import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { reasonsAgainstEnd } from "../end-conditions.ts";
import { heldCopyNames } from "../held-copies.ts";
import { issuerOf } from "../issuers/issuers.ts";
import { isVaultSecret } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater } from "../step-errors.ts";
import { addPlaces } from "./add-places.ts";
import { checkWaitingConsumers } from "./refresh-consumers.ts";
import { waitToRetire, windowOpensAt } from "./wait-for-window.ts";

/** Time for which a check of the places is valid. After it, they are checked again before the removal. */
const CHECK_VALID_MS = 5 * MINUTE_MS;

/**
 * Waits until the overlap period is over, nothing uses the old value, and the maintenance window is open.
 *
 * @throws {ContinueLater} until then. A user who finishes the rotation does not wait for the window.
 */
export async function waitForOverlap(context: StepContext): Promise<void> {
  const { finish, overlapEndsAt = "", placeConfirmedAt } = context.record;
  const wait = Date.parse(overlapEndsAt) - context.now().getTime();
  const isDue = wait <= 0 || finish !== undefined || placeConfirmedAt !== undefined;
  if (isDue && (await addPlaces(context))) throw new ContinueLater(0);
  const consumerCheckSeconds = finish === undefined ? await checkWaitingConsumers(context) : undefined;
  if (wait > 0 && finish === undefined) {
    throw new ContinueLater(Math.min(Math.ceil(wait / SECOND_MS), consumerCheckSeconds ?? Number.POSITIVE_INFINITY));
  }
  const checkedAt = context.now().toISOString();
  if (finish?.force) return await context.save(() => ({ checkedAt }));
  const { reasons, consumers, nextCheckSeconds } = await reasonsAgainstEnd(context, {
    isUserRequest: finish !== undefined,
  });
  // The user who finished the rotation has seen the earlier reasons. New reasons must be shown first.
  const hasReasons = reasons.length > 0;
  await context.save(() => ({
    checkedAt,
    reasons,
    consumers,
    needsConfirmation: hasReasons,
    finish: hasReasons ? undefined : finish,
  }));
  if (reasons.length > 0) throw new ContinueLater(nextCheckSeconds);
  if (finish === undefined) waitToRetire(context);
}

/** Has the issuer retire the old credential, unless the last check of the places is too old or the window has closed since. */
export async function retireOldCredential(context: StepContext): Promise<void> {
  const { revokingSince, checkedAt = "", finish } = context.record;
  const isCheckOld = context.now().getTime() - Date.parse(checkedAt) > CHECK_VALID_MS;
  const mustWait = finish === undefined && windowOpensAt(context) !== undefined;
  if (revokingSince === undefined && (isCheckOld || mustWait)) {
    await context.save(() => ({ status: "overlapping" }));
    throw new ContinueLater(0);
  }
  await issuerOf(context.record).retire(context);
}

/** Deletes the held copies, and the credentials that this rotation created and does not use. */
export async function deleteLeftovers(context: StepContext): Promise<void> {
  if (!isVaultSecret(context.record)) await issuerOf(context.record).removeLeftovers?.(context);
  for (const name of heldCopyNames(context.record)) await context.deps.serviceVault.removeSecret(name);
}
