import type { Clock } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { insert, merge, put, RowExists, RowMissing, replace, type Tables } from "../../platform/storage/tables.ts";
import { chainEnd } from "../chain/chain.ts";
import type { Trust } from "../chain/trust.ts";
import type { AuditEntry } from "../entry.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRow } from "../read.ts";
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
import { isClosed } from "../seal/close.ts";

/**
 * How often one entry may meet a closed interval before the call fails: more than a sealer whose clock is ahead closes
 * before it writes their digests.
 */
export const MAX_CLOSED = 100;
/** How often an entry tries an interval again that it opened anew. */
const REOPEN_ATTEMPTS = 3;

export interface EntryWriterDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
}

/** Puts entries into their intervals. */
export interface EntryWriter {
  /** `exists` when a row of that id is there: another writer's, or our own whose answer was lost. */
  enter(interval: Interval, id: string, text: string): Promise<"entered" | "exists" | "closed">;
  /** The earliest instant that can still be entered after `interval` was found sealed, whatever this machine's clock says. */
  after(interval: Interval): Promise<number>;
  /** All four index rows in one transaction, so that either every filter finds the entry or sealing sees that none does. */
  index(entry: AuditEntry): Promise<void>;
}

/**
 * An interval's first entry inserts its two marks, every later one touches the open mark in its own transaction, and
 * sealing deletes that mark first: so no entry can land behind a seal. A writer that comes too late fails and takes the
 * current interval. Writers don't contend: the touch asks only that the mark exists. Marks that somebody else wrote keep no
 * entry out of an interval that is not over.
 */
export function createEntryWriter({ tables, clock, trust }: EntryWriterDependencies): EntryWriter {
  /** The last interval this instance knows to have been born: from then on, one transaction enters an entry. */
  let born: Interval | undefined;
  let first: Promise<Interval> | undefined;

  /**
   * Where sealing begins, so that no entry stands before it. Written before the first entry of all. What the row says is
   * believed up to the next interval only: an instance whose clock was a little ahead may have written it.
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

  /** The last interval that a digest of the chain covers; 0 before the first. */
  const lastSealed = async (): Promise<Interval> =>
    (await chainEnd({ tables, clock, keys: await trust.keys() }))?.interval ?? 0;

  /**
   * Opens an interval that is not over although its open mark is missing, and that nobody closed: somebody else wrote its
   * marks. Closing replaces the birth mark, so that this is refused once an interval is closed, however late it arrives.
   * False when the interval is over, was closed, or was never born.
   */
  async function reopen(interval: Interval): Promise<boolean> {
    if (clock.now().getTime() >= interval + INTERVAL_MS || interval <= (await lastSealed())) return false;
    const partition = entriesPartition(interval);
    // Before it is looked whether it was closed: the ETag of one closed meanwhile is another.
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
          // Born already: by another instance, by sealing, or by this very call when its first answer was lost.
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
