import type { ProviderDefinition } from "../provider.ts";
import { AzureConfiguration } from "./configuration.ts";
import { comparableName, maxBytes, nameProblem, regionProblem } from "./names.ts";
import { azureTarget } from "./target.ts";

/**
 * Azure as a provider of sync targets: secrets of other key vaults. `addressMembers` decide where the credentials are sent, and
 * `locationMembers` which target a name refers to. Targets store a mark, which shows their source version.
 */
export const azure: ProviderDefinition = {
  id: "azure",
  title: "Azure Key Vault",
  configuration: AzureConfiguration,
  secretMembers: [],
  addressMembers: [],
  locationMembers: [],
  services: { keyvault: { nameProblem, comparableName, maxBytes, storesMark: true } },
  regionProblem,
  /** Does nothing: each record names its own vault. */
  check: async () => {},
  open: (_to, _settings, _secrets, { vaultSecrets }) => azureTarget(vaultSecrets),
};
