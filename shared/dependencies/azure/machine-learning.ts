import * as z from "zod";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";
import { ofVaultId } from "./key-vault-names.ts";

const properties = z.object({ keyVault: z.string().nullish() });

/**
 * Finds vaults of Machine Learning workspaces. Each workspace has its own vault for the secrets of its connections.
 *
 * subscription-reading.ts calls `find` for each workspace that Resource Graph returns. `blind` means that the service
 * can't observe when the resource loads a new version.
 */
export const machineLearning: Finder = {
  types: ["microsoft.machinelearningservices/workspaces"],
  kind: () => "machineLearning",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  find(row) {
    const { keyVault } = propertiesOf(row, properties);
    return usesIn(row, [{ evidence: "keyVault", text: keyVault, refresh: { how: "blind" } }], ofVaultId);
  },
};
