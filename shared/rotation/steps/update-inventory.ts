import type { InventoryUpdates } from "../inventory-updates.ts";
import { issuerOf } from "../issuers/issuers.ts";
import { isVaultSecret, type RotationRecord, type StepName } from "../rotation.ts";

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
  if (!isVaultSecret(record)) await issuerOf(record).updateInventory?.(inventory, record, step);
}
