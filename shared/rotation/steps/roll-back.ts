import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import { auditedEffect } from "../audited-effect.ts";
import { lastingFailure } from "../end-conditions.ts";
import { heldValue } from "../held-copies.ts";
import { inspectPlace, placeOf, savePublication, vaultOf } from "../publications.ts";
import { clientSecretOf, isVaultSecret, type Publication } from "../rotation.ts";
import type { StepContext } from "../step-context.ts";
import { ContinueLater, NeedsAttention } from "../step-errors.ts";
import { mayHoldNewValue } from "../transitions.ts";
import { reconcile } from "./attempts.ts";
import { consumersOfNewValue } from "./refresh-consumers.ts";
import { requireNotHeld } from "./remove-secret.ts";

/** After this time a write without an answer has arrived or never will. */
const LATE_WRITE_MS = 2 * MINUTE_MS;
const TRIES = 5;
const AGAIN_SECONDS = 15;

/** Restores the previous value of the place that was written last. @throws {Later} while places remain. */
export async function restorePlaces(context: StepContext): Promise<void> {
  const left = context.record.publications.filter(mayHoldNewValue);
  const last = left.at(-1);
  if (last === undefined) return;
  await restorePlace(context, last);
  if (left.length > 1) throw new ContinueLater(0);
}

async function restorePlace(context: StepContext, publication: Publication): Promise<void> {
  const { state, writtenAt = "", vaultName, secretName, plannedVersion } = publication;
  const wait = Date.parse(writtenAt) + LATE_WRITE_MS - context.now().getTime();
  if (state === "writing" && wait > 0) throw new ContinueLater(Math.ceil(wait / SECOND_MS));
  const vault = vaultOf(context, publication);
  if (plannedVersion === undefined) {
    // An earlier worker crashed after it disabled the version. The value of a disabled version can't be read.
    const [newest] = await vault.versions(secretName);
    if (newest?.enabled === false && newest.tags["rotation-id"] === context.record.rotationId)
      return await savePublication(context, publication, { state: "restored" });
  }
  const { holds, current } = await inspectPlace(context, publication, await heldValue(context));
  const restoredAt = context.now().toISOString();
  if (holds === "planned") return await savePublication(context, publication, { state: "restored", restoredAt });
  const before = plannedVersion === undefined ? undefined : await previous(context, publication, plannedVersion);
  if (holds === "other") {
    // Either the answer of an earlier write was lost, or another writer changed the place.
    const restored = state === "restoring" && before !== undefined && current?.value === before.value;
    const restoredVersion = current?.version;
    return await savePublication(context, publication, {
      state: restored ? "restored" : "left",
      restoredVersion,
      restoredAt,
    });
  }
  const details = { vaultName, secretName, version: plannedVersion };
  if (before === undefined) {
    const { version } = current!;
    await auditedEffect(context, "rotation.secretPutBack", details, () => vault.enable(secretName, version, false));
    return await savePublication(context, publication, { state: "restored" });
  }
  if (!isVaultSecret(context.record)) await requireSignIn(context, publication, before.value);
  await savePublication(context, publication, { state: "restoring" });
  const { value, contentType, tags, notBefore, expiresOn } = before;
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

async function previous(context: StepContext, publication: Publication, version: string) {
  const before = await vaultOf(context, publication).read(publication.secretName, version);
  if (before) return before;
  throw new NeedsAttention(
    "previousVersionGone",
    `The version ${version} that ${placeOf(publication)} had before no longer exists.`,
    "The new value stays there. Finish the rotation, or write the value you want and cancel again.",
  );
}

/** @throws {NeedsPerson} if the value does not sign in: restoring it would cause an outage. */
async function requireSignIn(context: StepContext, publication: Publication, value: string): Promise<void> {
  const { kind } = await context.deps.signIn(clientSecretOf(context.record).appId, value);
  if (kind === "accepted") return;
  const tries = context.record.steps.find(({ name }) => name === "putBack")?.attempts ?? 0;
  if (tries < TRIES || kind === "unclear") throw new ContinueLater(AGAIN_SECONDS);
  throw new NeedsAttention(
    "previousValueDead",
    `The previous value of ${placeOf(publication)} does not sign in anymore, so it was not restored.`,
    "The new client secret works and stays there. Finish the rotation with force, or write a value that works and retry.",
  );
}

/** Removes the new secret once no place stores it. @throws {Later} while it may still appear somewhere. */
export async function removeNewSecret(context: StepContext): Promise<void> {
  const { newKeyId, objectId } = context.record;
  // Checked before the secret is marked for removal: until then a user can still finish the rotation.
  if (newKeyId !== undefined) {
    const app = await context.deps.graph.application({ objectId: objectId! });
    // A place that can't be read for long does not stop the rollback. The secret then stays.
    if (app !== undefined)
      await requireNotHeld(context, app, newKeyId).catch((error: unknown) => void lastingFailure(context, error));
  }
  const users = await consumersOfNewValue(context);
  await context.save(({ attempts, notes, newKeyId }) => ({
    attempts: attempts.map((one) =>
      one.state === "made" ? { ...one, state: users.length > 0 ? "left" : "discarding" } : one,
    ),
    ...(users.length > 0 && { notes: [...notes, leftText(newKeyId ?? "", users)] }),
  }));
  await reconcile(context, { final: true });
}

const leftText = (keyId: string, users: readonly string[]): string =>
  `The new client secret ${keyId} was not removed, because the service can't see that these consumers have the old value again: ${users.join(", ")}. Remove it once they have.`;
