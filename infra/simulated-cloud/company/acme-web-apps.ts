import type { AssetKind } from "./company.ts";
import type { CompanyChild, CompanyResource } from "./resources.ts";

/** Returns the name of an enabled secret, key or certificate. The same position returns the same name. */
export type Pick = (vault: string, place?: number, kind?: AssetKind) => string;

/** The valid spellings of a Key Vault reference. */
export const named = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(VaultName=${vault};SecretName=${secret})`;
export const byUri = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret}/)`;
export const withoutSlash = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret})`;
export const loosely = (vault: string, secret: string): string =>
  `@microsoft.keyvault( VaultName=${vault} ; SecretName=${secret} )`;
export const pinned = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret}/{version:${vault}/secrets/${secret}})`;

export function webApp(
  name: string,
  settings: Record<string, string>,
  more: Partial<CompanyChild> = {},
): CompanyResource {
  return {
    type: "Microsoft.Web/sites",
    name,
    kind: "app,linux",
    identity: { system: true },
    properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: "SystemAssigned" },
    settings: { WEBSITE_TIME_ZONE: "W. Europe Standard Time", ...settings },
    ...more,
  };
}
