import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { reasonsAgainstEnd } from "../conditions.ts";
import { heldNames } from "../holding.ts";
import { clientSecretOf, isVaultSecret } from "../rotation.ts";
import { Later } from "../stop.ts";
import type { Turn } from "../turn.ts";
import { addPlaces } from "./add-places.ts";
import { reconcile } from "./attempts.ts";
import { lookAtWaiting } from "./consumers.ts";
import { removeClientSecret } from "./remove.ts";

const AGAIN_SECONDS = 60;
/** How long a check of the places stays valid. */
const CHECK_HOLDS_MS = 5 * MINUTE_MS;

/** Waits until the overlap period is over and no reason keeps the old value. @throws {Later} until then. */
export async function overlap(turn: Turn): Promise<void> {
  const { finish, overlapEndsAt = "", placeConfirmedAt } = turn.record;
  const wait = Date.parse(overlapEndsAt) - turn.now().getTime();
  const isDue = wait <= 0 || finish !== undefined || placeConfirmedAt !== undefined;
  if (isDue && (await addPlaces(turn))) throw new Later(0);
  const again = finish === undefined ? await lookAtWaiting(turn) : undefined;
  if (wait > 0 && finish === undefined) {
    throw new Later(Math.min(Math.ceil(wait / SECOND_MS), again ?? Number.POSITIVE_INFINITY));
  }
  const checkedAt = turn.now().toISOString();
  if (finish?.force) return await turn.save(() => ({ checkedAt }));
  const { reasons, consumers, againSeconds } = await reasonsAgainstEnd(turn, finish !== undefined);
  // The user who finished the rotation has seen the earlier reasons. New reasons must be shown first.
  const against = reasons.length > 0;
  await turn.save(() => ({
    checkedAt,
    reasons,
    consumers,
    needsConfirmation: against,
    finish: against ? undefined : finish,
  }));
  if (reasons.length > 0) throw new Later(againSeconds);
}

/** Removes the old secret, the only one that this rotation did not create. The record names it from the start. */
export async function revoke(turn: Turn): Promise<void> {
  const { graph } = turn.world;
  const { objectId, oldKeyId } = clientSecretOf(turn.record);
  const { revokingSince, checkedAt = "" } = turn.record;
  if (revokingSince === undefined && turn.now().getTime() - Date.parse(checkedAt) > CHECK_HOLDS_MS) {
    await turn.save(() => ({ status: "overlapping" }));
    throw new Later(0);
  }
  const removed = await removeClientSecret(turn, oldKeyId, "old", () =>
    turn.save(({ revokingSince }) => ({ revokingSince: revokingSince ?? turn.now().toISOString() })),
  );
  if (removed === "removed") return;
  // The directory may answer so although the secret exists.
  const app = await graph.application({ objectId });
  if (app?.passwords.some(({ keyId }) => keyId === oldKeyId)) throw new Later(AGAIN_SECONDS);
}

/** Deletes the held copies, and the client secrets that this rotation created and does not use. */
export async function cleanUp(turn: Turn): Promise<void> {
  if (!isVaultSecret(turn.record)) await reconcile(turn, { final: true });
  for (const name of heldNames(turn.record)) await turn.world.own.removeSecret(name);
}
