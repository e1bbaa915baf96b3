import pMap from "p-map";
import { fingerprint } from "../inventory/asset.ts";
import { type Entity, withoutKeys } from "../platform/storage/entity.ts";
import type { Range, StorageCorrupt, Tables } from "../platform/storage/tables.ts";

/** A row as a comparison sees it: two copies of one value have the same key and the same hash. */
export interface Entry {
  readonly key: string;
  /** Undefined for a row that can't be read: it differs from every other. */
  readonly hash: string | undefined;
  readonly etag: string;
}

/** What is wrong with a row of the whole, held against its parts. `unreadable`: it is there and does not fit its kind. */
export type DifferenceKind = "missing" | "extra" | "stale" | "unreadable";

/** One key of the whole or of a part, in the order of the keys. */
export interface Compared {
  readonly key: string;
  /** Undefined where both agree. */
  readonly difference: DifferenceKind | undefined;
}

/** Parts whose first page is asked for at once. */
const OPEN_AT_ONCE = 16;

/** The hash of a row's value, every member of it. */
export const hashOf = (row: object): string => fingerprint(withoutKeys(row));

/** The rows of a range as entries, those that can't be read among them. One request a page, one page in memory. */
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
 * Holds a whole against the parts it is made of, key by key: both sides are read in the order of their keys, so memory
 * holds a page of each. A key that stands in several parts agrees when one of them does.
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

/** What stands under one key in one or more parts. */
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

/** The entries of all parts in the order of their keys, those of one key together. */
async function* merged(parts: readonly AsyncIterable<Entry>[]): AsyncGenerator<Entries, void> {
  const read = parts.map((part) => part[Symbol.asyncIterator]());
  const opened = await pMap(read, async (part) => ({ part, entry: (await part.next()).value as Entry | undefined }), {
    concurrency: OPEN_AT_ONCE,
  });
  // The part that is next stands last, so that taking it is cheap with thousands of them.
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

/** Where a key belongs among the heads, which are sorted by descending key. */
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
