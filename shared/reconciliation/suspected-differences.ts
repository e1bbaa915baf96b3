import type { AssetType } from "../inventory/asset.ts";
import { ASSET_TYPES } from "../inventory/asset.ts";
import { NAME_PREFIX } from "../inventory/asset-keys.ts";
import type { Entity, Row } from "../platform/storage/entity.ts";
import { type Range, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";

/**
 * A suspected difference between stored rows of a vault. It may be the effect of a write in progress, so it is checked again
 * before it is repaired. `about` says what differs; `row` stands for a row of an asset, by name or by expiry.
 */
export type SuspectedDifference = { readonly vault: string } & (
  | { readonly about: "row"; readonly partitionKey: string; readonly key: string }
  /** The fingerprints or packed expiries in the vault's row. */
  | { readonly about: "listings" }
  /** The copy of the vault's row under this key. */
  | { readonly about: "copy"; readonly key: string }
  /** The vault's own row can't be read. */
  | { readonly about: "vault" }
  /** The compliance results of the vault. */
  | { readonly about: "compliance" }
);

/** The parts of an index row's key. */
export interface IndexKey {
  readonly kind: "name" | "expiry";
  readonly type: AssetType;
  readonly name: string;
  readonly vault: string;
  /**
   * Unix seconds. Undefined for no expiry, and for a row by name. Negative for the time at which a certificate needs attention
   * (`announcedKeys`).
   */
  readonly expiresOn: number | undefined;
}

/** Row keys of assets: `n!secret!password!kv-payments` by name, `e!secret!1795000000!password!kv-payments` by expiry. */
const TYPES = ASSET_TYPES.join("|");
const NAME = "([a-z0-9-]{1,127})";
const BY_NAME = new RegExp(`^n!(${TYPES})!${NAME}!${NAME}$`);
const BY_EXPIRY = new RegExp(`^e!(${TYPES})!(\\d{10}|~)!${NAME}!${NAME}$`);
/** Certificates with a renewal plan: by expiry, and by the time at which they need attention. */
const BY_RENEWAL = new RegExp(`^e!certificate-(renewed|late)!(\\d{10})!${NAME}!${NAME}$`);

/** Parses the key of an asset's row. Undefined for a key that no asset can have. */
export function parseIndexKey(key: string): IndexKey | undefined {
  const byName = BY_NAME.exec(key);
  if (byName) {
    const [, type, name, vault] = byName as unknown as [string, AssetType, string, string];
    return { kind: "name", type, name, vault, expiresOn: undefined };
  }
  const byRenewal = BY_RENEWAL.exec(key);
  if (byRenewal) {
    const [, index, time, name, vault] = byRenewal as unknown as [string, string, string, string, string];
    const expiresOn = index === "late" ? -Number(time) : Number(time);
    return { kind: "expiry", type: "certificate", name, vault, expiresOn };
  }
  const byExpiry = BY_EXPIRY.exec(key);
  if (!byExpiry) return undefined;
  const [, type, expiry, name, vault] = byExpiry as unknown as [string, AssetType, string, string, string];
  return { kind: "expiry", type, name, vault, expiresOn: expiry === "~" ? undefined : Number(expiry) };
}

/**
 * Returns the range of all rows of assets in a partition, by expiry (`e!`) and by name (`n!`, before `n"`, the next character).
 * The vaults' fences (`f!`) between them are skipped.
 */
export const indexRange = (partitionKey: string): Range => ({
  partitionKey,
  from: "e!",
  before: 'n"',
  only: (rowKey) => rowKey.startsWith(NAME_PREFIX) || rowKey.startsWith("e!"),
});

/**
 * Returns the suspected difference of an asset's row, with the vault from its key. The vault is empty if the key is invalid.
 */
export const suspectedRow = (partitionKey: string, key: string): SuspectedDifference => ({
  about: "row",
  vault: parseIndexKey(key)?.vault ?? "",
  partitionKey,
  key,
});

/** A row that may be missing or unreadable. */
export interface RowOrCorrupt<T> {
  readonly row: Row<T> | undefined;
  /** The ETag with which to remove an unreadable row. */
  readonly unreadable: { readonly etag: string } | undefined;
}

/** Reads a row. A row that can't be read is returned as such, not thrown. */
export async function readRowOrCorrupt<T>(
  tables: Tables,
  entity: Entity<T>,
  partitionKey: string,
  rowKey: string,
): Promise<RowOrCorrupt<T>> {
  try {
    return { row: await tables.get(entity, partitionKey, rowKey), unreadable: undefined };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { row: undefined, unreadable: { etag: error.etag } };
  }
}
