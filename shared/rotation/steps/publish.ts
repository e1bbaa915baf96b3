import { auditedEffect } from "../audited-effect.ts";
import { newValue } from "../new-value.ts";
import { inspectPlace, nextVersion, placeOf, savePublication, vaultOf } from "../publications.ts";
import { clientSecretOf, type Publication } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../step-errors.ts";

/** Wait after an unclear sign-in. */
const UNCLEAR_SECONDS = 30;

/** Writes the new value to the next place that does not have it. @throws {Later} while places remain. */
export async function publishNext(context: StepContext): Promise<void> {
  const left = context.record.publications.filter(({ state }) => state !== "written");
  const [next] = left;
  if (next === undefined) return;
  await publishTo(context, next);
  if (left.length > 1) throw new ContinueLater(0);
}

async function publishTo(context: StepContext, publication: Publication): Promise<void> {
  const place = placeOf(publication);
  const value = await newValue(context);
  if (value === undefined) {
    const message = "The new value is no longer in the service's own key vault, where it was held.";
    throw new RollBack("valueLost", message, "Check who deleted it, then start a new rotation.");
  }
  const { holds, current } = await inspectPlace(context, publication, value);
  // The answer of an earlier write was lost.
  if (holds === "new")
    return await savePublication(context, publication, { state: "written", writtenVersion: current!.version });
  if (holds === "other") {
    const message = `Another writer changed ${place} after this rotation was planned. It was not overwritten.`;
    throw new RollBack(
      "targetChanged",
      message,
      "Check who changed it and what it holds now, then start a new rotation.",
    );
  }
  if (current && publication.kind === "match" && !(await holdsOld(context, publication, current.value))) {
    const message = `${place} does not hold the client secret to replace. It was not overwritten.`;
    throw new RollBack("targetHoldsOther", message, "Correct the match of this secret, then start a new rotation.");
  }
  const now = context.now();
  await savePublication(context, publication, { state: "writing", writtenAt: now.toISOString() });
  const vault = vaultOf(context, publication);
  const { vaultName, secretName } = publication;
  const version = nextVersion(context.record, current, value, now);
  const written = await auditedEffect(
    context,
    "rotation.secretPublished",
    { vaultName, secretName, keyId: context.record.newKeyId },
    () => vault.write(secretName, version),
    (made) => ({ version: made.version }),
  );
  await savePublication(context, publication, { state: "written", writtenVersion: written.version });
  // Key Vault has no conditional write. A version written between the read and the write is only visible now.
  if (current?.createdOn === undefined) return;
  const { createdOn } = current;
  const ours = (tags: Record<string, string>) => tags["rotation-id"] === context.record.rotationId;
  const between = (await vault.versions(secretName)).find(
    (one) => (one.createdOn ?? 0) > createdOn && one.version !== written.version && !ours(one.tags),
  );
  if (between === undefined) return;
  throw new NeedsAttention(
    "targetChangedMeanwhile",
    `Another writer wrote version ${between.version} of ${place} at the same time. The version of this rotation came after it.`,
    "Check the purpose of that version. If it should be the current one, write it again and cancel this rotation. If not, retry.",
  );
}

/**
 * Returns whether a value is the client secret to replace: it starts with the hint and signs in. Metadata is no proof, because
 * anyone with write access to any vault could redirect the new value with it. The answer that the application's secrets have
 * expired is no proof either, because any value may get it. A place that a user confirmed need not sign in.
 *
 * @throws {Later} if the sign-in is unclear.
 */
export async function holdsOld(
  { record, deps }: StepContext,
  { confirmed }: Publication,
  value: string,
): Promise<boolean> {
  if (record.oldHint !== undefined && !value.startsWith(record.oldHint)) return false;
  if (confirmed) return true;
  const { kind } = await deps.signIn(clientSecretOf(record).appId, value);
  if (kind === "unclear") throw new ContinueLater(UNCLEAR_SECONDS);
  return kind === "accepted";
}
