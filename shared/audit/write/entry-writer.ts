import type { Clock } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { insert, merge, put, RowExists, RowMissing, replace, type Tables } from "../../platform/storage/tables.ts";
import { chainEnd } from "../chain/chain.ts";
import type { Trust } from "../chain/trust.ts";
import type { AuditEntry } from "../entry.ts";
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

/**
 * Attempts of one entry that meets closed intervals: more than the number of intervals that a sealer whose clock is ahead
 * closes before it writes their digests.
 */
export const MAX_CLOSED = 100;
/** Attempts to write an entry to an interval that was reopened. */
const REOPEN_ATTEMPTS = 3;

export interface EntryWriterDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
}

/** Writes entries to their intervals. */
export interface EntryWriter {
  /**
   * Writes an entry. `exists` means that a row with that id exists: of another writer, or of our own call whose response was
   * lost.
   */
  enter(interval: Interval, id: string, text: string): Promise<"entered" | "exists" | "closed">;
  /**
   * Returns the earliest time at which an entry can be written after `interval` was found sealed, independent of this machine's
   * clock.
   */
  after(interval: Interval): Promise<number>;
  /**
   * Writes all four index rows in one transaction, so that either every filter finds the entry or sealing sees that all rows
   * are missing.
   */
  index(entry: AuditEntry): Promise<void>;
}

/**
 * Creates the writer of entries. The first entry of an interval inserts its two marks, every later one touches the open mark in
 * its own transaction, and sealing deletes the open mark first. So no entry can be added to a sealed interval: a late writer
 * fails and uses the current interval. Writers don't block one another, because a touch only requires that the mark exists.
 * Marks that someone else planted don't keep entries out of the current interval.
 */
export function createEntryWriter({ tables, clock, trust }: EntryWriterDependencies): EntryWriter {
  /** The last interval that this instance knows to exist. For it, an entry takes one transaction. */
  let born: Interval | undefined;
  let first: Promise<Interval> | undefined;

  /**
   * Returns the interval at which sealing starts, so that no entry is written before it. Stored before the first entry. A
   * stored value is trusted only up to the next interval, because an instance with a clock slightly ahead may have written it.
   */
  function firstInterval(candidate: Interval): Promise<Interval> {
    first ??= (async () => {
      const row = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
      if (!row) {
        try {
          await tables.insert(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: intervalName(candidate) });
        } catch (error) {
          if (!(error instanceof RowExists)) throw error;
          first = undefined;
          return await firstInterval(candidate);
        }
      }
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
   * Reopens a current interval whose open mark is missing although it was never closed, because someone planted its birth mark.
   * Closing replaces the birth mark, so reopening fails once an interval is closed, however late the request arrives. Returns
   * false if the interval is over, was closed, or does not exist.
   */
  async function reopen(interval: Interval): Promise<boolean> {
    if (clock.now().getTime() >= interval + INTERVAL_MS || interval <= (await lastSealed())) return false;
    const partition = entriesPartition(interval);
    // Read the mark before checking whether the interval was closed: closing changes the ETag.
    const birth = await tables.get(Mark, partition, bornMark(interval));
    if (!birth || (await isClosed(tables, interval, await trust.keys()))) return false;
    try {
      await tables.transaction(Mark.table, partition, [
        replace(Mark, bornMark(interval), {}, birth.etag),
        insert(Mark, openMark(interval), {}),
      ]);
    } catch (error) {
      if (!isConflict(error)) throw error; // another writer opened it
    }
    return true;
  }

  return {
    async enter(interval, id, text) {
      const partition = entriesPartition(interval);
      const key = entryKey(interval, id);
      if (born !== interval) {
        if (interval < (await firstInterval(interval))) return "closed";
        try {
          await tables.transaction(EntryRow.table, partition, [
            insert(Mark, bornMark(interval), {}),
            insert(Mark, openMark(interval), {}),
            insert(EntryRow, key, { entry: text }),
          ]);
          born = interval;
          return "entered";
        } catch (error) {
          // The interval exists: created by another instance, by sealing, or by this call if its first response was lost.
          if (!(error instanceof RowExists)) throw error;
        }
      }
      for (let attempt = 1; ; attempt++) {
        try {
          await tables.transaction(EntryRow.table, partition, [
            merge(Mark, openMark(interval), {}),
            insert(EntryRow, key, { entry: text }),
          ]);
          born = interval;
          return "entered";
        } catch (error) {
          if (error instanceof RowExists) return "exists";
          if (!(error instanceof RowMissing)) throw error;
          born = undefined;
          if (await readRow(tables, EntryRow, partition, key)) return "exists";
          if (attempt === REOPEN_ATTEMPTS || !(await reopen(interval))) return "closed";
        }
      }
    },

    async after(interval) {
      return Math.max(interval, await lastSealed(), (await firstInterval(interval)) - INTERVAL_MS) + INTERVAL_MS;
    },

    async index(entry) {
      await tables.transaction(
        IndexRow.table,
        INDEX_PARTITION,
        indexKeys(entry).map((key) => put(IndexRow, key, { id: entry.id })),
      );
    },
  };
}
