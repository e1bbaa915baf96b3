import * as z from "zod";
import { type Encoded, encoded, type Operation, putEncoded, remove } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { expiryKey, nameKey } from "./layout.ts";

/** One asset that differs: `before` as the vault's rows have it, `after` as it should be. */
export interface AssetChange {
  type: AssetType;
  name: string;
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/**
 * An index entry that a worker announced before it wrote it. The expiry is in unix seconds. `mark` says how the asset was
 * then: null where it was not there; workers of earlier versions announced none.
 */
export const PendingEntry = z.tuple([
  z.enum(ASSET_TYPES),
  z.string(),
  z.number().nullable(),
  z.string().nullable().optional(),
]);
export type PendingEntry = z.infer<typeof PendingEntry>;

/** One asset's change of its rows: what stands there now (or may), and what should. */
export interface RowChange {
  /** The expiry values under which rows may stand that must go. */
  staleExpiries: (number | undefined)[];
  type: AssetType;
  name: string;
  vaultName: string;
  /** The asset as it should stand; undefined to remove it. */
  asset: AssetRecord | undefined;
  /** How it was as the vault's rows have it. */
  mark: string | null;
  /** The asset as its rows hold it, once the first partition has been written; of very many it is not kept. */
  encoded?: Encoded;
}

/** Encoded assets that are kept for the next partition, some kilobytes each. */
const MOST_KEPT = 5_000;

/** The first characters of an asset's content hash: enough to tell one state of it from the next. */
const contentMark = (asset: AssetRecord | undefined): string | null => asset?.content.slice(0, 8) ?? null;

const changeKey = (type: AssetType, name: string): string => `${type}!${name.toLowerCase()}`;

/**
 * The changes, and beside them the assets that only a dead worker announced: nobody knows of such an asset, so it is gone,
 * and whoever was told of it must be told that.
 */
export function withAnnounced(changes: AssetChange[], pending: PendingEntry[]): AssetChange[] {
  if (pending.length === 0) return changes;
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
    rows.set(changeKey(type, name), { type, name, vaultName, asset: after, staleExpiries, mark: contentMark(before) });
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
    ...rows.map(
      ({ type, name, asset, mark }): PendingEntry => [type, name.toLowerCase(), asset?.expiresOn ?? null, mark],
    ),
  ];
}

/** What a work changed, as people see it. */
export interface NetChange {
  kind: "added" | "updated" | "removed";
  type: AssetType;
  name: string;
  /** Only where it is known how the asset was: a worker that died may have written some of its rows before. */
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/** What differs from how the assets were before the first worker, of those that died too, wrote anything of this. */
export function netChanges(changes: readonly AssetChange[], pending: readonly PendingEntry[]): NetChange[] {
  const announced = new Map<string, string | null>();
  for (const [type, name, , mark] of pending) {
    const key = changeKey(type, name);
    if (mark !== undefined && !announced.has(key)) announced.set(key, mark);
  }
  return changes.flatMap(({ type, name, before, after }): NetChange[] => {
    const [known, is] = [contentMark(before), contentMark(after)];
    const first = announced.get(changeKey(type, name));
    const was = first === undefined ? known : first;
    if (was === is) return [];
    const kind = was === null ? "added" : is === null ? "removed" : "updated";
    return [{ kind, type, name, before: was === known ? before : undefined, after }];
  });
}

/**
 * The steps that bring one partition from any state a dead worker may have left to the wanted one. The row by name comes
 * last, since the next worker compares with that one: until it is written, everything before it is done again.
 */
export function* rowOperations(changes: readonly RowChange[]): Generator<Operation> {
  for (const change of changes) {
    const { type, name, vaultName, asset, staleExpiries } = change;
    const wanted = asset && expiryKey(type, asset.expiresOn, name, vaultName);
    const stale = new Set(staleExpiries.map((expiry) => expiryKey(type, expiry, name, vaultName)));
    if (wanted) stale.delete(wanted);
    for (const key of stale) yield remove(Assets, key);
    if (asset && wanted) {
      const key = nameKey(type, name, vaultName);
      const row = change.encoded ?? encoded(Assets, key, asset);
      if (changes.length <= MOST_KEPT) change.encoded = row;
      yield putEncoded(row, wanted);
      yield putEncoded(row, key);
    } else {
      yield remove(Assets, nameKey(type, name, vaultName));
    }
  }
}
