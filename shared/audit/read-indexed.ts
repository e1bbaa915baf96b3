import pMap from "p-map";
import type { Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import type { Finding } from "./chain/findings.ts";
import { type AuditEntry, readEntry } from "./entry.ts";
import { intervalName, intervalOf } from "./interval.ts";
import { type FoundRow, readRow, readRows } from "./read-rows.ts";
import { EntryRow, entriesPartition, entryKey, indexKeys, instantOf } from "./rows.ts";
import type { Span } from "./span.ts";

/**
 * Reads the entries that index rows name. An index row names an entry by its id; the primary row of the entry has the content.
 * Anyone with access to storage may have changed either.
 */

/** If at least this many entries of a day are needed, one page of the day is read first, because that saves requests. */
const MIN_ENTRIES_FOR_PAGE = 10;
const ROWS_AT_ONCE = 16;

/** A row of the index. It names an entry by `value.id`, or by the text in `value.entry` that an earlier version wrote. */
export interface IndexedRow {
  rowKey: string;
  /** The part of the row key after the prefix of the filter: the entry's time and the random part of its id, inverted. */
  position: string;
  value: FoundRow<{ id?: string | undefined; entry?: string | undefined }>["value"];
}

/** The keys of the primary row that an index row names, and the time of the entry in milliseconds since 1970. */
interface PrimaryRow {
  timeMs: number;
  partitionKey: string;
  key: string;
}

/**
 * Returns the entries that index rows name, and findings for index rows without a matching entry. Costs one request per day
 * with at least ten of the entries (one page of 1,000 rows), one request for each entry that such a page does not contain, and
 * those of `isAuthentic`.
 *
 * @param isAuthentic - Returns whether the service wrote a primary row as it is (see `Span`).
 */
export async function readIndexed(
  tables: Tables,
  rows: readonly IndexedRow[],
  isAuthentic: Span["isAuthentic"],
): Promise<{ items: AuditEntry[]; findings: Finding[] }> {
  const primaries = rows.map(primaryRowOf);
  const contents = await readContents(
    tables,
    primaries.filter((primary) => primary !== undefined),
  );
  const items: AuditEntry[] = [];
  const findings: Finding[] = [];
  const authentic = await pMap(
    primaries,
    async (primary) => {
      const content = primary && contents.get(primary);
      return primary && content && (await isAuthentic(rowOf(primary, content))) ? content : undefined;
    },
    { concurrency: ROWS_AT_ONCE },
  );
  for (const [index, primary] of primaries.entries()) {
    const { rowKey, position } = rows[index]!;
    const entry = readEntry(authentic[index]?.entry);
    if (entry && indexKeys(entry).includes(rowKey)) items.push(entry);
    else findings.push(findingOf(primary, position, primary !== undefined && contents.has(primary)));
  }
  return { items, findings };
}

function primaryRowOf(indexed: IndexedRow): PrimaryRow | undefined {
  const timeMs = instantOf(indexed.position);
  const id = indexed.value?.id ?? readEntry(indexed.value?.entry)?.id;
  if (!Number.isFinite(timeMs) || id === undefined || !isUlid(id)) return undefined;
  const interval = intervalOf(timeMs);
  return { timeMs, partitionKey: entriesPartition(interval), key: entryKey(interval, id) };
}

/** The columns of a primary row. */
type Content = NonNullable<FoundRow<{ entry: string; link?: string | undefined; mac?: string | undefined }>["value"]>;

/** Returns the content of each primary row that exists, or undefined for a row that does not match its schema. */
async function readContents(tables: Tables, primaries: PrimaryRow[]): Promise<Map<PrimaryRow, Content | undefined>> {
  const contents = new Map<PrimaryRow, Content | undefined>();
  const byDay = Map.groupBy(primaries, ({ partitionKey }) => partitionKey);
  for (const [partitionKey, dayRows] of byDay) {
    if (dayRows.length < MIN_ENTRIES_FOR_PAGE) continue;
    const byKey = new Map(dayRows.map((primary) => [primary.key, primary]));
    const keys = [...byKey.keys()].sort();
    // `~` sorts after all characters of a key, so the range ends after the last key.
    const range = { partitionKey, from: keys[0]!, before: `${keys.at(-1)!}~` };
    for await (const page of readRows(tables, EntryRow, range)) {
      for (const { rowKey, value } of page) {
        const primary = byKey.get(rowKey);
        if (primary) contents.set(primary, value);
      }
      // Entries after the first page are read one by one below.
      break;
    }
  }
  await pMap(
    primaries.filter((primary) => !contents.has(primary)),
    async (primary) => {
      const row = await readRow(tables, EntryRow, primary.partitionKey, primary.key);
      if (row) contents.set(primary, row.value);
    },
    { concurrency: ROWS_AT_ONCE },
  );
  return contents;
}

/** Length of the part of a primary row's key before the entry's id: `10:40|`. */
const ID_START = 6;

const rowOf = ({ timeMs, key }: PrimaryRow, { entry, link, mac }: Content) => ({
  interval: intervalOf(timeMs),
  rowKey: key,
  id: key.slice(ID_START),
  text: entry,
  link,
  mac,
});

/** Returns the finding for an index row without a matching entry. `exists`: the primary row exists. */
function findingOf(primary: PrimaryRow | undefined, position: string, exists: boolean): Finding {
  const interval = primary && { interval: intervalName(intervalOf(primary.timeMs)) };
  if (exists) {
    const detail = "The entry that the list names here can't be read, was changed, or is a different one.";
    return { kind: "entryChanged", ...interval, entryId: primary!.key.slice(ID_START), detail };
  }
  return {
    kind: "indexEntryInserted",
    ...interval,
    // Without a valid id, the entry is named by its position. Inverting the position's digits again gives its time and the
    // random part of its id.
    entryId: primary?.key.slice(ID_START) ?? newestFirst(position),
    detail: "The list names an entry that is not in the log.",
  };
}
