import { type AssetRecord, Assets } from "../inventory/asset.ts";
import { nameKey, nameRange, partitions } from "../inventory/asset-keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { assetKeyOf } from "./evaluate.ts";

/** Returns all assets of a vault in the inventory, by `assetKey`. One request per 1,000. */
export async function readAssetsOfVault(tables: Tables, vaultName: string): Promise<Map<string, AssetRecord>> {
  const assets = new Map<string, AssetRecord>();
  const range = nameRange(partitions.vault(vaultName));
  for await (const rows of tables.pages(Assets, range)) for (const row of rows) assets.set(assetKeyOf(row), row);
  return assets;
}

/** Returns the given assets of a vault (`<type>.<name>`) that exist. One request each, all at once, so callers pass few keys. */
export async function readAssetsByKey(
  tables: Tables,
  vaultName: string,
  keys: readonly string[],
): Promise<Map<string, AssetRecord>> {
  const rows = await Promise.all(
    keys.map((key) => {
      const [type, name] = [key.slice(0, key.indexOf(".")) as AssetRecord["type"], key.slice(key.indexOf(".") + 1)];
      return tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName));
    }),
  );
  return new Map(rows.filter((row) => row !== undefined).map((row) => [assetKeyOf(row), row]));
}
