import * as z from "zod";
import { HOUR_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";
import { unlessManagedHsm } from "./key-vault-names.ts";

const properties = z.object({
  activeKey: z.object({ keyUrl: z.string().nullish() }).nullish(),
  rotationToLatestKeyVersionEnabled: z.boolean().nullish(),
});

/**
 * Finds keys of disk encryption sets. The key's URL always has a version. With automatic rotation, the set uses a new
 * version within an hour nevertheless (`usesNewestVersion`): https://learn.microsoft.com/azure/virtual-machines/disk-encryption
 *
 * subscription-reading.ts calls `find` for each set that Resource Graph returns.
 */
export const diskEncryptionSet: Finder = {
  types: ["microsoft.compute/diskencryptionsets"],
  kind: () => "diskEncryptionSet",
  // Only resources whose properties name a vault are queried.
  properties: "namingVault",

  find(row, { names }) {
    const { activeKey, rotationToLatestKeyVersionEnabled: usesNewestVersion } = propertiesOf(row, properties);
    const refresh = { how: "automatic", slowestSeconds: HOUR_SECONDS } as const;
    return usesIn(
      row,
      [{ evidence: "activeKey", text: unlessManagedHsm(activeKey?.keyUrl), refresh, usesNewestVersion }],
      names.ofUrl,
    );
  },
};
