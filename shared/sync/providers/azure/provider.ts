import type { ProviderDefinition } from "../provider.ts";
import { AzureConfiguration } from "./configuration.ts";
import { maxBytes, nameProblem, regionProblem, sameName } from "./names.ts";
import { azureTarget } from "./target.ts";

export const azure: ProviderDefinition = {
  id: "azure",
  title: "Azure Key Vault",
  configuration: AzureConfiguration,
  secretMembers: [],
  addressMembers: [],
  placeMembers: [],
  services: { keyvault: { nameProblem, sameName, maxBytes, marks: true } },
  regionProblem,
  /** Does nothing: each record names its own vault. */
  check: async () => {},
  open: (_to, _settings, _secrets, { vaultSecrets }) => azureTarget(vaultSecrets),
};
