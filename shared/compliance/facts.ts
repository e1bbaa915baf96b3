import * as z from "zod";
import { type AssetRecord, titleOfCredential } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";

/**
 * What lists of violations and remedies need of an asset that fails a check, beside its name. It stands in its findings, so
 * that no list reads the inventory. Rows of earlier versions have none: every member may be absent.
 */
export const AssetFacts = z.object({
  /** Who is named as its owner. */
  owners: z.array(z.string()).optional(),
  keyType: z.string().optional(),
  /** Unix seconds since when it is valid: its activation, else its creation. */
  from: z.int().optional(),
  /** What people call a directory's credential. */
  credentialTitle: z.string().optional(),
  /** A credential of a service principal, not of an application. */
  servicePrincipal: z.boolean().optional(),
});
export type AssetFacts = z.infer<typeof AssetFacts>;

/** An application may have hundreds, and who writes a tag can write what they like: a row holds thousands of assets. */
const MAX_OWNERS = 3;
const MAX_OWNER_CHARACTERS = 128;
const MAX_TITLE_CHARACTERS = 100;

/** Owners as they are kept, and as one that is asked for is compared with them. */
export const ownerText = (owner: string): string => owner.slice(0, MAX_OWNER_CHARACTERS);
export const keptOwners = (owners: readonly string[]): string[] => owners.slice(0, MAX_OWNERS).map(ownerText);

/** @param ownerTag - The tag that names a vault's or an asset's owner. */
export function assetFactsOf(asset: AssetRecord, ownerTag: string): AssetFacts | undefined {
  const owners = keptOwners(ownersOf(asset, ownerTag));
  const from = asset.notBefore ?? asset.createdOn;
  // The members in the order of the schema: what is written and read again has the same hash.
  const facts: AssetFacts = {
    ...(owners.length > 0 && { owners }),
    ...(asset.keyType !== undefined && { keyType: asset.keyType }),
    ...(from !== undefined && { from }),
    ...(asset.credential && { credentialTitle: titleOfCredential(asset.credential).slice(0, MAX_TITLE_CHARACTERS) }),
    ...(asset.credential?.of === "servicePrincipal" && { servicePrincipal: true }),
  };
  return Object.keys(facts).length > 0 ? facts : undefined;
}
