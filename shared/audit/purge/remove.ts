import type { Entity } from "../../platform/storage/entity.ts";
import { remove, type Tables } from "../../platform/storage/tables.ts";
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
  MANIFESTS_PARTITION,
  ManifestRow,
  Mark,
} from "../rows.ts";
import { entryOfRow, storedEntries } from "../stored-entries.ts";

/**
 * Deletes the remaining rows of the intervals before `end`: index rows, entries, marks and fingerprints, and last the digests,
 * which show an interrupted purge where to continue.
 */
export async function removeUpTo(tables: Tables, end: Interval): Promise<void> {
  const from = await earliest(tables, end);
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
    await removeRows(tables, Mark, entriesPartition(day[0]!), day.map(bornMark));
  }
  await removeRange(tables, ManifestRow, { partitionKey: MANIFESTS_PARTITION, before: intervalName(end) });
  const digests = { from: intervalName(from), before: intervalName(end) };
  await removeRange(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...digests });
}

/** Returns the first interval before `end` that still has a digest. */
async function earliest(tables: Tables, end: Interval): Promise<Interval | undefined> {
  const digests = { partitionKey: DIGESTS_PARTITION, before: intervalName(end), pageSize: 10 };
  for await (const page of tables.pages(DigestRow, { ...digests, select: [] })) {
    const found = page.find(({ rowKey }) => isIntervalName(rowKey));
    if (found) return intervalFrom(found.rowKey);
  }
  return undefined;
}

async function removeRange(
  tables: Tables,
  e: Entity<object>,
  range: { partitionKey: string; from?: string; before: string },
): Promise<void> {
  for await (const page of tables.pages(e, { ...range, select: [] })) {
    const keys = page.map(({ rowKey }) => rowKey);
    await removeRows(tables, e, range.partitionKey, keys);
  }
}

const removeRows = (tables: Tables, e: Entity<object>, partitionKey: string, rowKeys: string[]): Promise<void> =>
  tables.write(e.table, partitionKey, removals(e, rowKeys));

function* removals(e: Entity<object>, rowKeys: string[]) {
  for (const rowKey of rowKeys) yield remove(e, rowKey);
}
