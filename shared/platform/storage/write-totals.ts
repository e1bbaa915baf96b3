import { randomUUID } from "node:crypto";
import type { Entity } from "./entity.ts";
import {
  insert,
  type Operation,
  put,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  replace,
  type Tables,
} from "./tables.ts";

/**
 * Maintains totals of many rows without recounting all of them.
 *
 * The totals row is written rarely. For each counted object that changes afterwards, a change row stores how the totals count
 * this object. The change row is written in the same transaction as the object, and removed in the transaction that writes
 * totals with the object's current value. So at every moment the exact result is: totals, minus the stored value of each
 * changed object, plus its current value.
 */

/** How the totals count a changed object (undefined if they don't), and its current value (undefined if it was removed). */
export interface Change<C> {
  before: C | undefined;
  now: C | undefined;
}

/** A change row that the next totals make unnecessary. */
export interface RemovableChange<C> {
  rowKey: string;
  etag: string;
  /** Undefined if the object's own row must be read. */
  change: Change<C> | undefined;
}

/** What `writeTotals` writes: the rows of the totals, and the change rows that it removes. */
export interface TotalsWrite<C, R> {
  table: string;
  partitionKey: string;
  /**
   * The totals row, and the last row of the range of change rows. A reader that finds the same `sequence` in both has a
   * consistent state.
   */
  totals: { entity: Entity<R>; key: string; etag: string | undefined };
  end: { entity: Entity<{ sequence: string }>; key: string };
  changes: Entity<unknown>;
  /** The value with which the totals count each object, by the row key of its change row. */
  counted: Map<string, C>;
  removable: RemovableChange<C>[];
  /** Further operations to write together with the totals. */
  further?: Operation[];
  /** Reads an object's current value from its own row. */
  readCurrent(rowKey: string): Promise<C | undefined>;
  recordOf(counted: Iterable<C>, sequence: string): NoInfer<R>;
  /** Returns totals that readers ignore. They are written by each transaction except the last. */
  placeholderOf(sequence: string): NoInfer<R>;
}

/** Change rows that one transaction removes, in addition to the two rows of the totals. */
const MAX_REMOVALS = 90;
/**
 * Upper bound of the size of the totals and of the removals in a transaction: an entity has up to 1 MiB, and its bytes are sent
 * as base64.
 */
const TOTALS_BYTES = 1.5 * 1024 * 1024;

/**
 * Removes the given change rows and writes totals with the current values, in transactions of up to 90 removals. An object that
 * changes again meanwhile keeps its change row.
 *
 * @throws RowChanged or RowExists if another process wrote the totals since.
 */
export async function writeTotals<C, R>(tables: Tables, writing: TotalsWrite<C, R>): Promise<void> {
  const { table, partitionKey, totals, end, counted, removable, further = [] } = writing;
  let { etag } = totals;
  const totalsOperations = (record: R, sequence: string): Operation[] => [
    etag === undefined ? insert(totals.entity, totals.key, record) : replace(totals.entity, totals.key, record, etag),
    put(end.entity, end.key, { sequence }),
  ];
  const reserved = { lead: totalsOperations(writing.placeholderOf(""), ""), bytes: TOTALS_BYTES };
  const batches = await tables.batches(table, partitionKey, further, reserved);
  do {
    const others = batches.shift() ?? [];
    let removed = removable.splice(0, Math.max(0, MAX_REMOVALS - others.length));
    for (;;) {
      const next = new Map(counted);
      // The value is read after the change row's ETag. A further change replaces the ETag, and the removal then fails.
      for (const { rowKey, change } of removed)
        setOrDelete(next, rowKey, change ? change.now : await writing.readCurrent(rowKey));
      const isLast = batches.length + removable.length === 0;
      const sequence = randomUUID();
      const record = isLast ? writing.recordOf(next.values(), sequence) : writing.placeholderOf(sequence);
      const operations: Operation[] = [
        ...totalsOperations(record, sequence),
        ...others,
        ...removed.map((row) => remove(writing.changes, row.rowKey, row.etag)),
      ];
      try {
        etag = (await tables.transaction(table, partitionKey, operations)).get(totals.key)!;
        for (const { rowKey } of removed) setOrDelete(counted, rowKey, next.get(rowKey));
        break;
      } catch (error) {
        // If an object changed again, its change row stays, and the next call removes it. Any other error ends this call, also
        // a conflict on a row whose change could not be read.
        const changedAgain =
          error instanceof RowChanged ? removed.find(({ rowKey }) => rowKey === error.rowKey) : undefined;
        if (!changedAgain?.change) throw error;
        removed = removed.filter((row) => row !== changedAgain);
      }
    }
  } while (batches.length + removable.length > 0);
}

/** Sets a value, or deletes the key if the value is undefined. */
export function setOrDelete<C>(counted: Map<string, C>, key: string, now: C | undefined): void {
  if (now) counted.set(key, now);
  else counted.delete(key);
}

/** Maximum attempts. Another process that writes totals can remove or add the change row before each attempt. */
const CHANGE_ROW_ATTEMPTS = 6;

/**
 * Writes an object together with its change row. The change row is inserted, or merged into an existing one, which keeps how
 * the totals count the object. If the row's existence was guessed wrong, `write` is called again with the other operation.
 *
 * @param exists - Whether the change row probably exists.
 */
export async function writeWithChangeRow<T>(
  row: { inserted: Operation; merged: Operation },
  exists: boolean,
  write: (row: Operation) => Promise<T>,
): Promise<T> {
  let inserts = !exists;
  for (let attempt = 1; ; attempt++) {
    try {
      return await write(inserts ? row.inserted : row.merged);
    } catch (error) {
      const isRow = (error instanceof RowExists || error instanceof RowMissing) && error.rowKey === row.inserted.rowKey;
      if (!isRow || attempt === CHANGE_ROW_ATTEMPTS) throw error;
      inserts = !inserts;
    }
  }
}
