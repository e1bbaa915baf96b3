import { pMapIterable } from "p-map";
import type { Tables } from "../../platform/storage/tables.ts";
import { type Interval, intervalName, intervalsByDay } from "../interval.ts";
import { bornMark, entriesPartition, openMark } from "../rows.ts";
import { marksOf } from "../seal/close-intervals.ts";
import type { FindingList } from "./finding-list.ts";

const DAYS_AT_ONCE = 4;

/**
 * Checks that the sealed intervals of `from <= interval < to` are closed for writers. An interval is closed if it has a born
 * mark and no open mark; these are rows among the entries. Costs one request per day.
 */
export async function checkMarks(
  tables: Tables,
  range: { from: Interval; to: Interval },
  findings: FindingList,
): Promise<void> {
  const unclosed = async (day: Interval[]) => {
    const marks = await marksOf(tables, entriesPartition(day[0]!));
    return day.filter((interval) => !marks.has(bornMark(interval)) || marks.has(openMark(interval)));
  };
  const days = intervalsByDay(range.from, range.to);
  for await (const intervals of pMapIterable(days, unclosed, { concurrency: DAYS_AT_ONCE })) {
    for (const interval of intervals) {
      const detail = "The marks that close this sealed interval were changed.";
      findings.add({ kind: "markChanged", interval: intervalName(interval), detail });
    }
  }
}
