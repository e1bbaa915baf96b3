import { pMapIterable } from "p-map";
import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalOf, isIntervalName } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { bornMark, entriesPartition, FIRST_PARTITION, FirstRow, Mark } from "../rows.ts";
import { storedEntries } from "../stored-entries.ts";

/** Days to search backwards for the first entry if the row that names its interval is missing or invalid. */
const SEARCH_DAYS = 31;
const DAYS_AT_ONCE = 4;

/**
 * Returns the interval at which sealing starts while the log has no digest: the interval of the first entry. A row names this
 * interval. The row is used only if the interval exists: its first entry, or sealing, inserted its born mark. Otherwise the entries
 * of the last days are searched.
 */
export async function firstInterval(tables: Tables, clock: Clock): Promise<Interval | undefined> {
  const now = clock.now().getTime();
  const named = await readRow(tables, FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const interval = named?.value?.interval ?? "";
  if (isIntervalName(interval) && intervalFrom(interval) <= now) {
    const mark = bornMark(intervalFrom(interval));
    if (await readRow(tables, Mark, entriesPartition(intervalFrom(interval)), mark)) return intervalFrom(interval);
  }
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  const days = Array.from({ length: SEARCH_DAYS }, (_, day) => today - (SEARCH_DAYS - 1 - day) * DAY_MS);
  const firstOfDay = (day: number) => firstEntry(tables, day, Math.min(day + DAY_MS, intervalOf(now) + INTERVAL_MS));
  for await (const first of pMapIterable(days, firstOfDay, { concurrency: DAYS_AT_ONCE })) {
    if (first.interval !== undefined) return first.interval;
  }
  return undefined;
}

async function firstEntry(tables: Tables, from: Interval, to: Interval): Promise<{ interval: Interval | undefined }> {
  for await (const [entry] of storedEntries(tables, { from, to })) if (entry) return { interval: entry.interval };
  return { interval: undefined };
}
