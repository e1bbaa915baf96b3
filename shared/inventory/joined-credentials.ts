import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type AssetPlace, type AssetRecord, Assets, credentialIds, otherNamesOf } from "./asset.ts";
import { namePrefix, partitions } from "./asset-keys.ts";

/**
 * Returns the asset of which this credential is another entry: the asset of a token-signing certificate stands for all its
 * entries in the directory, which earlier versions stored as assets. Undefined for any other place. One request for the
 * credentials of the application.
 */
export async function assetWithEntry(place: AssetPlace, tables: Tables): Promise<AssetRecord | undefined> {
  const { type, vaultName } = place;
  const name = place.name.toLowerCase();
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
