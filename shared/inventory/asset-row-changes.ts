import * as z from "zod";
import { type Encoded, encoded, type Operation, putEncoded, remove } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { announcedKeys, indexKeys, nameKey } from "./asset-keys.ts";

/**
 * Derives the table operations of changed assets. The operations also repair the rows that a crashed worker may have written
 * only in part.
 */

/** A changed asset: `before` as stored in the vault's partition, `after` as it should be. */
export interface AssetChange {
  type: AssetType;
  name: string;
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/**
 * An index entry that a worker announces before it writes the entry, as the tuple `[type, name, expiry, hashBefore]`. `expiry` is in
 * unix seconds, null for none. A certificate with a renewal plan has a second entry, with the negative of the time at which it
 * needs attention. Earlier versions accept the second entry: for them it means a row that does not exist. `hashBefore` identifies
 * the asset's stored state at that time (`shortHash`): null if the asset did not exist. Earlier versions did not write it.
 */
export const PendingEntry = z.tuple([
  z.enum(ASSET_TYPES),
  z.string(),
  z.number().nullable(),
  z.string().nullable().optional(),
]);
export type PendingEntry = z.infer<typeof PendingEntry>;

/** The change of one asset's rows: their possible current keys and the wanted state. */
export interface RowChange {
  /** Keys of rows that may exist and must be removed, unless the wanted asset has them. */
  staleKeys: string[];
  type: AssetType;
  name: string;
  vaultName: string;
  /** The wanted asset. Undefined to remove it. */
  asset: AssetRecord | undefined;
  /** Identifies the asset's stored state in the vault's partition (`shortHash`). Null if it is not stored. */
  hashBefore: string | null;
  /** The encoded asset, cached after the first partition is written. Not cached for very large changes. */
  encoded?: Encoded;
}

/** Maximum number of changes whose encoded assets, some kilobytes each, are cached for the next partition. */
const MAX_CACHED = 5_000;

/** The first characters of an asset's content hash, enough to distinguish one state from the next. */
const shortHash = (asset: AssetRecord | undefined): string | null => asset?.content.slice(0, 8) ?? null;

const changeKey = (type: AssetType, name: string): string => `${type}!${name.toLowerCase()}`;

/**
 * Returns the changes plus removals of assets that only a crashed worker announced. Other modules may have been notified of
 * such an asset, so they must be notified of its removal.
 */
export function withAnnouncedRemovals(changes: AssetChange[], pending: PendingEntry[]): AssetChange[] {
  if (pending.length === 0) return changes;
  const all = new Map(changes.map((change) => [changeKey(change.type, change.name), change]));
  for (const [type, name] of pending) {
    const key = changeKey(type, name);
    if (!all.has(key)) all.set(key, { type, name, before: undefined, after: undefined });
  }
  return [...all.values()];
}

/** Returns the row changes of these assets. Index entries may exist for their previous state and for announced entries. */
export function rowChanges(vaultName: string, changes: AssetChange[], pending: PendingEntry[]): RowChange[] {
  const rows = new Map<string, RowChange>();
  for (const { type, name, before, after } of changes) {
    const staleKeys = before ? indexKeys({ ...before, type, name }, vaultName) : [];
    rows.set(changeKey(type, name), { type, name, vaultName, asset: after, staleKeys, hashBefore: shortHash(before) });
  }
  for (const [type, name, expiry] of pending) {
    rows.get(changeKey(type, name))?.staleKeys.push(...announcedKeys(type, expiry, name, vaultName));
  }
  return [...rows.values()];
}

/** Returns all index entries by expiry that may exist while these rows are being written. */
export function pendingEntries(rows: RowChange[], alreadyAnnounced: PendingEntry[]): PendingEntry[] {
  return [
    ...alreadyAnnounced,
    ...rows.flatMap(({ type, name, asset, hashBefore }): PendingEntry[] => {
      const entry: PendingEntry = [type, name.toLowerCase(), asset?.expiresOn ?? null, hashBefore];
      return asset?.renewal ? [entry, [type, name.toLowerCase(), -asset.renewal.attentionAt, hashBefore]] : [entry];
    }),
  ];
}

/** A change as shown to users. */
export interface NetChange {
  kind: "added" | "updated" | "removed";
  type: AssetType;
  name: string;
  /** Set only if the previous state is certain: a crashed worker may have written some of the rows before. */
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/** Returns the changes relative to the state before the first worker, including crashed ones, wrote any of them. */
export function netChanges(changes: readonly AssetChange[], pending: readonly PendingEntry[]): NetChange[] {
  const announced = new Map<string, string | null>();
  for (const [type, name, , hashBefore] of pending) {
    const key = changeKey(type, name);
    if (hashBefore !== undefined && !announced.has(key)) announced.set(key, hashBefore);
  }
  return changes.flatMap(({ type, name, before, after }): NetChange[] => {
    const [stored, wanted] = [shortHash(before), shortHash(after)];
    // The first announcement names the state before any worker wrote. Without one, the stored state is the original.
    const firstAnnounced = announced.get(changeKey(type, name));
    const original = firstAnnounced === undefined ? stored : firstAnnounced;
    if (original === wanted) return [];
    const kind = original === null ? "added" : wanted === null ? "removed" : "updated";
    return [{ kind, type, name, before: original === stored ? before : undefined, after }];
  });
}

/**
 * Returns the operations that bring one partition from any state that a crashed worker may have left to the wanted state. The
 * row by name is last, because the next worker compares with that row: until it is written, the next worker repeats all
 * operations.
 */
export function* rowOperations(changes: readonly RowChange[]): Generator<Operation> {
  for (const change of changes) {
    const { type, name, vaultName, asset, staleKeys } = change;
    const wantedKeys = asset ? indexKeys({ ...asset, type, name }, vaultName) : [];
    const stale = new Set(staleKeys);
    for (const key of wantedKeys) stale.delete(key);
    for (const key of stale) yield remove(Assets, key);
    if (asset) {
      const key = nameKey(type, name, vaultName);
      const row = change.encoded ?? encoded(Assets, key, asset);
      if (changes.length <= MAX_CACHED) change.encoded = row;
      for (const wantedKey of wantedKeys) yield putEncoded(row, wantedKey);
      yield putEncoded(row, key);
    } else {
      yield remove(Assets, nameKey(type, name, vaultName));
    }
  }
}
