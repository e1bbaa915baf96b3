import * as z from "zod";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";
import { ofVaultId } from "./key-vault-names.ts";

const properties = z.object({ keyVault: z.string().nullish() });

/** Finds vaults of Machine Learning workspaces. Each workspace has its own vault for the secrets of its connections. */
export const machineLearning: Finder = {
  types: ["microsoft.machinelearningservices/workspaces"],
  kind: () => "machineLearning",
  properties: "namingVault",

  find(row) {
    const { keyVault } = propertiesOf(row, properties);
    return usesIn(row, [{ evidence: "keyVault", text: keyVault, refresh: { how: "blind" } }], ofVaultId);
  },
};
