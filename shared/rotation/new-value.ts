import { CloudFailure, unlessMissing } from "../platform/azure/failure.ts";
import { heldClientSecret, heldValue } from "./held-copies.ts";
import { signInUnclear } from "./problems.ts";
import { vaultOf } from "./publications.ts";
import { isVaultSecret, type Publication } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

/**
 * Returns the new value, or undefined if it is lost. A client secret is read from the held copy or from a place that this
 * rotation wrote, a vault secret's value only from the held copy. A rotation deletes the held copy when it ends, so the copy is
 * missing if the rotation's row was restored from a backup.
 */
export async function newValue(context: StepContext): Promise<string | undefined> {
  const { record } = context;
  if (isVaultSecret(record)) return await heldValue(context);
  return record.newKeyId === undefined ? undefined : await newValueOf(context, record.newKeyId);
}

/**
 * Returns the value of a client secret that this rotation created, like `newValue`. A value found at a place is not copied to
 * the service's vault again, because the name of a deleted copy stays reserved while Key Vault can recover it.
 *
 * @throws {CloudFailure} if a place can't be read, or a sign-in that decides gives no clear answer.
 */
export async function newValueOf(context: StepContext, keyId: string): Promise<string | undefined> {
  const held = await heldClientSecret(context, keyId);
  if (held !== undefined) return held;
  for (const publication of context.record.publications) {
    const value = await valueWrittenTo(context, publication, keyId);
    if (value !== undefined) return value;
  }
  return undefined;
}

/** Other writers can set tags, so the value must also sign in. */
async function valueWrittenTo(
  context: StepContext,
  publication: Publication,
  keyId: string,
): Promise<string | undefined> {
  const { deps, record } = context;
  const current = await readEnabled(context, publication);
  const { "rotation-id": rotationId, "entra-key-id": taggedKeyId } = current?.tags ?? {};
  if (current === undefined || rotationId !== record.rotationId || taggedKeyId !== keyId) return undefined;
  const { kind } = await deps.signIn(record.appId!, current.value);
  if (kind === "unclear") throw signInUnclear(record.appId!);
  return kind === "accepted" ? current.value : undefined;
}

/** Returns the current version of a place; undefined if there is none or it is disabled. */
export async function readEnabled(context: StepContext, publication: Publication) {
  try {
    return await unlessMissing(vaultOf(context, publication).read(publication.secretName));
  } catch (error) {
    if (error instanceof CloudFailure && error.code === "disabled") return undefined;
    throw error;
  }
}
