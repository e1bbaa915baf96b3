import * as z from "zod";
import { repeatOnConflict } from "../../platform/storage/conflict.ts";
import { insert, put, remove, type Tables } from "../../platform/storage/tables.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "../chain/signing.ts";
import { type Interval, intervalName } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { bornMark, ClosedMark, entriesPartition, MARKS, Mark, openMark } from "../rows.ts";

/**
 * Closes intervals for writers before they are sealed. Two marker rows control whether entries can be added to an interval: the
 * born mark, which the first entry inserts, and the open mark, which every entry requires.
 */

/** Attempts to close intervals while a writer or another sealer changes their marks. */
const MAX_ATTEMPTS = 10;

/** The statement that a sealer signs for an interval before it reads the entries. */
const Closed = z.object({ closed: z.string() });

/** Returns true if the interval's born mark contains a signed statement that the interval is closed. */
export async function isClosed(tables: Tables, interval: Interval, keys: PublicKeys): Promise<boolean> {
  const mark = await readRow(tables, ClosedMark, entriesPartition(interval), bornMark(interval));
  if (mark?.value?.closed === undefined) return false;
  const statement = readStatement("audit-closed", Closed, mark.value.closed, keys);
  return "payload" in statement && statement.payload.closed === intervalName(interval);
}

/**
 * Closes intervals of one day, at most as many as fit into a transaction (100). Afterwards no entry can be added. Every born
 * mark is inserted or replaced with a signed one, so that creating and reopening an interval fail. The open marks are deleted.
 *
 * @returns True if any of the intervals existed before, so it may have entries.
 */
export async function closeIntervals(
  tables: Tables,
  intervals: readonly Interval[],
  signer: SigningKey,
): Promise<boolean> {
  const partition = entriesPartition(intervals[0]!);
  const existed = await repeatOnConflict(async () => {
    const marks = await marksOf(tables, partition);
    const writes = intervals.map((interval) => {
      const closed = signStatement("audit-closed", { closed: intervalName(interval) }, signer);
      // `insert` fails if a writer creates the interval meanwhile. The attempt is then repeated, and `existed` becomes true.
      const write = marks.has(bornMark(interval)) ? put : insert;
      return write(ClosedMark, bornMark(interval), { closed });
    });
    await tables.transaction(Mark.table, partition, writes);
    return writes.some(({ kind }) => kind === "put");
  }, MAX_ATTEMPTS);
  if (!existed) return false;
  const marks = await marksOf(tables, partition);
  await tables.write(Mark.table, partition, removals(intervals.map(openMark).filter((mark) => marks.has(mark))));
  return true;
}

/** Returns the row keys of all marks of a day, and of the rows of last entries, which sort between them. */
export async function marksOf(tables: Tables, partitionKey: string): Promise<Set<string>> {
  const marks = new Set<string>();
  for await (const page of tables.pages(Mark, { partitionKey, ...MARKS }))
    for (const { rowKey } of page) marks.add(rowKey);
  return marks;
}

function* removals(marks: string[]) {
  for (const mark of marks) yield remove(Mark, mark);
}
