import type { CompanyResource } from "../company/resources.ts";

// Generates web apps by number, for benchmarks with many resources (`generate.sites` of a company). They are not stored until
// they change.

/** Managed identity of the generated sites. It can read the vaults of their subscription. */
export const SITES_IDENTITY = "id-bench";

/** Number of resource groups over which the sites are distributed. */
const RESOURCE_GROUPS = 20;

const siteName = (index: number) => `app-bench-${String(index).padStart(6, "0")}`;

/** Returns a generated site. Two of three sites have a reference to a secret of one of the subscription's vaults. */
export function generatedSite(index: number, vaults: readonly string[]): CompanyResource & { resourceGroup: string } {
  const vault = vaults[index % vaults.length];
  return {
    type: "Microsoft.Web/sites",
    name: siteName(index),
    resourceGroup: `rg-bench-${String(index % RESOURCE_GROUPS).padStart(2, "0")}`,
    kind: index % 4 === 0 ? "functionapp" : "app",
    tags: { env: index % 2 === 0 ? "prod" : "test" },
    identity: { user: [SITES_IDENTITY] },
    properties: { state: "Running", enabled: true, keyVaultReferenceIdentity: `{identity:${SITES_IDENTITY}}` },
    settings: {
      REGION: "westeurope",
      ...(vault !== undefined &&
        index % 3 !== 2 && {
          DB_PASSWORD: `@Microsoft.KeyVault(SecretUri={uri:${vault}}/secrets/secret-${String(index % 50).padStart(6, "0")}/)`,
        }),
    },
  };
}

/** Returns the number of a generated site. Undefined when the ID is not one of the `count` sites. */
export function generatedSiteIndex(id: string, count: number): number | undefined {
  const digits = /\/resourcegroups\/rg-bench-(\d\d)\/providers\/microsoft\.web\/sites\/app-bench-(\d{6})$/i.exec(id);
  const index = Number(digits?.[2] ?? Number.NaN);
  return index < count && index % RESOURCE_GROUPS === Number(digits?.[1]) ? index : undefined;
}
