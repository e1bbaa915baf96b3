import * as z from "zod";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf, servableHosts } from "./finder.ts";
import { ASSET_NAME, ofVaultId } from "./key-vault-names.ts";

const text = z.string().nullish();
const properties = z.object({
  keyVaultId: text,
  keyVaultSecretName: text,
  keyVaultSecretStatus: text,
  thumbprint: text,
});

const states = z
  .array(z.object({ name: z.string(), sslState: text, thumbprint: text }).catch({ name: "" }))
  .nullish()
  .catch([]);
const siteRow = z.object({ hosts: states });

/** Adds the host names of a row of `SITE_HOSTS` to the host names by thumbprint. Skips a row that does not match. */
export function addSiteHosts(found: unknown, hosts: Map<string, string[]>): void {
  for (const { name, sslState, thumbprint } of siteRow.safeParse(found).data?.hosts ?? []) {
    if (!thumbprint || name === "" || sslState === "Disabled") continue;
    const key = thumbprint.toUpperCase();
    const known = hosts.get(key);
    if (known) known.push(name);
    else hosts.set(key, [name]);
  }
}

/**
 * Healthy values of `KeyVaultSecretStatus`. The other values name a problem.
 * https://learn.microsoft.com/rest/api/appservice/certificates
 */
const RESOLVED = new Set(["Initialized", "Succeeded", "WaitingOnCertificateOrder"]);

/**
 * Finds certificates that App Service imported from a key vault. App Service reads a new version within a day.
 *
 * subscription-reading.ts calls `find` for each certificate that Resource Graph returns.
 */
export const appServiceCertificate: Finder = {
  types: ["microsoft.web/certificates"],
  kind: () => "appServiceCertificate",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  async find(row, { hostsServing }) {
    const found = propertiesOf(row, properties);
    const { keyVaultId, keyVaultSecretName: name, keyVaultSecretStatus: status, thumbprint } = found;
    const vault = ofVaultId(keyVaultId);
    if (!vault || !name || !ASSET_NAME.test(name)) return { uses: [] };
    const hosts = thumbprint ? servableHosts(await hostsServing(thumbprint)) : [];
    return {
      uses: [
        {
          asset: { vaultName: vault.vaultName, type: "secret", name },
          evidence: "keyVaultSecretName",
          refresh: { how: "automatic", slowestSeconds: DAY_SECONDS },
          ...(status && { state: { resolved: RESOLVED.has(status), status } }),
          ...(hosts.length > 0 && { hosts }),
        },
      ],
    };
  },
};
