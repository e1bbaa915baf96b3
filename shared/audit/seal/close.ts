import { repeatOnConflict } from "../../storage/conflict.ts";
import { insert, remove, type Tables } from "../../storage/tables.ts";
import type { Interval } from "../interval.ts";
import { bornMark, entriesPartition, MARKS, Mark, openMark } from "../rows.ts";

/** How often closing looks again when a writer or another sealer comes between. */
const MAX_ATTEMPTS = 10;

/**
 * Closes the intervals of one day; says whether any was born. After this no entry can come in: the birth is taken, or the
 * open mark is gone and can't be made again.
 */
export async function close(tables: Tables, intervals: readonly Interval[]): Promise<boolean> {
  const partition = entriesPartition(intervals[0]!);
  return await repeatOnConflict(async () => {
    const marks = await marksOf(tables, partition);
    const unborn = intervals.filter((interval) => !marks.has(bornMark(interval)));
    const open = intervals.map(openMark).filter((mark) => marks.has(mark));
    if (unborn.length > 0) {
      const births = unborn.map((interval) => insert(Mark, bornMark(interval), {}));
      await tables.transaction(Mark.table, partition, births);
    }
    await tables.write(Mark.table, partition, removals(open));
    return unborn.length < intervals.length;
  }, MAX_ATTEMPTS);
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
