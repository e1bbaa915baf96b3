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
 * Totals of rows, and beside them a row for each that changed since: written in the transaction that changes it, and removed
 * in the one that writes totals which count it as it is. So the totals, less how they count what changed, plus how it is,
 * are what the rows come to at every moment.
 */

/** How the totals count what changed, and how it is; undefined where they don't, and where it is gone. */
export interface Change<C> {
  before: C | undefined;
  now: C | undefined;
}

/** A row of what changed, which the totals are to count as it is. */
export interface Clearable<C> {
  rowKey: string;
  etag: string;
  /** Undefined where its own row has to be asked. */
  change: Change<C> | undefined;
}

export interface TotalsWriting<C, R> {
  table: string;
  partitionKey: string;
  /** The totals, and the row behind the rows of what changed: both ends of a reading name the same write. */
  totals: { entity: Entity<R>; key: string; etag: string | undefined };
  end: { entity: Entity<{ sequence: string }>; key: string };
  changes: Entity<unknown>;
  /** All as the totals count it, by the row key of its change. */
  counted: Map<string, C>;
  clearable: Clearable<C>[];
  /** Further operations that belong to the totals. */
  also?: Operation[];
  /** How it is now, by its own row. */
  own(rowKey: string): Promise<C | undefined>;
  recordOf(counted: Iterable<C>, sequence: string): NoInfer<R>;
  /** Totals that nobody goes by, until the last transaction. */
  unkept(sequence: string): NoInfer<R>;
}

/** Rows of changes that one transaction clears, beside the totals' own two. */
const ROWS_AT_ONCE = 90;
/** More than the totals take in a transaction, and the rows that it clears: an entity has 1 MiB, its bytes go in base64. */
const TOTALS_BYTES = 1.5 * 1024 * 1024;

/**
 * Clears these changes and writes totals that count them: one transaction for each 90. What changed once more meanwhile stays
 * as it is counted.
 *
 * @throws RowChanged or RowExists when others wrote the totals since.
 */
export async function writeTotals<C, R>(tables: Tables, writing: TotalsWriting<C, R>): Promise<void> {
  const { table, partitionKey, totals, end, counted, clearable, also = [] } = writing;
  let { etag } = totals;
  const totalsAs = (record: R, sequence: string): Operation[] => [
    etag === undefined ? insert(totals.entity, totals.key, record) : replace(totals.entity, totals.key, record, etag),
    put(end.entity, end.key, { sequence }),
  ];
  const beside = { lead: totalsAs(writing.unkept(""), ""), bytes: TOTALS_BYTES };
  const further = await tables.batches(table, partitionKey, also, beside);
  do {
    const others = further.shift() ?? [];
    let cleared = clearable.splice(0, Math.max(0, ROWS_AT_ONCE - others.length));
    for (;;) {
      const next = new Map(counted);
      // Read with the ETag by which its row is removed: any further change replaces that.
      for (const { rowKey, change } of cleared) set(next, rowKey, change ? change.now : await writing.own(rowKey));
      const isLast = further.length + clearable.length === 0;
      const sequence = randomUUID();
      const record = isLast ? writing.recordOf(next.values(), sequence) : writing.unkept(sequence);
      const operations: Operation[] = [
        ...totalsAs(record, sequence),
        ...others,
        ...cleared.map((row) => remove(writing.changes, row.rowKey, row.etag)),
      ];
      try {
        etag = (await tables.transaction(table, partitionKey, operations)).get(totals.key)!;
        for (const { rowKey } of cleared) set(counted, rowKey, next.get(rowKey));
        break;
      } catch (error) {
        // What changed once more stays as it is counted; the next renewal clears it.
        const again = error instanceof RowChanged ? cleared.find(({ rowKey }) => rowKey === error.rowKey) : undefined;
        if (!again?.change) throw error;
        cleared = cleared.filter((row) => row !== again);
      }
    }
  } while (further.length + clearable.length > 0);
}

export function set<C>(counted: Map<string, C>, key: string, now: C | undefined): void {
  if (now) counted.set(key, now);
  else counted.delete(key);
}

/** The row of a change comes and goes with the totals: each renewal can turn one attempt into the other, once. */
const MARK_ATTEMPTS = 6;

/**
 * Writes the row of a change with what changes: inserted, or merged where it stands, since that keeps how the totals count
 * what changed. `write` is made again where it was the other.
 *
 * @param stands - Whether the row is most likely there.
 */
export async function writeMarked<T>(
  row: { inserted: Operation; merged: Operation },
  stands: boolean,
  write: (row: Operation) => Promise<T>,
): Promise<T> {
  let inserts = !stands;
  for (let attempt = 1; ; attempt++) {
    try {
      return await write(inserts ? row.inserted : row.merged);
    } catch (error) {
      const isRow = (error instanceof RowExists || error instanceof RowMissing) && error.rowKey === row.inserted.rowKey;
      if (!isRow || attempt === MARK_ATTEMPTS) throw error;
      inserts = !inserts;
    }
  }
}
