import { type Compliance, createCompliance } from "../../shared/compliance/compliance.ts";
import { createInventory, type Inventory } from "../../shared/inventory/inventory.ts";
import { createInventoryWriter, type InventoryWriter } from "../../shared/inventory/write.ts";
import type { AutomationServices } from "./automation.ts";
import type { Platform } from "./platform.ts";

/** The inventory of assets (secrets, keys and certificates), and their compliance. */
export interface InventoryServices {
  compliance: Compliance;
  writer: InventoryWriter;
  inventory: Inventory;
}

/** @param automation - Returns services that are created after these. It is called when compliance is evaluated. */
export function createInventoryServices(
  platform: Platform,
  automation: () => Pick<AutomationServices, "dependencies" | "logs">,
): InventoryServices {
  const { config, clock, randomness, log, tables, queues, settings, audit, licensed, keyVaults } = platform;
  const ownerTag = config.OWNER_TAG;
  const compliance = createCompliance({
    tables,
    queues,
    settings,
    audit,
    licensed,
    references: async (vaultName) => [
      ...(await automation().dependencies.references.ofVault(vaultName)),
      ...(await automation().logs.unused.usesOf(vaultName)),
    ],
    ownerTag,
    clock,
    randomness,
    log,
  });
  settings.onChange((keys) => compliance.policyChanged(keys));
  const writer = createInventoryWriter({ tables, clock });
  const inventory = createInventory({
    tables,
    settings,
    clock,
    randomness,
    ownerTag,
    licensed,
    writer,
    keyVaults,
    prepareVaultRemoval: (vault) => compliance.prepareChange({ vault, vaultBefore: vault, vaultGone: true }),
  });
  return { compliance, writer, inventory };
}
