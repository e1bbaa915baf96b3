import * as z from "zod";
import { type AssetRecord, titleOfCredential } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";

/**
 * Data of a failing asset that lists of violations and remediations need in addition to its name. It is stored with the
 * findings, so that no list reads the inventory. Every member may be absent, because rows of earlier versions have none.
 */
export const AssetFacts = z.object({
  /** Named owners. */
  owners: z.array(z.string()).optional(),
  keyType: z.string().optional(),
  /** Start of its validity in unix seconds: its activation, else its creation. */
  from: z.int().optional(),
  /** Title of a directory's credential for people. */
  credentialTitle: z.string().optional(),
  /** True for a credential of a service principal instead of an application. */
  servicePrincipal: z.boolean().optional(),
});
export type AssetFacts = z.infer<typeof AssetFacts>;

/**
 * Limits for owners and their length: an application may have hundreds of owners, tags are user input, and a row contains
 * thousands of assets.
 */
const MAX_OWNERS = 3;
const MAX_OWNER_CHARACTERS = 128;
const MAX_TITLE_CHARACTERS = 100;

/** Returns owners in the form in which they are stored and compared with a filter. */
export const ownerText = (owner: string): string => owner.slice(0, MAX_OWNER_CHARACTERS);
export const keptOwners = (owners: readonly string[]): string[] => owners.slice(0, MAX_OWNERS).map(ownerText);

/** @param ownerTag - The tag that names the owner of a vault or an asset. */
export function assetFactsOf(asset: AssetRecord, ownerTag: string): AssetFacts | undefined {
  const owners = keptOwners(ownersOf(asset, ownerTag));
  const from = asset.notBefore ?? asset.createdOn;
  // Members in the order of the schema, so that data that is read and written again has the same hash.
  const facts: AssetFacts = {
    ...(owners.length > 0 && { owners }),
    ...(asset.keyType !== undefined && { keyType: asset.keyType }),
    ...(from !== undefined && { from }),
    ...(asset.credential && { credentialTitle: titleOfCredential(asset.credential).slice(0, MAX_TITLE_CHARACTERS) }),
    ...(asset.credential?.of === "servicePrincipal" && { servicePrincipal: true }),
  };
  return Object.keys(facts).length > 0 ? facts : undefined;
}
