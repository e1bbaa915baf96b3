import type { ServiceKeyVault } from "../platform/azure/service-key-vault.ts";
import { clientSecretOf, isVaultSecret, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";

const CONTENT_TYPE = "application/vnd.credential-lifecycle.rotation-secret";

/**
 * Returns the name of a held copy: the secret in the service's own key vault that stores a new value until the rotation ends.
 * There is one for each client secret that was created, or one for the new value of a vault secret, which has no key ID.
 */
export const heldCopyName = (rotationId: string, keyId = "value"): string => `rotation-${rotationId}-${keyId}`;

/** Stores the held copy of a new client secret, because Entra returns the value only once. */
export async function holdClientSecret({ record, deps }: StepContext, keyId: string, value: string): Promise<void> {
  const { rotationId } = record;
  const tags = { "rotation-id": rotationId, "entra-app-id": clientSecretOf(record).appId, "entra-key-id": keyId };
  await deps.serviceVault.writeSecret(heldCopyName(rotationId, keyId), value, CONTENT_TYPE, tags);
}

/** Stores the held copy of the value that a vault secret will get. */
export async function holdVaultSecret(own: ServiceKeyVault, rotationId: string, value: string): Promise<void> {
  await own.writeSecret(heldCopyName(rotationId), value, CONTENT_TYPE, { "rotation-id": rotationId });
}

/** Returns the names of the held copies that a rotation deletes when it ends. */
export const heldCopyNames = (record: RotationRecord): string[] =>
  isVaultSecret(record)
    ? [heldCopyName(record.rotationId)]
    : record.attempts.flatMap(({ keyId, isValueKept }) =>
        keyId === undefined || isValueKept ? [] : [heldCopyName(record.rotationId, keyId)],
      );

/** Returns the new value; undefined when the held copy was deleted. */
export async function readHeldCopy(context: StepContext): Promise<string | undefined> {
  const { record, deps } = context;
  if (isVaultSecret(record)) return await deps.serviceVault.readSecret(heldCopyName(record.rotationId));
  return record.newKeyId === undefined ? undefined : await readHeldClientSecret(context, record.newKeyId);
}

/**
 * Returns the value of a client secret that this rotation created; undefined for other secrets, and if the held copy was
 * deleted.
 */
export const readHeldClientSecret = ({ record, deps }: StepContext, keyId: string): Promise<string | undefined> =>
  deps.serviceVault.readSecret(heldCopyName(record.rotationId, keyId));
