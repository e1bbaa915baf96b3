import type { Entity } from "../../platform/storage/entity.ts";
import { remove, type Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { type Interval, intervalFrom, intervalName, intervalsByDay, isIntervalName } from "../interval.ts";
import {
  bornMark,
  DIGESTS_PARTITION,
  DigestRow,
  EntryRow,
  entriesPartition,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  LAST_ROWS,
  LastRow,
  MANIFESTS_PARTITION,
  ManifestRow,
  Mark,
} from "../rows.ts";
import { entryOfRow, storedEntries } from "../stored-entries.ts";

/**
 * Deletes all remaining rows of the intervals before `end`, for a purge: index rows, entries, born marks (rows that record that
 * an interval exists) and fingerprints. The digests are deleted last, because an interrupted purge continues at the oldest one. The
 * intervals are sealed, so they have no open marks.
 */
export async function removeUpTo(tables: Tables, end: Interval): Promise<void> {
  const from = await firstWithDigest(tables, end);
  if (from === undefined) return;
  for await (const page of storedEntries(tables, { from, to: end })) {
    const entries = page.flatMap((row) => entryOfRow(row) ?? []);
    await removeRows(tables, IndexRow, INDEX_PARTITION, entries.flatMap(indexKeys));
    for (const [day, rows] of Map.groupBy(page, ({ interval }) => entriesPartition(interval))) {
      const keys = rows.map(({ rowKey }) => rowKey);
      await removeRows(tables, EntryRow, day, keys);
    }
  }
  for (const day of intervalsByDay(from, end)) {
    const partitionKey = entriesPartition(day[0]!);
    await removeRows(tables, Mark, partitionKey, day.map(bornMark));
    // The rows of last entries are per day, so they stay until no interval of the day is kept.
    if (Date.parse(partitionKey) + DAY_MS <= end) await removeRange(tables, LastRow, { partitionKey, ...LAST_ROWS });
  }
  await removeRange(tables, ManifestRow, { partitionKey: MANIFESTS_PARTITION, before: intervalName(end) });
  const digests = { from: intervalName(from), before: intervalName(end) };
  await removeRange(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...digests });
}

/** Returns the first interval before `end` that still has a digest. */
async function firstWithDigest(tables: Tables, end: Interval): Promise<Interval | undefined> {
  const digests = { partitionKey: DIGESTS_PARTITION, before: intervalName(end), pageSize: 10 };
  for await (const page of tables.pages(DigestRow, { ...digests, select: [] })) {
    const digest = page.find(({ rowKey }) => isIntervalName(rowKey));
    if (digest) return intervalFrom(digest.rowKey);
  }
  return undefined;
}

async function removeRange(
  tables: Tables,
  kind: Entity<object>,
  range: { partitionKey: string; from?: string; before: string },
): Promise<void> {
  for await (const page of tables.pages(kind, { ...range, select: [] })) {
    const keys = page.map(({ rowKey }) => rowKey);
    await removeRows(tables, kind, range.partitionKey, keys);
  }
}

const removeRows = (tables: Tables, kind: Entity<object>, partitionKey: string, rowKeys: string[]): Promise<void> =>
  tables.write(kind.table, partitionKey, removals(kind, rowKeys));

function* removals(kind: Entity<object>, rowKeys: string[]) {
  for (const rowKey of rowKeys) yield remove(kind, rowKey);
}
