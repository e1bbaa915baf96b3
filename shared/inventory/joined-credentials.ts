import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type AssetLocation, type AssetRecord, Assets, credentialIds, otherNamesOf } from "./asset.ts";
import { namePrefix, partitions } from "./asset-keys.ts";

/**
 * Returns the asset of a token-signing certificate. The directory has several entries for such a certificate, and the service
 * stores one asset for all of them. Earlier versions stored an asset for each entry, so alerts and exemptions may name an asset
 * that no longer exists. Sends one request for the credentials of the application.
 *
 * @param location - The location at which an earlier version stored another entry of the certificate.
 * @returns undefined if no stored certificate has such an entry.
 */
export async function assetWithEntry(location: AssetLocation, tables: Tables): Promise<AssetRecord | undefined> {
  const { type, vaultName } = location;
  const name = location.name.toLowerCase();
  const appId = credentialIds(name)?.appId;
  if (type !== "certificate" || appId === undefined) return undefined;
  const prefix = `${namePrefix(type)}${appId}-`;
  const range = { partitionKey: partitions.vault(vaultName), from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(Assets, range)) {
    const asset = rows.find((row) => otherNamesOf(row).includes(name));
    if (asset) return asset;
  }
  return undefined;
}
