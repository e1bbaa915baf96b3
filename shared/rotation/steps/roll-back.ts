import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { auditedEffect } from "../audited-effect.ts";
import { readHeldCopy } from "../held-copies.ts";
import { issuerOf } from "../issuers/issuers.ts";
import { inspectPlace } from "../place-content.ts";
import { openVault, placeOf, savePublication } from "../publications.ts";
import { isVaultSecret, type Publication } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention } from "../step-errors.ts";
import { mayHoldNewValue } from "../transitions.ts";
import { consumersOfNewValue } from "./refresh-consumers.ts";

/** Time after which a write without a response has no further effect. */
export const LATE_WRITE_MS = 2 * MINUTE_MS;
const MIN_TESTS = 5;
const RETRY_SECONDS = 15;

/** Restores the previous value of the place that was written last. @throws {ContinueLater} while places remain. */
export async function restorePlaces(context: StepContext): Promise<void> {
  const unrestoredPlaces = context.record.publications.filter(mayHoldNewValue);
  const lastWritten = unrestoredPlaces.at(-1);
  if (lastWritten === undefined) return;
  await restorePlace(context, lastWritten);
  if (unrestoredPlaces.length > 1) throw new ContinueLater(0);
}

/**
 * Restores the previous value of a place, as a new version. Without a previous value, disables the new version. A place that another
 * writer changed stays as it is.
 */
async function restorePlace(context: StepContext, publication: Publication): Promise<void> {
  const { state, writtenAt = "", vaultName, secretName, plannedVersion } = publication;
  const wait = Date.parse(writtenAt) + LATE_WRITE_MS - context.now().getTime();
  if (state === "writing" && wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
  const vault = openVault(context, publication);
  // Without a planned version the secret did not exist before. Its new version is then disabled, because there is no value to
  // restore.
  if (plannedVersion === undefined) {
    // True if an earlier worker crashed after it disabled the version. The value of a disabled version can't be read.
    const [newest] = await vault.versions(secretName);
    if (newest?.enabled === false && newest.tags["rotation-id"] === context.record.rotationId)
      return await savePublication(context, publication, { state: "restored" });
  }
  const { holds, current } = await inspectPlace(context, publication, await readHeldCopy(context));
  const restoredAt = context.now().toISOString();
  if (holds === "planned") return await savePublication(context, publication, { state: "restored", restoredAt });
  const previousVersion =
    plannedVersion === undefined ? undefined : await requirePreviousVersion(context, publication, plannedVersion);
  if (holds === "other") {
    // Either an earlier run restored the value and its response was lost, or another writer changed the place.
    const isRestored =
      state === "restoring" && previousVersion !== undefined && current?.value === previousVersion.value;
    const restoredVersion = current?.version;
    return await savePublication(context, publication, {
      state: isRestored ? "restored" : "left",
      restoredVersion,
      restoredAt,
    });
  }
  const details = { vaultName, secretName, version: plannedVersion };
  if (previousVersion === undefined) {
    const { version } = current!;
    await auditedEffect(context, "rotation.secretPutBack", details, () => vault.enable(secretName, version, false));
    return await savePublication(context, publication, { state: "restored" });
  }
  if (!isVaultSecret(context.record)) await requireValid(context, publication, previousVersion.value);
  await savePublication(context, publication, { state: "restoring" });
  const { value, contentType, tags, notBefore, expiresOn } = previousVersion;
  const version = { value, contentType, tags, notBefore, expiresOn };
  const written = await auditedEffect(context, "rotation.secretPutBack", details, () =>
    vault.write(secretName, version),
  );
  await savePublication(context, publication, {
    state: "restored",
    restoredVersion: written.version,
    restoredAt: context.now().toISOString(),
  });
}

async function requirePreviousVersion(context: StepContext, publication: Publication, version: string) {
  const previousVersion = await openVault(context, publication).read(publication.secretName, version);
  if (previousVersion) return previousVersion;
  throw new NeedsAttention(
    "previousVersionGone",
    `The version ${version} that ${placeOf(publication)} had before no longer exists.`,
    "The new value stays there. Finish the rotation, or write the value you want and cancel again.",
  );
}

/**
 * Tests whether the previous value still works, before it is restored.
 *
 * @throws {ContinueLater} after an unclear answer or one of the first rejections; {NeedsAttention} after `MIN_TESTS` rejections: a
 * value that no longer works would cause an outage.
 */
async function requireValid(context: StepContext, publication: Publication, value: string): Promise<void> {
  const issuer = issuerOf(context.record);
  const result = await issuer.testValue(context, value);
  if (result === "accepted") return;
  // Counts the starts of the step, also those for other places: a place may be tested fewer times.
  const tries = context.record.steps.find(({ name }) => name === "putBack")?.attempts ?? 0;
  if (tries < MIN_TESTS || result === "unclear") throw new ContinueLater(RETRY_SECONDS);
  throw new NeedsAttention(
    "previousValueDead",
    `The previous value of ${placeOf(publication)} is no longer valid, so it was not restored.`,
    `The new ${issuer.noun} works and stays there. Finish the rotation with force, or write a value that works and retry.`,
  );
}

/** Has the issuer remove the new credential if nothing uses it. @throws {ContinueLater} while that is not certain. */
export const removeNew = (context: StepContext): Promise<void> =>
  issuerOf(context.record).restore(context, () => consumersOfNewValue(context));
