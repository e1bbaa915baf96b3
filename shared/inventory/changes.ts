import { type Operation, put, remove } from "../storage/tables.ts";
import { type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { expiryKey, nameKey } from "./layout.ts";

/** One asset that differs: `before` as the vault's rows have it, `after` as it should be. */
export interface AssetChange {
  type: AssetType;
  name: string;
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/** An index entry that a worker announced before it wrote it. The expiry is in unix seconds. */
export type PendingEntry = [type: AssetType, name: string, expiresOn: number | null];

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

const changeKey = (type: AssetType, name: string): string => `${type}!${name.toLowerCase()}`;

/**
 * The changes, and beside them the assets that only a dead worker announced: nobody knows of such an asset, so it is gone,
 * and whoever was told of it must be told that.
 */
export function withAnnounced(changes: AssetChange[], pending: PendingEntry[]): AssetChange[] {
  const all = new Map(changes.map((change) => [changeKey(change.type, change.name), change]));
  for (const [type, name] of pending) {
    const key = changeKey(type, name);
    if (!all.has(key)) all.set(key, { type, name, before: undefined, after: undefined });
  }
  return [...all.values()];
}

/** The row changes of these assets. Index entries may stand for what they were before, and for what was announced. */
export function rowChanges(vaultName: string, changes: AssetChange[], pending: PendingEntry[]): RowChange[] {
  const rows = new Map<string, RowChange>();
  for (const { type, name, before, after } of changes) {
    const staleExpiries = before ? [before.expiresOn] : [];
    rows.set(changeKey(type, name), { type, name, vaultName, asset: after, staleExpiries });
  }
  for (const [type, name, expiresOn] of pending) {
    rows.get(changeKey(type, name))?.staleExpiries.push(expiresOn ?? undefined);
  }
  return [...rows.values()];
}

/** All index entries by expiry that may stand once these rows begin to be written. */
export function pendingEntries(rows: RowChange[], earlier: PendingEntry[]): PendingEntry[] {
  return [
    ...earlier,
    ...rows.map(({ type, name, asset }): PendingEntry => [type, name.toLowerCase(), asset?.expiresOn ?? null]),
  ];
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
