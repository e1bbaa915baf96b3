import pMap from "p-map";
import type { Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import type { Finding } from "./chain/findings.ts";
import { type AuditEntry, readEntry } from "./entry.ts";
import { intervalName, intervalOf } from "./interval.ts";
import { type FoundRow, readRow, readRows } from "./read-rows.ts";
import { EntryRow, entriesPartition, entryKey, indexKeys, instantOf } from "./rows.ts";

/** If at least this many entries of a day are needed, one page of the day is read before single rows. */
const MIN_ENTRIES_FOR_PAGE = 10;
const ROWS_AT_ONCE = 16;

/** A row of the index. It names an entry. */
export interface IndexedRow {
  rowKey: string;
  position: string;
  value: FoundRow<{ id?: string | undefined; entry?: string | undefined }>["value"];
}

/** The place of the entry that an index row names. */
interface Place {
  indexed: IndexedRow;
  at: number;
  partitionKey: string;
  key: string;
}

/**
 * Returns the primary entries that index rows name, and the state of rows without an entry. Costs one request per day with at
 * least ten of the entries, for up to 1,000 entries of the day, and one request for each entry not found in this way.
 */
export async function readIndexed(
  tables: Tables,
  rows: readonly IndexedRow[],
): Promise<{ items: AuditEntry[]; findings: Finding[] }> {
  const places = rows.map(placeOf);
  const texts = await textsOf(
    tables,
    places.filter((place) => place !== undefined),
  );
  const items: AuditEntry[] = [];
  const findings: Finding[] = [];
  for (const [index, place] of places.entries()) {
    const { rowKey, position } = rows[index]!;
    const entry = place && readEntry(texts.get(place));
    if (entry && indexKeys(entry).includes(rowKey)) items.push(entry);
    else findings.push(finding(place, position, place !== undefined && texts.has(place)));
  }
  return { items, findings };
}

function placeOf(indexed: IndexedRow): Place | undefined {
  const at = instantOf(indexed.position);
  const id = indexed.value?.id ?? readEntry(indexed.value?.entry)?.id;
  if (!Number.isFinite(at) || id === undefined || !isUlid(id)) return undefined;
  const interval = intervalOf(at);
  return { indexed, at, partitionKey: entriesPartition(interval), key: entryKey(interval, id) };
}

async function textsOf(tables: Tables, places: Place[]): Promise<Map<Place, string | undefined>> {
  const texts = new Map<Place, string | undefined>();
  const byDay = Map.groupBy(places, ({ partitionKey }) => partitionKey);
  for (const [partitionKey, ofDay] of byDay) {
    if (ofDay.length < MIN_ENTRIES_FOR_PAGE) continue;
    const byKey = new Map(ofDay.map((place) => [place.key, place]));
    const keys = [...byKey.keys()].sort();
    const range = { partitionKey, from: keys[0]!, before: `${keys.at(-1)!}~` };
    for await (const page of readRows(tables, EntryRow, range)) {
      for (const { rowKey, value } of page) {
        const place = byKey.get(rowKey);
        if (place) texts.set(place, value?.entry);
      }
      break;
    }
  }
  await pMap(
    places.filter((place) => !texts.has(place)),
    async (place) => {
      const row = await readRow(tables, EntryRow, place.partitionKey, place.key);
      if (row) texts.set(place, row.value?.entry);
    },
    { concurrency: ROWS_AT_ONCE },
  );
  return texts;
}

function finding(place: Place | undefined, position: string, stands: boolean): Finding {
  const interval = place && { interval: intervalName(intervalOf(place.at)) };
  if (stands) {
    const detail = "The entry that the list names here can't be read, or is a different one.";
    return { kind: "entryChanged", ...interval, entryId: place!.key.slice(6), detail };
  }
  return {
    kind: "indexEntryInserted",
    ...interval,
    entryId: place?.key.slice(6) ?? newestFirst(position),
    detail: "The list names an entry that is not in the log.",
  };
}
