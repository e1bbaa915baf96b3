import { DAY_SECONDS } from "../../platform/time.ts";
import { type Finder, usesIn } from "./finder.ts";
import { unlessManagedHsm } from "./key-vault-names.ts";

/**
 * Finds keys of SQL servers whose databases are encrypted with a vault's key. The version is always named. With automatic
 * rotation a new one is used within a day. The protector is not in Resource Graph.
 */
export const sqlServer: Finder = {
  types: ["microsoft.sql/servers"],
  parts: ["microsoft.sql/servers/encryptionprotector"],
  kind: () => "sqlServer",
  properties: "none",

  async find(row, { names, sql, signal }) {
    const { serverKeyType, uri, autoRotationEnabled } = await sql.encryptionProtector(row.id, signal);
    if (serverKeyType !== "AzureKeyVault") return { uses: [] };
    const refresh = { how: "automatic", slowestSeconds: DAY_SECONDS } as const;
    const place = {
      evidence: "encryptionProtector",
      text: unlessManagedHsm(uri),
      refresh,
      follows: autoRotationEnabled,
    };
    return usesIn(row, [place], names.ofUrl);
  },
};
