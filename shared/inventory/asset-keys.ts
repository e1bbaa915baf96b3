import { keyEnd } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import { Assets, type AssetType } from "./asset.ts";
import { END_OF_TIME } from "./asset-status.ts";

/**
 * Row keys of assets. An asset is in three partitions (all, its subscription, its vault), in each once by name and once by
 * expiry in unix seconds:
 * - `n!secret!db-password!kv-payments`
 * - `e!secret!1767225600!db-password!kv-payments`, or `e!secret!~!db-password!kv-payments` without an expiry
 *
 * `!` separates the parts because it sorts before every character of a Key Vault name, so that whole names are compared.
 */
export const partitions = {
  all: "all",
  subscription: (id: string): string => `sub:${id.toLowerCase()}`,
  vault: (name: string): string => `vault:${name.toLowerCase()}`,
};

/** Ten digits are enough until the year 2286; later expiries count as the last second. "No expiry" sorts after them. */
const NO_EXPIRY = "~";
const expiryText = (expiresOn: number | undefined): string =>
  expiresOn === undefined ? NO_EXPIRY : boundText(Math.min(expiresOn, END_OF_TIME - 1));
/** Returns the text of a bound, which may be later than the last expiry a key can contain. */
const boundText = (instant: number): string => String(Math.min(Math.max(instant, 0), END_OF_TIME)).padStart(10, "0");

/** Prefix of the row keys that sort by name, of assets and of vaults. */
export const NAME_PREFIX = "n!";
/** The range of all rows of a partition, by name. */
export const nameRange = (partitionKey: string) => ({ partitionKey, from: NAME_PREFIX, before: keyEnd(NAME_PREFIX) });
export const namePrefix = (type: AssetType): string => `${NAME_PREFIX}${type}!`;
export const expiryPrefix = (type: AssetType): string => `e!${type}!`;

export const nameKey = (type: AssetType, name: string, vault: string): string =>
  `${namePrefix(type)}${name.toLowerCase()}!${vault.toLowerCase()}`;

export const expiryKey = (type: AssetType, expiresOn: number | undefined, name: string, vault: string): string =>
  `${expiryPrefix(type)}${expiryText(expiresOn)}!${name.toLowerCase()}!${vault.toLowerCase()}`;

/** Returns the row key bounds of a range of expiries in seconds. */
export const expiryBounds = (type: AssetType, from: number, before: number, unset: boolean) => ({
  from: expiryPrefix(type) + boundText(from),
  // Keys with an expiry sort before "~". Keys without one sort after it and before "~~".
  before: expiryPrefix(type) + (unset ? `${NO_EXPIRY}${NO_EXPIRY}` : boundText(before)),
});

/**
 * Row key of a vault's fence in each of its partitions: after every `e!` and before every `n!`, in no list's range. A fence is
 * a row whose ETag each write of the vault's rows requires, so that late requests of a crashed worker fail (vault-claim.ts).
 */
const FENCE = "f!";
export const fenceKey = (vaultName: string): string => `${FENCE}${vaultName.toLowerCase()}`;
export const fenceRange = (partitionKey: string) => ({ partitionKey, from: FENCE, before: keyEnd(FENCE) });
export const vaultOfFence = (rowKey: string): string => rowKey.slice(FENCE.length);
export const AssetFences = fenceEntity(Assets.table);
