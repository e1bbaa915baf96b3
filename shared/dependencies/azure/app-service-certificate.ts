import * as z from "zod";
import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf } from "./finder.ts";
import { ASSET_NAME, ofVaultId } from "./key-vault-names.ts";

const text = z.string().nullish();
const properties = z.object({ keyVaultId: text, keyVaultSecretName: text, keyVaultSecretStatus: text });

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

  find(row) {
    const { keyVaultId, keyVaultSecretName: name, keyVaultSecretStatus: status } = propertiesOf(row, properties);
    const vault = ofVaultId(keyVaultId);
    if (!vault || !name || !ASSET_NAME.test(name)) return { uses: [] };
    return {
      uses: [
        {
          asset: { vaultName: vault.vaultName, type: "secret", name },
          evidence: "keyVaultSecretName",
          refresh: { how: "automatic", slowestSeconds: DAY_SECONDS },
          ...(status && { state: { resolved: RESOLVED.has(status), status } }),
        },
      ],
    };
  },
};
