import type { SecretVersion } from "../../platform/azure/vault-secrets.ts";
import { auditedEffect } from "../audited-effect.ts";
import { issuerOf } from "../issuers/issuers.ts";
import { readNewValue } from "../new-value.ts";
import { contentWith, inspectPlace, nextVersion } from "../place-content.ts";
import { openVault, placeOf, savePublication } from "../publications.ts";
import type { Publication } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention, RollBack } from "../step-errors.ts";
import { waitToPublish } from "./wait-for-window.ts";

/** Seconds to wait after a test of the old value without a clear result. */
const UNCLEAR_SECONDS = 30;

/**
 * Writes the new value to the next place that does not have it.
 *
 * @throws {ContinueLater} while places remain, or until the maintenance window opens.
 */
export async function publishNext(context: StepContext): Promise<void> {
  await waitToPublish(context);
  const unwrittenPlaces = context.record.publications.filter(({ state }) => state !== "written");
  const [next] = unwrittenPlaces;
  if (next === undefined) return;
  await publishTo(context, next);
  if (unwrittenPlaces.length > 1) throw new ContinueLater(0);
}

/** Returns the members of a place that has the new value. */
const writtenAs = ({ version, createdOn }: SecretVersion): Partial<Publication> => ({
  state: "written",
  writtenVersion: version,
  ...(createdOn !== undefined && { writtenCreatedOn: createdOn }),
});

async function publishTo(context: StepContext, publication: Publication): Promise<void> {
  const place = placeOf(publication);
  const value = await readNewValue(context);
  if (value === undefined) {
    const message = "The new value is no longer in the service's own key vault, where it was held.";
    throw new RollBack("valueLost", message, "Check who deleted it, then start a new rotation.");
  }
  const { holds, current } = await inspectPlace(context, publication, value);
  // An earlier run wrote the value, but its response was lost.
  if (holds === "new") return await savePublication(context, publication, writtenAs(current!));
  if (holds === "other") {
    const message = `Another writer changed ${place} after this rotation was planned. It was not overwritten.`;
    throw new RollBack(
      "targetChanged",
      message,
      "Check who changed it and what it holds now, then start a new rotation.",
    );
  }
  if (current && publication.kind === "match" && !(await storesOldValue(context, publication, current.value))) {
    const message = `${place} does not hold the ${issuerOf(context.record).noun} to replace. It was not overwritten.`;
    throw new RollBack("targetHoldsOther", message, "Correct the match of this secret, then start a new rotation.");
  }
  const now = context.now();
  await savePublication(context, publication, { state: "writing", writtenAt: now.toISOString() });
  const vault = openVault(context, publication);
  const { vaultName, secretName } = publication;
  const version = nextVersion(context.record, current, contentWith(context.record, value, current?.value), now);
  const written = await auditedEffect(
    context,
    "rotation.secretPublished",
    { vaultName, secretName, keyId: context.record.newKeyId },
    () => vault.write(secretName, version),
    (made) => ({ version: made.version }),
  );
  await savePublication(context, publication, writtenAs(written));
  // Key Vault has no conditional write, so a version that another writer added between the read and the write is found
  // afterwards.
  if (current?.createdOn === undefined) return;
  const { createdOn } = current;
  const isOurs = (tags: Record<string, string>) => tags["rotation-id"] === context.record.rotationId;
  const otherVersion = (await vault.versions(secretName)).find(
    (one) => (one.createdOn ?? 0) > createdOn && one.version !== written.version && !isOurs(one.tags),
  );
  if (otherVersion === undefined) return;
  throw new NeedsAttention(
    "targetChangedMeanwhile",
    `Another writer wrote version ${otherVersion.version} of ${place} at the same time. The version of this rotation came after it.`,
    "Check the purpose of that version. If it should be the current one, write it again and cancel this rotation. If not, retry.",
  );
}

/**
 * Returns whether a value is the one to replace: it starts with the hint (the known first characters) and its issuer accepts it.
 * Tags and content type prove nothing, because anyone with write access to a vault could set them to get the new value. The
 * sign-in result `expired` proves nothing either, because any value can get it. A value that a user confirmed is not tested.
 *
 * @throws {ContinueLater} if the test is unclear.
 */
export async function storesOldValue(
  context: StepContext,
  { confirmed }: Publication,
  value: string,
): Promise<boolean> {
  const { record } = context;
  if (record.oldHint !== undefined && !value.startsWith(record.oldHint)) return false;
  if (confirmed) return true;
  const result = await issuerOf(record).testValue(context, value);
  if (result === "unclear") throw new ContinueLater(UNCLEAR_SECONDS);
  return result === "accepted";
}
