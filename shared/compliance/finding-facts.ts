import * as z from "zod";
import { type AssetRecord, titleOfCredential } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import { RENEWERS } from "../inventory/renewal.ts";
import { isPubliclyTrusted } from "./public-certificates.ts";

/**
 * Data of a failing asset that lists of violations and remediations need in addition to its name. It is stored with the asset's
 * failed results, so that a list need not read the inventory. Every member may be absent, because earlier versions stored none.
 */
export const AssetFacts = z.object({
  /** Owners by the asset's tag, or the application's owners. */
  owners: z.array(z.string()).optional(),
  keyType: z.string().optional(),
  /** Start of the asset's validity in Unix seconds: its activation, or else its creation. */
  from: z.int().optional(),
  /** Readable title of an application credential: the application's and the credential's name. */
  credentialTitle: z.string().optional(),
  /** True for a credential of a service principal instead of an application. */
  servicePrincipal: z.boolean().optional(),
  /** True for a publicly trusted certificate. */
  publiclyTrusted: z.boolean().optional(),
  /** Who renews a certificate. */
  renewedBy: z.enum(RENEWERS).optional(),
});
export type AssetFacts = z.infer<typeof AssetFacts>;

/**
 * Limits that keep rows small: an application may have hundreds of owners, tags are user input, and a row contains thousands of
 * assets.
 */
const MAX_OWNERS = 3;
const MAX_OWNER_CHARACTERS = 128;
const MAX_TITLE_CHARACTERS = 100;

/** Returns an owner in the form that is stored, and that a filter is compared with. */
export const storedOwnerText = (owner: string): string => owner.slice(0, MAX_OWNER_CHARACTERS);
export const storedOwners = (owners: readonly string[]): string[] => owners.slice(0, MAX_OWNERS).map(storedOwnerText);

/**
 * Returns the data to store with the asset's failed results. Undefined if there is none.
 *
 * @param ownerTag - The tag that names the owner of a vault or an asset.
 */
export function assetFactsOf(asset: AssetRecord, ownerTag: string): AssetFacts | undefined {
  const owners = storedOwners(ownersOf(asset, ownerTag));
  const from = asset.notBefore ?? asset.createdOn;
  // Members are in the order of the schema. So data that was read from storage gives the same hash as new data.
  const facts: AssetFacts = {
    ...(owners.length > 0 && { owners }),
    ...(asset.keyType !== undefined && { keyType: asset.keyType }),
    ...(from !== undefined && { from }),
    ...(asset.credential && { credentialTitle: titleOfCredential(asset.credential).slice(0, MAX_TITLE_CHARACTERS) }),
    ...(asset.credential?.of === "servicePrincipal" && { servicePrincipal: true }),
    ...(asset.type === "certificate" && isPubliclyTrusted(asset) && { publiclyTrusted: true }),
    ...(asset.renewal && { renewedBy: asset.renewal.renewedBy }),
  };
  return Object.keys(facts).length > 0 ? facts : undefined;
}
