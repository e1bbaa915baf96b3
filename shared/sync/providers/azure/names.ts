/** Largest value, 25 KB: https://learn.microsoft.com/azure/key-vault/secrets/about-secrets */
export const maxBytes = 25_600;

/**
 * Names of secrets:
 * https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates#objects-identifiers-and-versioning
 */
const SECRET_NAME = /^[0-9a-zA-Z-]{1,127}$/;
/**
 * Names of vaults: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftkeyvault
 */
const VAULT_NAME = /^[a-z][a-z0-9-]{1,22}[a-z0-9]$/i;

export const nameProblem = (name: string): string | undefined =>
  SECRET_NAME.test(name) ? undefined : "must be 1 to 127 letters, digits and hyphens";

/** Key Vault ignores case. */
export const comparableName = (name: string): string => name.toLowerCase();

/** The region of a target in Azure is the name of its vault. */
export const regionProblem = (vault: string | undefined): string | undefined =>
  vault !== undefined && VAULT_NAME.test(vault) ? undefined : "must be the name of the key vault to write to";
