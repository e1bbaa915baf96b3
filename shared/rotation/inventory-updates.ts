import { clientSecretOf, isVaultSecret, type RotationRecord, type StepName } from "./rotation.ts";

/**
 * Keeps the inventory current during rotations. After each step that changed an application or a vault, the inventory reads
 * that one application or vault again, and does not wait for the next discovery or scan.
 */
export interface InventoryUpdates {
  /** Requests that the inventory reads an application again. Safe to repeat. */
  applicationChanged(application: ChangedApplication): Promise<void>;
  /** Requests that the inventory reads a vault again. Safe to repeat. */
  vaultChanged(vaultName: string): Promise<void>;
}

/** An application whose client secrets a rotation changed. */
export interface ChangedApplication {
  /** Client ID and object ID. */
  appId: string;
  objectId: string;
  /** Key ID of a client secret that was added. A read that does not show the secret is older than the change. */
  added?: string | undefined;
  /** Key ID of a client secret that was removed. A read that still shows the secret is older than the change. */
  removed?: string | undefined;
}

/**
 * Steps after which the inventory reads the application, because they add or remove client secrets. `makeRoom` removes an expired
 * one, and `cleanUp` those that failed attempts to add one left behind.
 */
const APPLICATION_STEPS: readonly StepName[] = ["makeRoom", "create", "revoke", "removeNew", "cleanUp"];
/** Steps after which the inventory reads the vaults that the rotation wrote. `putBack` restores them in a rollback. */
const PLACE_STEPS: readonly StepName[] = ["publish", "putBack"];

/** Requests the updates of the inventory that follow from a step. Called before the step is stored as done. */
export async function updateInventory(
  inventory: InventoryUpdates,
  record: RotationRecord,
  step: StepName,
): Promise<void> {
  if (PLACE_STEPS.includes(step)) {
    for (const vaultName of new Set(record.publications.map((place) => place.vaultName.toLowerCase())))
      await inventory.vaultChanged(vaultName);
  }
  if (!APPLICATION_STEPS.includes(step) || isVaultSecret(record)) return;
  // The only attempt added the new client secret itself, so none was left behind.
  if (step === "cleanUp" && record.attempts.length < 2) return;
  const { appId, objectId, oldKeyId } = clientSecretOf(record);
  await inventory.applicationChanged({
    appId,
    objectId,
    ...(step === "create" && { added: record.newKeyId }),
    ...(step === "revoke" && { removed: oldKeyId }),
  });
}
