import { CloudFailure, unlessMissing } from "../platform/azure/failure.ts";
import { readHeldClientSecret, readHeldCopy } from "./held-copies.ts";
import { signInUnclear } from "./problems.ts";
import { openVault } from "./publications.ts";
import { isVaultSecret, type Publication } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/**
 * Returns the new value of a rotation, or undefined if the value is lost. Reads it from the held copy (the copy in the
 * service's own vault), or for a client secret also from a place that this rotation wrote. An ended rotation has no held copy,
 * which matters if its row is restored from a backup.
 */
export async function readNewValue(context: StepContext): Promise<string | undefined> {
  const { record } = context;
  if (isVaultSecret(record)) return await readHeldCopy(context);
  return record.newKeyId === undefined ? undefined : await readCreatedSecret(context, record.newKeyId);
}

/**
 * Returns the value of a client secret that this rotation created, from the held copy or a place. Does not store a held copy
 * again, because Key Vault reserves the name of a deleted secret while it can be recovered.
 *
 * @throws {CloudFailure} if a place can't be read, or a sign-in that decides gives no clear answer.
 */
export async function readCreatedSecret(context: StepContext, keyId: string): Promise<string | undefined> {
  const heldCopy = await readHeldClientSecret(context, keyId);
  if (heldCopy !== undefined) return heldCopy;
  for (const publication of context.record.publications) {
    const value = await readValueAtPlace(context, publication, keyId);
    if (value !== undefined) return value;
  }
  return undefined;
}

/** Returns the value of a place if the tags name this client secret and the value signs in. Other writers can set tags. */
async function readValueAtPlace(
  context: StepContext,
  publication: Publication,
  keyId: string,
): Promise<string | undefined> {
  const { deps, record } = context;
  const current = await readEnabledVersion(context, publication);
  const { "rotation-id": rotationId, "entra-key-id": taggedKeyId } = current?.tags ?? {};
  if (current === undefined || rotationId !== record.rotationId || taggedKeyId !== keyId) return undefined;
  const { kind } = await deps.signIn(record.appId!, current.value);
  if (kind === "unclear") throw signInUnclear(record.appId!);
  return kind === "accepted" ? current.value : undefined;
}

/** Returns the current version of a place; undefined if there is none or it is disabled. */
export async function readEnabledVersion(context: StepContext, publication: Publication) {
  try {
    return await unlessMissing(openVault(context, publication).read(publication.secretName));
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "disabled") return undefined;
    throw error;
  }
}
