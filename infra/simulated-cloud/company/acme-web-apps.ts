// Helpers that declare web apps with Key Vault references in every valid spelling.

import type { AssetKind } from "./company.ts";
import type { CompanyChild, CompanyResource } from "./resources.ts";

/** Returns the name of an enabled secret, key or certificate of a vault. The same position returns the same name. */
export type NamePicker = (vault: string, position?: number, kind?: AssetKind) => string;

/** The valid spellings of a Key Vault reference. */
export const referenceByName = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(VaultName=${vault};SecretName=${secret})`;
export const referenceByUri = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret}/)`;
export const referenceWithoutSlash = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret})`;
export const referenceWithSpaces = (vault: string, secret: string): string =>
  `@microsoft.keyvault( VaultName=${vault} ; SecretName=${secret} )`;
export const pinnedReference = (vault: string, secret: string): string =>
  `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/${secret}/{version:${vault}/secrets/${secret}})`;

/** Declares a web app. `more` adds or replaces members. */
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
