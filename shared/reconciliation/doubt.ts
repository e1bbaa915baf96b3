import type { AssetType } from "../inventory/asset.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { NAME_PREFIX } from "../inventory/layout.ts";
import type { Entity, Row } from "../platform/storage/entity.ts";
import { type Range, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";

/** Something that looked wrong once. A scan may have been writing, so it is looked at again before it counts. */
export type Doubt = { readonly vault: string } & (
  | { readonly about: "row"; readonly partitionKey: string; readonly key: string }
  /** The fingerprints or packed expiries in the vault's row. */
  | { readonly about: "listings" }
  /** The copy of the vault's row under this key. */
  | { readonly about: "copy"; readonly key: string }
  /** The vault's own row can't be read. */
  | { readonly about: "vault" }
  | { readonly about: "compliance" }
);

/** An index row's key in its parts. */
export interface IndexKey {
  readonly kind: "name" | "expiry";
  readonly type: AssetType;
  readonly name: string;
  readonly vault: string;
  /** Unix seconds, as far as the key tells; undefined for none, and of a row by name. */
  readonly expiresOn: number | undefined;
}

const TYPES = ASSET_TYPES.join("|");
const NAME = "([a-z0-9-]{1,127})";
const BY_NAME = new RegExp(`^n!(${TYPES})!${NAME}!${NAME}$`);
const BY_EXPIRY = new RegExp(`^e!(${TYPES})!(\\d{10}|~)!${NAME}!${NAME}$`);

/** Undefined for a key that no asset can have. */
export function parseIndexKey(key: string): IndexKey | undefined {
  const byName = BY_NAME.exec(key);
  if (byName) {
    const [, type, name, vault] = byName as unknown as [string, AssetType, string, string];
    return { kind: "name", type, name, vault, expiresOn: undefined };
  }
  const byExpiry = BY_EXPIRY.exec(key);
  if (!byExpiry) return undefined;
  const [, type, expiry, name, vault] = byExpiry as unknown as [string, AssetType, string, string, string];
  return { kind: "expiry", type, name, vault, expiresOn: expiry === "~" ? undefined : Number(expiry) };
}

/** All index rows of a partition, by expiry and by name, lie in this range; other kinds of rows between them are no concern. */
export const indexRange = (partitionKey: string): Range => ({ partitionKey, from: "e!", before: 'n"' });
export const isIndexKey = (rowKey: string): boolean => rowKey.startsWith(NAME_PREFIX) || rowKey.startsWith("e!");

/** A doubt about an index row, filed under the vault its key names; under none where it names none. */
export const rowDoubt = (partitionKey: string, key: string): Doubt => ({
  about: "row",
  vault: parseIndexKey(key)?.vault ?? "",
  partitionKey,
  key,
});

/** A row that may be missing or unreadable. */
export interface Standing<T> {
  readonly row: Row<T> | undefined;
  /** Where the row is there but does not fit: what it takes to remove just this state of it. */
  readonly unreadable: { readonly etag: string } | undefined;
}

export async function readStanding<T>(
  tables: Tables,
  entity: Entity<T>,
  partitionKey: string,
  rowKey: string,
): Promise<Standing<T>> {
  try {
    return { row: await tables.get(entity, partitionKey, rowKey), unreadable: undefined };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { row: undefined, unreadable: { etag: error.etag } };
  }
}
