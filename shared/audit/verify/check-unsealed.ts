import { DAY_MS } from "../../platform/time.ts";
import type { ChainState, ReadingDependencies } from "../chain/chain-state.ts";
import { createIntervalCheck, readLastRows } from "../chain/check-authenticity.ts";
import { rowOfName } from "../chain/link.ts";
import { INTERVAL_MS, type Interval, intervalOf } from "../interval.ts";
import { entriesPartition } from "../rows.ts";
import { firstInterval } from "../seal/first-interval.ts";
import { byInterval, entryOfRow, storedEntries } from "../stored-entries.ts";
import { createIndexCheck } from "./check-index.ts";
import type { FindingList } from "./finding-list.ts";

/** Checks the entries that are not sealed yet by their authentication codes and links, and their index rows. */

/**
 * Returns the intervals that may have entries that are not sealed yet. Undefined if there are none. An instance whose clock is ahead, or
 * whose interval was closed, may have written to the interval after the current one.
 */
export async function unsealedRange(
  { tables, clock }: ReadingDependencies,
  { end }: ChainState,
): Promise<{ from: Interval; to: Interval } | undefined> {
  const from = end ? end.interval + INTERVAL_MS : await firstInterval(tables, clock);
  return from === undefined ? undefined : { from, to: entriesEnd(clock.now().getTime(), end?.interval) };
}

/**
 * Returns a time that is later than all entries of the log, also if this instance's clock is behind. An entry can be in the
 * interval after the current one. By this clock, that interval ends two intervals after the current one starts. By the newest
 * digest, it ends four intervals after the sealed one starts: an interval is sealed within minutes after its end, so until the
 * next digest the current interval is at most the second one after the sealed one.
 */
export const entriesEnd = (nowMs: number, newest: Interval | undefined): Interval =>
  Math.max(intervalOf(nowMs) + 2 * INTERVAL_MS, (newest ?? 0) + 4 * INTERVAL_MS);

/**
 * Checks the entries of `from <= interval < to`. Costs one request per 250 entries, one or more per day, and those of the index.
 *
 * @param options - `index`: whether to check the index rows, too.
 * @returns the number of entries, and how many of them were accepted without a code.
 */
export async function checkUnsealed(
  { tables, trust }: ReadingDependencies,
  { authenticatedFrom, keptFrom }: ChainState,
  range: { from: Interval; to: Interval },
  findings: FindingList,
  options: { index: boolean },
): Promise<{ entries: number; withoutCode: number }> {
  const { authentication } = trust;
  const checkDeps = { tables, authentication, authenticatedFrom, keptFrom };
  const index = createIndexCheck(tables);
  const indexed = new Set<string>();
  let entries = 0;
  let withoutCode = 0;
  for (let day = Math.floor(range.from / DAY_MS) * DAY_MS; day < range.to; day += DAY_MS) {
    const [from, to] = [Math.max(range.from, day), Math.min(range.to, day + DAY_MS)];
    // Read before the entries, because a row of a last entry names only entries that already exist.
    const lastRows = await readLastRows(tables, authentication, entriesPartition(day));
    const stored = byInterval(index.recordFrom(storedEntries(tables, { from, to })));
    for (let interval = from; interval < to; interval += INTERVAL_MS) {
      const check = createIntervalCheck(checkDeps, interval);
      for await (const row of stored.itemsOf(interval)) {
        check.add(row, entryOfRow(row));
        entries += 1;
      }
      // A forged row belongs to no interval. It is reported once, with the last interval of the day.
      const isLast = interval + INTERVAL_MS >= to;
      const checked = await check.finish(lastRows.filter(({ isForged }) => !isForged || isLast));
      findings.add(...checked.listed);
      findings.addUnlisted(checked.total - checked.listed.length);
      withoutCode += checked.withoutCode;
      for (const row of check.indexed) indexed.add(row);
    }
  }
  const isIndexed = (partitionKey: string, rowKey: string) =>
    indexed.has(rowOfName({ day: partitionKey, key: rowKey }));
  if (options.index && range.from < range.to) await index.check(range, findings, isIndexed);
  return { entries, withoutCode };
}
