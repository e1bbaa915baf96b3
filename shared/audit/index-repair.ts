import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock } from "../platform/runtime.ts";
import { put, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import { audited } from "./audited.ts";
import { sha256 } from "./canonical.ts";
import type { AuditRecorder } from "./event.ts";
import { type Interval, intervalOf, timeOf } from "./interval.ts";
import {
  EntryRow,
  entriesPartition,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  instantOf,
  isMarkOrLastRow,
} from "./rows.ts";
import { entryOfRow, storedEntries } from "./stored-entries.ts";

/**
 * Compares the index of the audit log with all entries, and repairs it. The index has four rows per entry, one for each
 * combination of filters. The first pass reads only keys and IDs, and adds up by day a hash of each entry and of each index
 * row. The second pass compares today, and the days whose sums differ, row by row. The reconciliation calls it.
 */

/** An entry younger than this may have no index rows yet, because its writer writes the entry first. */
const SETTLED_MS = MINUTE_MS;
/** Maximum number of entries, and of rows, that an audit entry names. Its counts include all. */
const MAX_NAMED = 20;
/** Length of the position (`position` in rows.ts) at the end of an index row's key. */
const POSITION_LENGTH = 26;
const FILTERS = ["all", "actor", "type", "both"];
const DAY = /^\d{4}-\d\d-\d\d$/;

/** Numbers of index rows: read, missing or unreadable, and without an entry. */
export interface IndexRepair {
  readonly rows: number;
  readonly missing: number;
  readonly extra: number;
}

interface StoredIndexRow {
  readonly key: string;
  /** Undefined in rows of an earlier version. */
  readonly id: string | undefined;
  readonly isReadable: boolean;
}

/**
 * Writes index rows that entries lack, removes index rows without an entry, and records both in the audit log. Costs one
 * request per 1,000 entries, one per 1,000 index rows, one per 250 entries of today, and two per day with entries. If an
 * earlier day differs, it reads the index again.
 */
export async function repairWholeIndex(
  { tables, clock, audit }: { tables: Tables; clock: Clock; audit: AuditRecorder },
  caller: Caller,
  details: Record<string, unknown>,
): Promise<IndexRepair> {
  const now = clock.now().getTime();
  const { count, rowsToCompare, differingDays } = await readSums(tables, entriesPartition(now));
  if (differingDays.size > 0) {
    for await (const row of indexRows(tables))
      if (differingDays.has(indexedEntryOf(row.key)?.day ?? "")) rowsToCompare.set(row.key, row);
  }
  // The entries are read after the index rows. A writer writes the entry first, so every index row must have one by now.
  const readBefore = now + DAY_MS;
  const days = [...differingDays, entriesPartition(now)].sort();
  const { expected, unreadableEntries } = await readEntries(tables, days, now, readBefore);
  const missing = [...expected].filter(
    ([key, { id, isSettled }]) => isSettled && !isCorrect(rowsToCompare.get(key), id),
  );
  const extra = [...rowsToCompare.keys()].filter((key) => {
    const indexedEntry = indexedEntryOf(key);
    // The row stays if its entry can't be read. If this worker's clock is slow, later positions have entries that were not read.
    if (indexedEntry && (unreadableEntries.has(indexedEntry.name) || indexedEntry.interval >= readBefore)) return false;
    return !expected.has(key);
  });
  if (missing.length + extra.length > 0) {
    const event = {
      type: "audit.indexMended",
      caller,
      target: { type: "audit", id: "index" },
      details: {
        ...details,
        missing: missing.length,
        extra: extra.length,
        entries: [...new Set(missing.map(([, { id }]) => id))].slice(0, MAX_NAMED),
        rows: extra.slice(0, MAX_NAMED),
      },
    };
    await audited(audit, event, async () => {
      const writes = missing.map(([key, { id }]) => put(IndexRow, key, { id }));
      await tables.write(IndexRow.table, INDEX_PARTITION, writes);
      for (const key of extra) await tables.remove(IndexRow, INDEX_PARTITION, key);
    });
  }
  return { rows: count, missing: missing.length, extra: extra.length };
}

/** Returns whether an index row names the entry with this ID. The key of a row without ID (of an earlier version) names it. */
const isCorrect = (row: StoredIndexRow | undefined, id: string): boolean =>
  row?.isReadable === true && (row.id === undefined || row.id === id);

/**
 * Sums up the entries and the index rows of each day before `today`.
 *
 * @returns the number of index rows, the days whose sums differ, and the index rows to compare one by one: those since `today` and
 * with an invalid key.
 */
async function readSums(
  tables: Tables,
  today: string,
): Promise<{ count: number; rowsToCompare: Map<string, StoredIndexRow>; differingDays: Set<string> }> {
  const expected = new Map<string, number>();
  const actual = new Map(FILTERS.map((filter) => [filter, new Map<string, number>()]));
  for await (const partitionKey of tables.partitions(EntryRow.table)) {
    if (!DAY.test(partitionKey) || partitionKey >= today) continue;
    for await (const page of tables.pages(EntryRow, { partitionKey, select: [] })) {
      // Only rows that the service may have written: `10:40|01J…`.
      for (const { rowKey } of page)
        if (!isMarkOrLastRow(rowKey) && isUlid(rowKey.slice(6)))
          addHash(expected, partitionKey, entryName(rowKey.slice(0, 5), rowKey.slice(6)));
    }
  }
  const rowsToCompare = new Map<string, StoredIndexRow>();
  const differingDays = new Set<string>();
  let count = 0;
  for await (const row of indexRows(tables)) {
    count++;
    const indexedEntry = indexedEntryOf(row.key);
    const sums = actual.get(row.key.slice(0, row.key.indexOf("|")));
    if (!indexedEntry || !sums || indexedEntry.day >= today) rowsToCompare.set(row.key, row);
    // A row that can't be read or has another entry's ID does not show in the sums, which are of keys.
    else if (!row.isReadable || (row.id !== undefined && !indexedEntry.name.endsWith(randomPart(row.id))))
      differingDays.add(indexedEntry.day);
    else addHash(sums, indexedEntry.day, indexedEntry.name);
  }
  for (const sums of actual.values()) {
    for (const day of new Set([...expected.keys(), ...sums.keys()]))
      if (sums.get(day) !== expected.get(day)) differingDays.add(day);
  }
  return { count, rowsToCompare, differingDays };
}

/** Adds the entry's hash to the day's sum. Uses the first 48 bits of the hash, so that the sum stays an exact number. */
function addHash(sums: Map<string, number>, day: string, name: string): void {
  const hash = Number.parseInt(Buffer.from(sha256(name), "base64url").toString("hex").slice(0, 12), 16);
  sums.set(day, ((sums.get(day) ?? 0) + hash) % 2 ** 48);
}

async function* indexRows(tables: Tables): AsyncGenerator<StoredIndexRow> {
  let corruptRows: StoredIndexRow[] = [];
  const onCorrupt = ({ rowKey: key }: StorageCorrupt) => corruptRows.push({ key, id: undefined, isReadable: false });
  const range = { partitionKey: INDEX_PARTITION, select: ["id" as const], onCorrupt };
  for await (const page of tables.pages(IndexRow, range)) {
    for (const { rowKey: key, id } of page) yield { key, id, isReadable: true };
    yield* corruptRows;
    corruptRows = [];
  }
}

/**
 * Returns the day, the interval and the name (see `entryName`) of the entry whose position is in the key of an index row. Undefined
 * if the key has no valid position.
 */
function indexedEntryOf(key: string): { day: string; interval: Interval; name: string } | undefined {
  const position = key.slice(-POSITION_LENGTH);
  const instant = instantOf(position);
  if (!Number.isFinite(instant)) return undefined;
  const interval = intervalOf(instant);
  return { day: entriesPartition(interval), interval, name: entryName(timeOf(interval), newestFirst(position)) };
}

/**
 * Names an entry of a day by the time of its interval and the random part of its ID, which its row and its index rows have in
 * common. The time in an ID can be earlier than the position: an entry that counts repeats has the ID of the start of its time
 * window.
 */
const entryName = (time: string, id: string): string => `${time}|${randomPart(id)}`;
/** Returns an ID without its time, the first ten characters of a ULID. */
const randomPart = (id: string): string => id.slice(10);

/**
 * Reads the entries of some days, and all entries since the last of these days until `readBefore`.
 *
 * @returns `expected`: the index rows that the entries should have, by key. `unreadableEntries`: the names of the entries that
 * can't be read, so that their index rows are unknown.
 */
async function readEntries(
  tables: Tables,
  days: readonly string[],
  now: number,
  readBefore: number,
): Promise<{ expected: Map<string, { id: string; isSettled: boolean }>; unreadableEntries: Set<string> }> {
  const expected = new Map<string, { id: string; isSettled: boolean }>();
  const unreadableEntries = new Set<string>();
  for (const day of days) {
    const from = Date.parse(day);
    const to = day === days.at(-1) ? readBefore : from + DAY_MS;
    for await (const page of storedEntries(tables, { from, to })) {
      for (const row of page) {
        const entry = entryOfRow(row);
        if (!entry) unreadableEntries.add(entryName(timeOf(row.interval), row.id));
        else {
          const isSettled = Date.parse(entry.occurredAt) < now - SETTLED_MS;
          for (const key of indexKeys(entry)) expected.set(key, { id: entry.id, isSettled });
        }
      }
    }
  }
  return { expected, unreadableEntries };
}
