import type { InventoryUpdates } from "../../inventory-updates.ts";
import { clientSecretOf, type RotationRecord, type StepName } from "../../rotation.ts";

/**
 * Steps after which the inventory reads the application, because they add or remove client secrets. `makeRoom` removes an expired
 * secret. `cleanUp` removes secrets that failed attempts left behind.
 */
const APPLICATION_STEPS: readonly StepName[] = ["makeRoom", "create", "revoke", "removeNew", "cleanUp"];

/** Requests that the inventory reads the application again after a step that changed its client secrets. */
export async function updateInventory(
  inventory: InventoryUpdates,
  record: RotationRecord,
  step: StepName,
): Promise<void> {
  if (!APPLICATION_STEPS.includes(step)) return;
  // With a single attempt, its secret is the new one, so `cleanUp` had no secret to remove.
  if (step === "cleanUp" && record.attempts.length < 2) return;
  const { appId, objectId, oldKeyId } = clientSecretOf(record);
  await inventory.applicationChanged({
    appId,
    objectId,
    ...(step === "create" && { added: record.newKeyId }),
    ...(step === "revoke" && { removed: oldKeyId }),
  });
}
