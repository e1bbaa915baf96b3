import * as z from "zod";
import { HOUR_SECONDS } from "../../platform/time.ts";
import { type Finder, propertiesOf, usesIn } from "./finder.ts";
import { unlessManagedHsm } from "./key-vault-names.ts";

const properties = z.object({
  activeKey: z.object({ keyUrl: z.string().nullish() }).nullish(),
  rotationToLatestKeyVersionEnabled: z.boolean().nullish(),
});

/**
 * Finds keys of disk encryption sets. The key's version is always named. With automatic rotation a new version is used within
 * an hour: https://learn.microsoft.com/azure/virtual-machines/disk-encryption
 */
export const diskEncryptionSet: Finder = {
  types: ["microsoft.compute/diskencryptionsets"],
  kind: () => "diskEncryptionSet",
  properties: "namingVault",

  find(row, { names }) {
    const { activeKey, rotationToLatestKeyVersionEnabled: follows } = propertiesOf(row, properties);
    const refresh = { how: "automatic", slowestSeconds: HOUR_SECONDS } as const;
    return usesIn(
      row,
      [{ evidence: "activeKey", text: unlessManagedHsm(activeKey?.keyUrl), refresh, follows }],
      names.ofUrl,
    );
  },
};
