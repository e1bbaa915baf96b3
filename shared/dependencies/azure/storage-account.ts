import * as z from "zod";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";
import { ASSET_NAME, type KeyVaultNames, type NamedAsset, unlessManagedHsm } from "./key-vault-names.ts";

const text = z.string().nullish();
const keyVault = z.object({ keyname: text, keyversion: text, keyvaulturi: text });
const properties = z.object({
  encryption: z.object({ keySource: text, keyvaultproperties: keyVault.nullish() }).nullish(),
});

/**
 * Finds keys that encrypt storage accounts. An account whose key has no version checks for a new version every day.
 *
 * subscription-reading.ts calls `find` for each account that Resource Graph returns.
 */
export const storageAccount: Finder = {
  types: ["microsoft.storage/storageaccounts"],
  kind: () => "storageAccount",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  find(row, { names }) {
    const { encryption } = propertiesOf(row, properties);
    const refresh = { how: "automatic", slowestSeconds: DAY_SECONDS } as const;
    const key = /^microsoft\.keyvault$/i.test(encryption?.keySource ?? "") ? encryption?.keyvaultproperties : undefined;
    const location = {
      evidence: "encryption.keyvaultproperties",
      text: unlessManagedHsm(key?.keyvaulturi) && key,
      refresh,
    };
    return usesIn(row, [location], (given) => keyOf(given as z.infer<typeof keyVault>, names));
  },
};

function keyOf(
  { keyname: name, keyversion: version, keyvaulturi }: z.infer<typeof keyVault>,
  names: KeyVaultNames,
): NamedAsset | undefined {
  const vault = names.ofVaultUrl(keyvaulturi);
  if (!vault || !name || !ASSET_NAME.test(name)) return undefined;
  return { ...vault, type: "key", name, ...(version && { version }) };
}
