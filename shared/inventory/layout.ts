import { keyEnd } from "../platform/storage/keys.ts";
import { fenceEntity } from "../platform/storage/tables.ts";
import { Assets, type AssetType } from "./asset.ts";
import { END_OF_TIME } from "./health.ts";

/**
 * Where an asset stands: in three partitions (all, its subscription, its vault), in each once by name and once by
 * expiry. `!` separates the parts since it sorts before every character of a Key Vault name, so that names sort whole.
 */
export const partitions = {
  all: "all",
  subscription: (id: string): string => `sub:${id.toLowerCase()}`,
  vault: (name: string): string => `vault:${name.toLowerCase()}`,
};

/** Ten digits hold every expiry until the year 2286, later ones count as the last; "no expiry" sorts behind them. */
const NO_EXPIRY = "~";
const expiryText = (expiresOn: number | undefined): string =>
  expiresOn === undefined ? NO_EXPIRY : boundText(Math.min(expiresOn, END_OF_TIME - 1));
/** The text of a bound, which may also lie behind the last expiry a key can hold. */
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

/** Row key bounds of a range of expiry in seconds. */
export const expiryBounds = (type: AssetType, from: number, before: number, unset: boolean) => ({
  from: expiryPrefix(type) + boundText(from),
  // Everything with an expiry sorts before "~", everything without one after it and before "~~".
  before: expiryPrefix(type) + (unset ? `${NO_EXPIRY}${NO_EXPIRY}` : boundText(before)),
});

/** Where a vault's fence stands in each of its partitions: behind every `e!` and before every `n!`, in no list's range. */
const FENCE = "f!";
export const fenceKey = (vaultName: string): string => `${FENCE}${vaultName.toLowerCase()}`;
export const fenceRange = (partitionKey: string) => ({ partitionKey, from: FENCE, before: keyEnd(FENCE) });
export const vaultOfFence = (rowKey: string): string => rowKey.slice(FENCE.length);
export const AssetFences = fenceEntity(Assets.table);
