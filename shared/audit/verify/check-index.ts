import { pMapIterable } from "p-map";
import type { Tables } from "../../platform/storage/tables.ts";
import { newestFirst } from "../../platform/ulid.ts";
import type { Finding } from "../chain/findings.ts";
import { type AuditEntry, readEntry } from "../entry.ts";
import { type Interval, intervalName, intervalOf } from "../interval.ts";
import { readRow, readRows } from "../read-rows.ts";
import {
  EntryRow,
  entriesPartition,
  entryKey,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  indexPrefix,
  indexRange,
  instantOf,
  position,
} from "../rows.ts";
import { entryOfRow, type StoredEntry } from "../stored-entries.ts";
import type { FindingList } from "./finding-list.ts";

/**
 * Verifies the index of the audit log. Lists read the index: each entry has an index row per combination of filters (none,
 * actor, event type, both). The row's key is the filter's prefix and the entry's position. The position is the entry's time and
 * the random part of its id as a ULID, with every digit inverted, so that the newest entry sorts first. Inverting a position
 * again (`newestFirst`) gives an id.
 */

/**
 * Maximum number of filters (actors, event types and pairs of both) checked per response, those with the most entries first.
 * Few logs have more: every guessed username of a failed sign-in is an actor with few entries.
 */
const MAX_FILTERS = 500;
const FILTERS_AT_ONCE = 4;
/** Maximum number of rows reported per filter. */
const MAX_DIFFERENCES = 100;
/** Maximum number of differences that are checked again. */
const MAX_CHECKED_AGAIN = 400;

/** Compares the index with the entries of a range. */
export interface IndexCheck {
  /** Yields the same pages, and records the expected positions of their entries. */
  recordFrom(pages: AsyncIterable<StoredEntry[]>): AsyncGenerator<StoredEntry[]>;
  /**
   * Compares the index with the recorded entries of `from <= interval < to`. Costs one request per filter and 1,000 entries.
   *
   * @param isIndexed - Given if entries may be written at the same time. Then each difference is checked again. An entry without any
   *   index row is reported only if `isIndexed` is true for it: else its writer may have crashed in between, and sealing repairs that.
   */
  check(
    range: { from: Interval; to: Interval },
    findings: FindingList,
    isIndexed?: (partitionKey: string, rowKey: string) => boolean,
  ): Promise<{ filters: number; filtersChecked: number }>;
}

/** Creates the comparison of the index with the entries that a verification reads. */
export function createIndexCheck(tables: Tables): IndexCheck {
  /** The expected positions of each filter, by the filter's prefix. */
  const expected = new Map<string, string[]>([[indexPrefix({}), []]]);
  /** The ids of the entries by position. */
  const idAt = new Map<string, string>();

  function recordPositions(entry: AuditEntry): void {
    const entryPosition = position(entry.id, Date.parse(entry.occurredAt));
    idAt.set(entryPosition, entry.id);
    for (const key of indexKeys(entry)) {
      const prefix = key.slice(0, -entryPosition.length);
      const positions = expected.get(prefix);
      if (positions) positions.push(entryPosition);
      else expected.set(prefix, [entryPosition]);
    }
  }

  return {
    async *recordFrom(pages) {
      for await (const page of pages) {
        for (const row of page) {
          const entry = entryOfRow(row);
          if (entry) recordPositions(entry);
        }
        yield page;
      }
    },

    async check({ from, to }, findings, isIndexed) {
      const filters = [...expected].sort(([, a], [, b]) => b.length - a.length);
      const checked = filters.slice(0, MAX_FILTERS);
      const compare = ([prefix, positions]: [string, string[]]) => differences(prefix, positions, { from, to });
      const compared: Difference[] = [];
      for await (const differing of pMapIterable(checked, compare, { concurrency: FILTERS_AT_ONCE }))
        compared.push(...differing);
      // Without concurrent writes (`isIndexed` undefined), every difference stands.
      const confirmed: Difference[] = [];
      for (const difference of compared.slice(0, isIndexed ? MAX_CHECKED_AGAIN : undefined))
        if (!isIndexed || (await stillDiffers(difference, isIndexed))) confirmed.push(difference);
      findings.add(...findingsOf(confirmed, findings.listed));
      return { filters: filters.length, filtersChecked: checked.length };
    },
  };

  async function differences(
    prefix: string,
    positions: string[],
    range: { from: Interval; to: Interval },
  ): Promise<Difference[]> {
    // The recorded entries can go beyond the range, because the pages of entries do.
    const isInRange = (entryPosition: string) =>
      instantOf(entryPosition) >= range.from && instantOf(entryPosition) < range.to;
    const missing = new Set(positions.filter(isInRange));
    const inserted: string[] = [];
    const bounds = { partitionKey: INDEX_PARTITION, ...indexRange(prefix, range.from, range.to) };
    for await (const page of readRows(tables, IndexRow, { ...bounds, select: ["id"] })) {
      for (const { rowKey, value } of page) {
        const rowPosition = rowKey.slice(prefix.length);
        if (!missing.has(rowPosition)) inserted.push(rowPosition);
        // Rows of an earlier version have no id, but the entry's text, which is not used.
        else if (value && (value.id === undefined || value.id === idAt.get(rowPosition))) missing.delete(rowPosition);
      }
    }
    return [
      ...[...missing].map((position): Difference => ({ kind: "indexEntryMissing", position, prefix })),
      ...inserted.map((position): Difference => ({ kind: "indexEntryInserted", position, prefix })),
    ].slice(0, MAX_DIFFERENCES);
  }

  /** Reads the index row and the entry of a difference again. */
  async function stillDiffers(
    { kind, position: entryPosition, prefix }: Difference,
    isIndexed: (partitionKey: string, rowKey: string) => boolean,
  ): Promise<boolean> {
    const interval = intervalOf(instantOf(entryPosition));
    const partitionKey = entriesPartition(interval);
    const indexRow = await readRow(tables, IndexRow, INDEX_PARTITION, prefix + entryPosition);
    // An index row without an entry: it may have been removed since, or its entry written since.
    if (kind === "indexEntryInserted") {
      const id = indexRow?.value?.id;
      if (!indexRow || id === undefined) return indexRow !== undefined;
      const row = await readRow(tables, EntryRow, partitionKey, entryKey(interval, id));
      const entry = readEntry(row?.value?.entry);
      return !entry || !indexKeys(entry).includes(prefix + entryPosition);
    }
    // A missing index row: it may have been written since.
    const id = idAt.get(entryPosition)!;
    if (indexRow) return indexRow.value?.id !== id;
    const key = entryKey(interval, id);
    if (isIndexed(partitionKey, key)) return true;
    const entry = readEntry((await readRow(tables, EntryRow, partitionKey, key))?.value?.entry);
    // A writer writes the four index rows of an entry in one transaction. So if another one exists, this one was removed.
    for (const other of entry ? indexKeys(entry) : [])
      if (await readRow(tables, IndexRow, INDEX_PARTITION, other)) return true;
    return false;
  }

  /**
   * Returns one finding per entry. An entry that the check of the chain already reported (as changed, removed or inserted) gets
   * no second finding, because its index rows differ as a consequence.
   */
  function findingsOf(confirmed: Difference[], reported: readonly Finding[]): Finding[] {
    const reportedEntries = new Set(
      reported.flatMap(({ entryId }) => (entryId === undefined ? [] : randomPart(entryId))),
    );
    const byEntry = Map.groupBy(confirmed, ({ kind, position }) => `${kind}|${position}`);
    return [...byEntry.values()].flatMap((entryDifferences): Finding[] => {
      const { kind, position } = entryDifferences[0]!;
      const entryId = idAt.get(position) ?? newestFirst(position);
      if (reportedEntries.has(randomPart(entryId))) return [];
      const lists = entryDifferences.map(({ prefix }) =>
        prefix === indexPrefix({}) ? "without a filter" : prefix.slice(0, -1),
      );
      const names = `The list (${lists.join(", ")})`;
      const detail =
        kind === "indexEntryMissing" ? `${names} lacks the entry.` : `${names} names an entry that is not in the log.`;
      return [{ kind, interval: intervalName(intervalOf(instantOf(position))), entryId, detail }];
    });
  }
}

/** An index row that is missing or superfluous: its filter's prefix, and its position. */
interface Difference {
  kind: "indexEntryMissing" | "indexEntryInserted";
  position: string;
  prefix: string;
}

/**
 * Returns the random part of an entry's id, after the ten characters of the time. Only this part is compared: an id that was
 * computed from a position has the entry's time, and the id of an entry that counts several events has the start of its time
 * window.
 */
const randomPart = (id: string): string => id.slice(10);
