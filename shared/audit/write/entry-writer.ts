import type { Clock } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { insert, merge, put, RowExists, RowMissing, replace, type Tables } from "../../platform/storage/tables.ts";
import { authenticationStatement } from "../chain/authenticated-from.ts";
import { chainEnd } from "../chain/chain.ts";
import type { Trust } from "../chain/trust.ts";
import { type AuditEntry, entryText } from "../entry.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import {
  bornMark,
  EntryRow,
  entriesPartition,
  entryKey,
  FIRST_PARTITION,
  FirstRow,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  Mark,
  openMark,
} from "../rows.ts";
import { isClosed } from "../seal/close-intervals.ts";
import type { LinkedRows, Sequences, WriteResult } from "./sequences.ts";

/**
 * Number of attempts to write one entry, because each attempt may meet a closed interval. It is more than the number of
 * intervals that a sealer whose clock is ahead closes before it writes their digests.
 */
export const MAX_ATTEMPTS = 100;
/** Attempts to write an entry to an interval that was reopened. */
const REOPEN_ATTEMPTS = 3;

/** The services that writing an entry needs. */
export interface EntryWriterDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  sequences: Sequences;
}

/** Writes entries to their intervals. */
export interface EntryWriter {
  /**
   * Inserts the row of an entry. Returns `closed` if no entry can be added to the interval. Returns `exists` if a row with that
   * id exists: of another writer, or of this call if its first response was lost.
   */
  insert(interval: Interval, entry: AuditEntry): Promise<WriteResult>;
  /**
   * Returns the start of the first interval after `interval` that is not sealed, in milliseconds since 1970. The result does
   * not depend on this machine's clock. Called after an entry was not accepted by `interval`.
   */
  earliestOpenTime(interval: Interval): Promise<number>;
  /**
   * Writes all four index rows in one transaction, so that either every filter finds the entry or sealing sees that all rows
   * are missing.
   */
  writeIndex(entry: AuditEntry): Promise<void>;
}

/**
 * Creates the writer of entries. Two rows, the marks, control whether entries can be added to an interval. The first entry of
 * the interval inserts both. The transaction of every later entry merges nothing into the open mark, and fails once sealing has
 * deleted that mark. So no entry can be added to a sealed interval: the transaction of a late writer fails, and it uses the
 * current interval. Writers don't block one another, because the empty merge only requires that the mark exists. If someone
 * else planted the born mark of the current interval, the writer adds the missing open mark.
 */
export function createEntryWriter({ tables, clock, trust, sequences }: EntryWriterDependencies): EntryWriter {
  /** The interval for which this instance has seen the open mark. For it, an entry takes one transaction. */
  let openInterval: Interval | undefined;
  /** The result of `firstInterval`, cached. */
  let first: Promise<Interval> | undefined;

  /**
   * Returns the interval at which sealing starts, so that no entry is written before it. If no row names it, stores
   * `candidate`. A stored interval is trusted if it is not later than the next interval: an instance whose clock is slightly
   * ahead may have written it. A later one is ignored in favor of `candidate`.
   */
  function firstInterval(candidate: Interval): Promise<Interval> {
    first ??= (async () => {
      const row = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
      if (!row) {
        try {
          const authenticated = trust.signer && authenticationStatement(candidate, trust.signer);
          const value = { interval: intervalName(candidate), authenticated };
          await tables.insert(FirstRow, FIRST_PARTITION, FIRST_PARTITION, value);
        } catch (error) {
          if (!(error instanceof RowExists)) throw error;
          first = undefined;
          return await firstInterval(candidate);
        }
      }
      // If this call inserted the row, or the row can't be read, this is NaN. The comparison is then false, so `candidate` is used.
      const stored = intervalFrom(row?.value?.interval ?? "");
      return stored <= intervalOf(clock.now().getTime()) + INTERVAL_MS ? stored : candidate;
    })().catch((error: unknown) => {
      first = undefined;
      throw error;
    });
    return first;
  }

  /** Returns the last interval that a digest of the chain covers; 0 before the first. */
  const lastSealed = async (): Promise<Interval> =>
    (await chainEnd({ tables, clock, keys: await trust.keys() }))?.interval ?? 0;

  /**
   * Adds the open mark to the current interval if it is missing although sealing has not closed the interval, because someone
   * planted its born mark. Closing replaces the born mark, so this transaction fails once the interval is closed, however late
   * it arrives. Returns false if the interval is over, was closed, or does not exist.
   */
  async function reopen(interval: Interval): Promise<boolean> {
    if (clock.now().getTime() >= interval + INTERVAL_MS || interval <= (await lastSealed())) return false;
    const partition = entriesPartition(interval);
    // Read the mark before checking whether the interval was closed: closing changes the ETag.
    const mark = await tables.get(Mark, partition, bornMark(interval));
    if (!mark || (await isClosed(tables, interval, await trust.keys()))) return false;
    try {
      await tables.transaction(Mark.table, partition, [
        replace(Mark, bornMark(interval), {}, mark.etag),
        insert(Mark, openMark(interval), {}),
      ]);
    } catch (error) {
      if (!isConflict(error)) throw error; // another writer opened it
    }
    return true;
  }

  return {
    async insert(interval, entry) {
      const [partitionKey, rowKey] = [entriesPartition(interval), entryKey(interval, entry.id)];
      return await sequences.write({ partitionKey, rowKey, text: entryText(entry), count: entry.count }, (rows) =>
        insertRows(interval, rowKey, rows),
      );
    },

    async earliestOpenTime(interval) {
      return Math.max(interval, await lastSealed(), (await firstInterval(interval)) - INTERVAL_MS) + INTERVAL_MS;
    },

    async writeIndex(entry) {
      await tables.transaction(
        IndexRow.table,
        INDEX_PARTITION,
        indexKeys(entry).map((key) => put(IndexRow, key, { id: entry.id })),
      );
      const interval = intervalOf(Date.parse(entry.occurredAt));
      const [day, key] = [entriesPartition(interval), entryKey(interval, entry.id)];
      sequences.noteIndexed({ day, key, count: entry.count });
    },
  };

  async function insertRows(
    interval: Interval,
    key: string,
    { columns, operations }: LinkedRows,
  ): Promise<WriteResult> {
    const partition = entriesPartition(interval);
    if (openInterval !== interval) {
      if (interval < (await firstInterval(interval))) return "closed";
      try {
        await tables.transaction(EntryRow.table, partition, [
          insert(Mark, bornMark(interval), {}),
          insert(Mark, openMark(interval), {}),
          insert(EntryRow, key, columns),
          ...operations,
        ]);
        openInterval = interval;
        return "written";
      } catch (error) {
        // The interval exists: created by another instance, by sealing, or by this call if its first response was lost.
        if (!(error instanceof RowExists)) throw error;
      }
    }
    for (let attempt = 1; ; attempt++) {
      try {
        await tables.transaction(EntryRow.table, partition, [
          merge(Mark, openMark(interval), {}),
          insert(EntryRow, key, columns),
          ...operations,
        ]);
        openInterval = interval;
        return "written";
      } catch (error) {
        if (error instanceof RowExists) return "exists";
        if (!(error instanceof RowMissing)) throw error;
        openInterval = undefined;
        // If the first response was lost, this call may have stored the entry before sealing deleted the mark.
        if (await readRow(tables, EntryRow, partition, key)) return "exists";
        if (attempt === REOPEN_ATTEMPTS || !(await reopen(interval))) return "closed";
      }
    }
  }
}
