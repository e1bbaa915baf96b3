import { pMapIterable } from "p-map";
import type { Tables } from "../../platform/storage/tables.ts";
import { newestFirst } from "../../platform/ulid.ts";
import type { Finding } from "../chain/findings.ts";
import type { AuditEntry } from "../entry.ts";
import { type Interval, intervalName, intervalOf } from "../interval.ts";
import { readRows } from "../read-rows.ts";
import { INDEX_PARTITION, IndexRow, indexKeys, indexPrefix, indexRange, instantOf, position } from "../rows.ts";
import { entryOfRow, type StoredEntry } from "../stored-entries.ts";
import type { FindingList } from "./finding-list.ts";

/**
 * Maximum number of filters checked per response. More filters come only from sign-ins with guessed usernames, one entry each.
 */
const MAX_FILTERS = 500;
const FILTERS_AT_ONCE = 4;
/** Maximum number of rows reported per filter. */
const MAX_DIFFERENCES = 100;

/** Compares the index, which lists are based on, with the entries of a range. */
export interface IndexCheck {
  /** Passes the entries through, and records their expected positions. */
  watch(pages: AsyncIterable<StoredEntry[]>): AsyncGenerator<StoredEntry[]>;
  /**
   * Compares the index with the recorded entries of `from <= interval < to`. Costs one request per filter and 1,000 entries.
   */
  check(
    range: { from: Interval; to: Interval },
    found: FindingList,
  ): Promise<{ filters: number; filtersChecked: number }>;
}

export function createIndexCheck(tables: Tables): IndexCheck {
  /** Positions by the filter's prefix. */
  const expected = new Map<string, string[]>([[indexPrefix({}), []]]);
  const idAt = new Map<string, string>();

  function remember(entry: AuditEntry): void {
    const at = position(entry.id, Date.parse(entry.occurredAt));
    idAt.set(at, entry.id);
    for (const key of indexKeys(entry)) {
      const prefix = key.slice(0, -at.length);
      const positions = expected.get(prefix);
      if (positions) positions.push(at);
      else expected.set(prefix, [at]);
    }
  }

  return {
    async *watch(pages) {
      for await (const page of pages) {
        for (const row of page) {
          const entry = entryOfRow(row);
          if (entry) remember(entry);
        }
        yield page;
      }
    },

    async check({ from, to }, found) {
      const filters = [...expected].sort(([, a], [, b]) => b.length - a.length);
      const checked = filters.slice(0, MAX_FILTERS);
      const compare = ([prefix, positions]: [string, string[]]) => differences(prefix, positions, { from, to });
      const all: Difference[] = [];
      for await (const some of pMapIterable(checked, compare, { concurrency: FILTERS_AT_ONCE })) all.push(...some);
      found.add(...findingsOf(all, found.listed));
      return { filters: filters.length, filtersChecked: checked.length };
    },
  };

  async function differences(
    prefix: string,
    positions: string[],
    range: { from: Interval; to: Interval },
  ): Promise<Difference[]> {
    const within = (at: string) => instantOf(at) >= range.from && instantOf(at) < range.to;
    const missing = new Set(positions.filter(within));
    const inserted: string[] = [];
    const bounds = { partitionKey: INDEX_PARTITION, ...indexRange(prefix, range.from, range.to) };
    for await (const page of readRows(tables, IndexRow, { ...bounds, select: ["id"] })) {
      for (const { rowKey, value } of page) {
        const at = rowKey.slice(prefix.length);
        if (!missing.has(at)) inserted.push(at);
        // Rows of an earlier version have no id, but the entry's text, which is not used.
        else if (value && (value.id === undefined || value.id === idAt.get(at))) missing.delete(at);
      }
    }
    return [
      ...[...missing].map((at): Difference => ({ kind: "indexEntryMissing", at, prefix })),
      ...inserted.map((at): Difference => ({ kind: "indexEntryInserted", at, prefix })),
    ].slice(0, MAX_DIFFERENCES);
  }

  /**
   * Returns one finding per entry, but none for an entry that the chain already reported, because its index rows differ as a
   * consequence.
   */
  function findingsOf(all: Difference[], reported: readonly Finding[]): Finding[] {
    const known = new Set(reported.flatMap(({ entryId }) => (entryId === undefined ? [] : randomPart(entryId))));
    const byEntry = Map.groupBy(all, ({ kind, at }) => `${kind}|${at}`);
    return [...byEntry.values()].flatMap((same): Finding[] => {
      const { kind, at } = same[0]!;
      const entryId = idAt.get(at) ?? newestFirst(at);
      if (known.has(randomPart(entryId))) return [];
      const lists = same.map(({ prefix }) => (prefix === indexPrefix({}) ? "without a filter" : prefix.slice(0, -1)));
      const names = `The list (${lists.join(", ")})`;
      const detail =
        kind === "indexEntryMissing" ? `${names} lacks the entry.` : `${names} names an entry that is not in the log.`;
      return [{ kind, interval: intervalName(intervalOf(instantOf(at))), entryId, detail }];
    });
  }
}

/** An index row that is missing or superfluous. */
interface Difference {
  kind: "indexEntryMissing" | "indexEntryInserted";
  at: string;
  prefix: string;
}

/** The part that an entry's id and its position have in common, independent of the time. */
const randomPart = (id: string): string => id.slice(10);
