import pMap from "p-map";
import { fingerprint } from "../inventory/asset.ts";
import { type Entity, withoutKeys } from "../platform/storage/entity.ts";
import type { Range, StorageCorrupt, Tables } from "../platform/storage/tables.ts";

/**
 * Compares a combined partition of a table (such as that of all assets) with the partitions of which it is a copy (its parts,
 * such as those of the subscriptions).
 */

/** A row for comparisons: two copies of one value have the same key and the same hash. */
export interface Entry {
  readonly key: string;
  /** Undefined for a row that can't be read. It differs from every other row. */
  readonly hash: string | undefined;
  readonly etag: string;
}

/** How a row of the combined partition differs from its parts. `unreadable`: it exists and does not fit its schema. */
export type DifferenceKind = "missing" | "extra" | "stale" | "unreadable";

/** The comparison's result for one key. Results are in the order of the keys. */
export interface Compared {
  readonly key: string;
  /** Undefined if both sides agree. */
  readonly difference: DifferenceKind | undefined;
}

/** Maximum number of parts whose first page is requested concurrently. */
const OPEN_AT_ONCE = 16;

/** Returns a hash over all members of a row's value. */
export const hashOf = (row: object): string => fingerprint(withoutKeys(row));

/** Returns the rows of a range as entries, including unreadable ones. One request per page, with one page in memory. */
export async function* entriesOf<T>(tables: Tables, entity: Entity<T>, range: Range): AsyncGenerator<Entry, void> {
  let unreadable: Entry[] = [];
  const onCorrupt = ({ rowKey, etag }: StorageCorrupt) => unreadable.push({ key: rowKey, hash: undefined, etag });
  for await (const rows of tables.pages(entity, { ...range, onCorrupt })) {
    const read = rows.map((row): Entry => ({ key: row.rowKey, hash: hashOf(row), etag: row.etag }));
    const page = unreadable.length === 0 ? read : [...unreadable, ...read].sort(byKey);
    unreadable = [];
    yield* page;
  }
  yield* unreadable;
}

/**
 * Compares a combined partition with its parts, key by key. All are read in the order of their keys, so that memory contains
 * one page of each. If several parts contain a key, the row of the combined partition must equal one of them.
 */
export async function* compareMerged(
  whole: AsyncIterable<Entry>,
  parts: readonly AsyncIterable<Entry>[],
): AsyncGenerator<Compared, void> {
  // `actual` is the next row of the combined partition, and `expected` the next rows of the parts.
  const wholeRows = whole[Symbol.asyncIterator]();
  const partRows = mergeByKey(parts);
  let actual = (await wholeRows.next()).value as Entry | undefined;
  let expected = (await partRows.next()).value as Entries | undefined;
  while (actual !== undefined || expected !== undefined) {
    const [actualKey, expectedKey] = [actual?.key, expected?.key];
    const isActualFirst = expectedKey === undefined || (actualKey !== undefined && actualKey < expectedKey);
    const key = isActualFirst ? actualKey! : expectedKey;
    yield {
      key,
      difference: differenceOf(actualKey === key ? actual : undefined, expectedKey === key ? expected : undefined),
    };
    if (actualKey === key) actual = (await wholeRows.next()).value as Entry | undefined;
    if (expectedKey === key) expected = (await partRows.next()).value as Entries | undefined;
  }
}

/** The entries of one key in one or more parts. */
interface Entries {
  readonly key: string;
  readonly hashes: readonly (string | undefined)[];
}

function differenceOf(actual: Entry | undefined, expected: Entries | undefined): DifferenceKind | undefined {
  if (actual === undefined) return "missing";
  if (actual.hash === undefined) return "unreadable";
  if (expected === undefined) return "extra";
  return expected.hashes.includes(actual.hash) ? undefined : "stale";
}

/** Yields the entries of all parts in the order of their keys, grouped by key. */
async function* mergeByKey(parts: readonly AsyncIterable<Entry>[]): AsyncGenerator<Entries, void> {
  const iterators = parts.map((part) => part[Symbol.asyncIterator]());
  const opened = await pMap(
    iterators,
    async (part) => ({ part, entry: (await part.next()).value as Entry | undefined }),
    {
      concurrency: OPEN_AT_ONCE,
    },
  );
  // Sorted by descending key: the part with the lowest key is last, so that removing it is cheap with thousands of parts.
  const heads = opened.filter((head): head is Head => head.entry !== undefined).sort((a, b) => byKey(b.entry, a.entry));
  while (heads.length > 0) {
    const { key } = heads.at(-1)!.entry;
    const hashes: (string | undefined)[] = [];
    while (heads.at(-1)?.entry.key === key) {
      const { part, entry } = heads.pop()!;
      hashes.push(entry.hash);
      const next = (await part.next()).value as Entry | undefined;
      if (next !== undefined) heads.splice(insertionIndex(heads, next.key), 0, { part, entry: next });
    }
    yield { key, hashes };
  }
}

/** A part with its next entry. */
interface Head {
  readonly part: AsyncIterator<Entry>;
  readonly entry: Entry;
}

/** Returns the index at which a key belongs among the heads, which are sorted by descending key. */
function insertionIndex(heads: readonly Head[], key: string): number {
  let low = 0;
  let high = heads.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (heads[middle]!.entry.key > key) low = middle + 1;
    else high = middle;
  }
  return low;
}

const byKey = (a: Entry, b: Entry): number => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
