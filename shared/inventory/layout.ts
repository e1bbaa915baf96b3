import { type Operation, put, remove } from "../storage/tables.ts";
import { type AssetRecord, Assets, type AssetType } from "./asset.ts";
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

export const namePrefix = (type: AssetType): string => `n!${type}!`;
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

/** One asset's change of its rows: what stands there now (or may), and what should. */
export interface RowChange {
  /** The expiry values under which rows may stand that must go. */
  staleExpiries: (number | undefined)[];
  type: AssetType;
  name: string;
  vaultName: string;
  /** The asset as it should stand; undefined to remove it. */
  asset: AssetRecord | undefined;
}

/**
 * The steps that bring one partition from any state a dead worker may have left to the wanted one. The row by name comes
 * last, since the next worker compares with that one: until it is written, everything before it is done again.
 */
export function* rowOperations(changes: Iterable<RowChange>): Generator<Operation> {
  for (const { type, name, vaultName, asset, staleExpiries } of changes) {
    const wanted = asset && expiryKey(type, asset.expiresOn, name, vaultName);
    const stale = new Set(staleExpiries.map((expiry) => expiryKey(type, expiry, name, vaultName)));
    if (wanted) stale.delete(wanted);
    for (const key of stale) yield remove(Assets, key);
    if (asset && wanted) {
      yield put(Assets, wanted, asset);
      yield put(Assets, nameKey(type, name, vaultName), asset);
    } else {
      yield remove(Assets, nameKey(type, name, vaultName));
    }
  }
}
