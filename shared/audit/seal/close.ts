import { repeatOnConflict } from "../../storage/conflict.ts";
import { insert, put, remove, type Tables } from "../../storage/tables.ts";
import type { Interval } from "../interval.ts";
import { bornMark, entriesPartition, MARKS, Mark, openMark } from "../rows.ts";

/** How often closing looks again when a writer or another sealer comes between. */
const MAX_ATTEMPTS = 10;

/**
 * Closes the intervals of one day, at most a transaction's worth; says whether any was born. After this no entry can come
 * in: every birth mark is new, so that neither a birth nor an opening under the one before is taken any more, and the open
 * marks that stood then are gone.
 */
export async function close(tables: Tables, intervals: readonly Interval[]): Promise<boolean> {
  const partition = entriesPartition(intervals[0]!);
  const isBorn = await repeatOnConflict(async () => {
    const marks = await marksOf(tables, partition);
    const births = intervals.map((interval) =>
      marks.has(bornMark(interval)) ? put(Mark, bornMark(interval), {}) : insert(Mark, bornMark(interval), {}),
    );
    await tables.transaction(Mark.table, partition, births);
    return births.some(({ kind }) => kind === "put");
  }, MAX_ATTEMPTS);
  if (!isBorn) return false;
  const marks = await marksOf(tables, partition);
  await tables.write(Mark.table, partition, removals(intervals.map(openMark).filter((mark) => marks.has(mark))));
  return true;
}

/** The row keys of the marks of a day's partition. */
export async function marksOf(tables: Tables, partitionKey: string): Promise<Set<string>> {
  const marks = new Set<string>();
  for await (const page of tables.pages(Mark, { partitionKey, ...MARKS }))
    for (const { rowKey } of page) marks.add(rowKey);
  return marks;
}

function* removals(marks: string[]) {
  for (const mark of marks) yield remove(Mark, mark);
}
