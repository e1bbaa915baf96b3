import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, usesIn } from "./finder.ts";
import { unlessManagedHsm } from "./key-vault-names.ts";

/**
 * Finds the keys that encrypt the databases of SQL servers. The key's URL always has a version. With automatic rotation, the
 * server uses a new version within a day nevertheless (`usesNewestVersion`). The encryption protector, which names the key, is
 * not in Resource Graph.
 *
 * subscription-reading.ts calls `find` for each server that Resource Graph returns.
 */
export const sqlServer: Finder = {
  types: ["microsoft.sql/servers"],
  childTypes: ["microsoft.sql/servers/encryptionprotector"],
  kind: () => "sqlServer",
  // Resource Graph does not return the needed properties, so none are queried.
  properties: "none",

  async find(row, { names, sql, signal }) {
    const { serverKeyType, uri, autoRotationEnabled } = await sql.encryptionProtector(row.id, signal);
    if (serverKeyType !== "AzureKeyVault") return { uses: [] };
    const refresh = { how: "automatic", slowestSeconds: DAY_SECONDS } as const;
    const location = {
      evidence: "encryptionProtector",
      text: unlessManagedHsm(uri),
      refresh,
      usesNewestVersion: autoRotationEnabled,
    };
    return usesIn(row, [location], names.ofUrl);
  },
};
