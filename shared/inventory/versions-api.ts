import * as z from "zod";
import { toInstant } from "./api.ts";
import type { AssetVersions as FoundVersions } from "./versions.ts";

/** Schemas and views of an asset's versions in the API. */

const instant = z.iso.datetime().nullable();

export const AssetVersions = z
  .object({
    assetId: z.string(),
    versions: z
      .array(
        z
          .object({
            version: z.string(),
            enabled: z.boolean(),
            createdOn: instant,
            updatedOn: instant,
            notBefore: instant,
            expiresOn: instant,
          })
          .meta({ id: "AssetVersion" }),
      )
      .meta({ description: "Versions, newest first, up to 500." }),
    complete: z.boolean().meta({ description: "False when the asset has more than 500 versions." }),
  })
  .meta({ id: "AssetVersions" });

export const versionsView = (
  assetId: string,
  { versions, complete }: FoundVersions,
): z.infer<typeof AssetVersions> => ({
  assetId: assetId.toLowerCase(),
  versions: versions.map(({ version, enabled, createdOn, updatedOn, notBefore, expiresOn }) => ({
    version,
    enabled,
    createdOn: toInstant(createdOn),
    updatedOn: toInstant(updatedOn),
    notBefore: toInstant(notBefore),
    expiresOn: toInstant(expiresOn),
  })),
  complete,
});
