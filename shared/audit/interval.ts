import { DAY_MS, MINUTE_MS } from "../platform/time.ts";

/**
 * The intervals of the audit log. Each interval is sealed with one digest, even if it has no entries. Ten minutes limit the
 * time that an entry is unsealed (plus `SEAL_DELAY_MS`), at 144 digests a day.
 */
export const INTERVAL_MINUTES = 10;
export const INTERVAL_MS = INTERVAL_MINUTES * MINUTE_MS;

/** Delay between the end of an interval and its sealing, so that the clocks of two instances may differ by seconds. */
export const SEAL_DELAY_MS = MINUTE_MS;

/** The start of an interval, in milliseconds since 1970, which identifies it. */
export type Interval = number;

/** Returns the interval that contains a time, in milliseconds since 1970. */
export const intervalOf = (timeMs: number): Interval => Math.floor(timeMs / INTERVAL_MS) * INTERVAL_MS;

/** Returns the name of an interval: `2026-11-21T10:40Z`. Names sort by time and are valid table keys. */
export const intervalName = (interval: Interval): string => `${new Date(interval).toISOString().slice(0, 16)}Z`;

/** Parses an interval's name. NaN if the name is invalid. */
export const intervalFrom = (name: string): Interval => Date.parse(name);

/** Returns whether a text is the name of an interval: `2026-11-21T10:40Z`, with a multiple of ten minutes. */
export const isIntervalName = (name: string): boolean =>
  /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}Z$/.test(name) && intervalFrom(name) % INTERVAL_MS === 0;

/** Returns the day of an interval in UTC: `2026-11-21`. */
export const dayOf = (interval: Interval): string => intervalName(interval).slice(0, 10);

/** Returns the time of day in UTC at which an interval starts: `10:40`. */
export const timeOf = (interval: Interval): string => intervalName(interval).slice(11, 16);

/** Yields the intervals of `from <= interval < to` in batches. A batch has at most `atMost` intervals, all of one day. */
export function* intervalsByDay(
  from: Interval,
  to: Interval,
  atMost = Number.POSITIVE_INFINITY,
): Generator<Interval[]> {
  let batch: Interval[] = [];
  for (let interval = from; interval < to; interval += INTERVAL_MS) {
    if (batch.length === atMost || (batch.length > 0 && interval % DAY_MS === 0)) {
      yield batch;
      batch = [];
    }
    batch.push(interval);
  }
  if (batch.length > 0) yield batch;
}

/** Thrown if an entry can't be added because its interval is sealed. */
export class IntervalSealed extends Error {
  override readonly name = "IntervalSealed";

  constructor(interval: Interval) {
    super(`The interval ${intervalName(interval)} of the audit log is sealed.`);
  }
}
