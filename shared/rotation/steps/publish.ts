import { entered } from "../effect.ts";
import { lookAt, nextVersion, placeOf, progress, vaultOf } from "../publications.ts";
import { newValue } from "../recover.ts";
import { clientSecretOf, type Publication } from "../rotation.ts";
import { GoBack, Later, NeedsPerson } from "../stop.ts";
import type { Turn } from "../turn.ts";

/** Until a sign-in that said nothing is tried again. */
const UNCLEAR_SECONDS = 30;

/** Writes the new value to the next place that has not got it. @throws {Later} while there are more. */
export async function publish(turn: Turn): Promise<void> {
  const left = turn.record.publications.filter(({ state }) => state !== "written");
  const [next] = left;
  if (next === undefined) return;
  await publishTo(turn, next);
  if (left.length > 1) throw new Later(0);
}

async function publishTo(turn: Turn, publication: Publication): Promise<void> {
  const place = placeOf(publication);
  const value = await newValue(turn);
  if (value === undefined) {
    const message = "The new value is no longer in the service's own key vault, where it was held.";
    throw new GoBack("valueLost", message, "See who deleted it there, then begin a new rotation.");
  }
  const { holds, current } = await lookAt(turn, publication, value);
  // An earlier write whose answer was lost.
  if (holds === "new") return await progress(turn, publication, { state: "written", writtenVersion: current!.version });
  if (holds === "other") {
    const message = `${place} was changed by somebody else after this rotation was planned. It was not overwritten.`;
    throw new GoBack("targetChanged", message, "See who changed it and what it holds now, then begin a new rotation.");
  }
  if (current && publication.kind === "match" && !(await holdsOld(turn, publication, current.value))) {
    const message = `${place} does not hold the client secret that is to be replaced. It was not overwritten.`;
    throw new GoBack("targetHoldsOther", message, "Correct the match of this secret, then begin a new rotation.");
  }
  const now = turn.now();
  await progress(turn, publication, { state: "writing", writtenAt: now.toISOString() });
  const vault = vaultOf(turn, publication);
  const { vaultName, secretName } = publication;
  const version = nextVersion(turn.record, current, value, now);
  const written = await entered(
    turn,
    "rotation.secretPublished",
    { vaultName, secretName, keyId: turn.record.newKeyId },
    () => vault.write(secretName, version),
    (made) => ({ version: made.version }),
  );
  await progress(turn, publication, { state: "written", writtenVersion: written.version });
  // Key Vault has no conditional write: what came between the look and the write shows only now.
  if (current?.createdOn === undefined) return;
  const { createdOn } = current;
  const ours = (tags: Record<string, string>) => tags["rotation-id"] === turn.record.rotationId;
  const between = (await vault.versions(secretName)).find(
    (one) => (one.createdOn ?? 0) > createdOn && one.version !== written.version && !ours(one.tags),
  );
  if (between === undefined) return;
  throw new NeedsPerson(
    "targetChangedMeanwhile",
    `Somebody else wrote version ${between.version} of ${place} at the same moment; ours came after it.`,
    "Look at what that version was meant to be. If it should be the current one, write it again and cancel this rotation; if not, retry.",
  );
}

/**
 * Whether a value is that of the client secret which is to be replaced: it begins with its hint and signs in. What a
 * secret says of itself is no proof, since whoever may write to any vault could have the new value sent there; nor is the answer
 * that the application's secrets have expired, which any value may get. A place that a person confirmed need not sign in.
 *
 * @throws {Later} while the sign-in says nothing.
 */
export async function holdsOld({ record, world }: Turn, { confirmed }: Publication, value: string): Promise<boolean> {
  if (record.oldHint !== undefined && !value.startsWith(record.oldHint)) return false;
  if (confirmed) return true;
  const { kind } = await world.signIn(clientSecretOf(record).appId, value);
  if (kind === "unclear") throw new Later(UNCLEAR_SECONDS);
  return kind === "accepted";
}
