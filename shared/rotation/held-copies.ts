import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { isVaultSecret, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

const CONTENT_TYPE = "application/vnd.credential-lifecycle.rotation-secret";

/**
 * Returns the name of a held copy: the secret in the service's own key vault that stores a new value until the rotation ends. A
 * rotation has one for each credential that its issuer created. The rotation of a vault secret, which has no key ID, has one.
 * Names of resource keys, such as `Primary Read Only`, can contain characters that names of vault secrets can't.
 */
export const heldCopyName = (rotationId: string, keyId = "value"): string =>
  `rotation-${rotationId}-${keyId.replaceAll(/[^0-9A-Za-z-]/g, "-")}`;

/**
 * Stores the held copy of a new value that an issuer created.
 *
 * @param tags - Tags of the issuer, which name the credential.
 */
export async function holdValue(
  { record: { rotationId }, deps }: StepContext,
  keyId: string,
  value: string,
  tags: Record<string, string>,
): Promise<void> {
  const allTags = { "rotation-id": rotationId, ...tags };
  await deps.serviceVault.writeSecret(heldCopyName(rotationId, keyId), value, CONTENT_TYPE, allTags);
}

/** Stores the held copy of the value that a vault secret will get. */
export async function holdVaultSecret(serviceVault: ServiceKeyVault, rotationId: string, value: string): Promise<void> {
  await serviceVault.writeSecret(heldCopyName(rotationId), value, CONTENT_TYPE, { "rotation-id": rotationId });
}

/**
 * Returns the names of the held copies that a rotation deletes when it ends. A copy with `isValueKept` stays: it has the value of
 * the application's only valid client secret.
 */
export const heldCopyNames = (record: RotationRecord): string[] =>
  isVaultSecret(record)
    ? [heldCopyName(record.rotationId)]
    : record.attempts.flatMap(({ keyId, copyId = keyId, isValueKept }) =>
        copyId === undefined || isValueKept ? [] : [heldCopyName(record.rotationId, copyId)],
      );

/** Returns the new value; undefined when the held copy was deleted. */
export async function readHeldCopy(context: StepContext): Promise<string | undefined> {
  const { record, deps } = context;
  if (isVaultSecret(record)) return await deps.serviceVault.readSecret(heldCopyName(record.rotationId));
  const { newKeyId } = record;
  if (newKeyId === undefined) return undefined;
  const copyId = record.attempts.findLast(({ keyId }) => keyId === newKeyId)?.copyId ?? newKeyId;
  return await readHeldValue(context, copyId);
}

/**
 * Returns the value of a credential that this rotation created; undefined for other credentials, and if the held copy was
 * deleted.
 */
export const readHeldValue = (
  { record, deps }: Pick<StepContext, "record" | "deps">,
  keyId: string,
): Promise<string | undefined> => deps.serviceVault.readSecret(heldCopyName(record.rotationId, keyId));
