import { pMapIterable } from "p-map";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { isUlid } from "../platform/ulid.ts";
import { type AuditEntry, readEntry } from "./entry.ts";
import { dayOf, INTERVAL_MS, type Interval, intervalOf, timeOf } from "./interval.ts";
import { readRows } from "./read-rows.ts";
import { EntryRow, entriesPartition, entryKey, isMarkOrLastRow } from "./rows.ts";

/**
 * A row of the table of entries that has, or should have, an entry. The table also has rows of other kinds (`isMarkOrLastRow`):
 * marks, which say whether entries can be added to an interval, and the rows that name the last entries of processes.
 */
export interface StoredEntry {
  interval: Interval;
  rowKey: string;
  /** The part of the row key after the interval. The whole key if the service did not write it. */
  id: string;
  /** The entry's text. Undefined if it can't be read. */
  text: string | undefined;
  /** The entry's link to earlier entries of its process (chain/link.ts). Undefined in rows of an earlier version. */
  link: string | undefined;
  /** The entry's authentication code. Undefined in rows of an earlier version. */
  mac: string | undefined;
}

/** Parses the entry of a row. Undefined if the row has none, or an entry that belongs elsewhere. */
export function entryOfRow({ id, interval, text }: StoredEntry): AuditEntry | undefined {
  if (!isUlid(id)) return undefined;
  const entry = readEntry(text);
  return entry?.id === id && intervalOf(Date.parse(entry.occurredAt)) === interval ? entry : undefined;
}

/** Rows per page. With 1,000 rows, several pages outlive V8's young generation, which cost 100 MB in a measurement. */
const PAGE_SIZE = 250;
/** Number of days whose first page is requested ahead. */
const PARALLEL = 4;

/**
 * Yields all rows among the entries of `from <= interval < to`, by pages in the order of time and id. Includes rows that the
 * service did not write, under the interval into which they sort. Costs one request per 250 rows, and at least one per day.
 *
 * @param after - The last row that was already read. Its day continues after it.
 */
export async function* storedEntries(
  tables: Tables,
  range: { from: Interval; to: Interval },
  after?: { interval: Interval; rowKey: string },
): AsyncGenerator<StoredEntry[]> {
  const openDay = async (day: number) => {
    const pages = dayPages(tables, day, range, after);
    return { first: await pages.next(), pages };
  };
  for await (const { first, pages } of pMapIterable(days(range.from, range.to), openDay, { concurrency: PARALLEL })) {
    for (let page = first; !page.done; page = await pages.next()) if (page.value.length > 0) yield page.value;
  }
}

function* days(from: number, to: number): Generator<number> {
  for (let day = Math.floor(from / DAY_MS) * DAY_MS; day < to; day += DAY_MS) yield day;
}

async function* dayPages(
  tables: Tables,
  day: number,
  range: { from: Interval; to: Interval },
  lastRead: { interval: Interval; rowKey: string } | undefined,
): AsyncGenerator<StoredEntry[]> {
  const partitionKey = entriesPartition(day);
  const bounds = {
    ...(range.from > day ? { from: entryKey(range.from, "") } : {}),
    ...(range.to < day + DAY_MS ? { before: entryKey(range.to, "") } : {}),
  };
  const after = lastRead && dayOf(lastRead.interval) === partitionKey ? { after: lastRead.rowKey } : {};
  const only = (rowKey: string) => !isMarkOrLastRow(rowKey);
  for await (const page of readRows(tables, EntryRow, { partitionKey, ...bounds, ...after, only, pageSize: PAGE_SIZE }))
    yield page.map(({ rowKey, value }) => stored(day, rowKey, value));
}

/** Returns a row of a day. The row key of an entry is the start of its interval and its id: `10:40|01J…`. */
function stored(
  day: number,
  rowKey: string,
  value: { entry: string; link?: string | undefined; mac?: string | undefined } | undefined,
): StoredEntry {
  const content = { text: value?.entry, link: value?.link, mac: value?.mac };
  const [time, id] = [rowKey.slice(0, 5), rowKey.slice(6)];
  const interval = Date.parse(`${new Date(day).toISOString().slice(0, 10)}T${time}Z`);
  const isServiceKey = rowKey[5] === "|" && interval % INTERVAL_MS === 0 && timeOf(interval) === time;
  if (isServiceKey) return { interval, rowKey, id, ...content };
  // The service did not write this key. Finds the last interval of the day that starts before the key.
  let sortedInto = day;
  while (sortedInto + INTERVAL_MS < day + DAY_MS && entryKey(sortedInto + INTERVAL_MS, "") <= rowKey) {
    sortedInto += INTERVAL_MS;
  }
  return { interval: sortedInto, rowKey, id: rowKey, ...content };
}

/** Splits a stream by interval. */
export interface ByInterval<T> {
  /** Yields the items of an interval, and skips the items before it. */
  itemsOf(interval: Interval): AsyncGenerator<T>;
}

/** Creates the splitter of a stream. Each interval must be requested once, in order, because the stream is read only once. */
export function byInterval<T extends { interval: Interval }>(pages: AsyncIterable<T[]>): ByInterval<T> {
  const iterator = (async function* () {
    for await (const page of pages) yield* page;
  })();
  let next: IteratorResult<T> | undefined;
  return {
    async *itemsOf(interval) {
      next ??= await iterator.next();
      for (; !next.done && next.value.interval <= interval; next = await iterator.next()) {
        if (next.value.interval === interval) yield next.value;
      }
    },
  };
}
