import pMap from "p-map";
import { fingerprint } from "../inventory/asset.ts";
import { type Entity, withoutKeys } from "../platform/storage/entity.ts";
import type { Range, StorageCorrupt, Tables } from "../platform/storage/tables.ts";

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

/** Parts whose first page is requested concurrently. */
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
 * Compares a combined partition with its parts, key by key. Both sides are read in the order of their keys, so that memory
 * contains one page of each. A key that several parts contain agrees if one of them agrees.
 */
export async function* compareMerged(
  whole: AsyncIterable<Entry>,
  parts: readonly AsyncIterable<Entry>[],
): AsyncGenerator<Compared, void> {
  const left = whole[Symbol.asyncIterator]();
  const right = merged(parts);
  let standing = (await left.next()).value as Entry | undefined;
  let wanted = (await right.next()).value as Entries | undefined;
  while (standing !== undefined || wanted !== undefined) {
    const [here, there] = [standing?.key, wanted?.key];
    const key = there === undefined || (here !== undefined && here < there) ? here! : there;
    yield { key, difference: differenceOf(here === key ? standing : undefined, there === key ? wanted : undefined) };
    if (here === key) standing = (await left.next()).value as Entry | undefined;
    if (there === key) wanted = (await right.next()).value as Entries | undefined;
  }
}

/** The entries of one key in one or more parts. */
interface Entries {
  readonly key: string;
  readonly hashes: readonly (string | undefined)[];
}

function differenceOf(standing: Entry | undefined, wanted: Entries | undefined): DifferenceKind | undefined {
  if (standing === undefined) return "missing";
  if (standing.hash === undefined) return "unreadable";
  if (wanted === undefined) return "extra";
  return wanted.hashes.includes(standing.hash) ? undefined : "stale";
}

/** Returns the entries of all parts in the order of their keys, grouped by key. */
async function* merged(parts: readonly AsyncIterable<Entry>[]): AsyncGenerator<Entries, void> {
  const read = parts.map((part) => part[Symbol.asyncIterator]());
  const opened = await pMap(read, async (part) => ({ part, entry: (await part.next()).value as Entry | undefined }), {
    concurrency: OPEN_AT_ONCE,
  });
  // The next part is at the end of the list, so that removing it is cheap with thousands of parts.
  const heads = opened.filter((head): head is Head => head.entry !== undefined).sort((a, b) => byKey(b.entry, a.entry));
  while (heads.length > 0) {
    const { key } = heads.at(-1)!.entry;
    const hashes: (string | undefined)[] = [];
    while (heads.at(-1)?.entry.key === key) {
      const { part, entry } = heads.pop()!;
      hashes.push(entry.hash);
      const next = (await part.next()).value as Entry | undefined;
      if (next !== undefined) heads.splice(placeOf(heads, next.key), 0, { part, entry: next });
    }
    yield { key, hashes };
  }
}

interface Head {
  readonly part: AsyncIterator<Entry>;
  readonly entry: Entry;
}

/** Returns the index at which a key belongs among the heads, which are sorted by descending key. */
function placeOf(heads: readonly Head[], key: string): number {
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
