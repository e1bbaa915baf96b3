import { DAY_MS, MINUTE_MS } from "../platform/time.ts";

/**
 * Entries are sealed by the interval: each has one digest, even an empty one. Ten minutes is the longest an entry can
 * stand unsealed (plus `SEAL_DELAY_MS`) and still only 144 digests a day.
 */
export const INTERVAL_MINUTES = 10;
export const INTERVAL_MS = INTERVAL_MINUTES * MINUTE_MS;

/** How long after its end an interval is closed, so that the clocks of two instances need not agree to the second. */
export const SEAL_DELAY_MS = MINUTE_MS;

/** An interval is known by the instant it starts, in milliseconds since 1970. */
export type Interval = number;

export const intervalOf = (at: number): Interval => Math.floor(at / INTERVAL_MS) * INTERVAL_MS;

/** `2026-11-21T10:40Z`: sorts by time and is a legal table key. */
export const intervalName = (interval: Interval): string => `${new Date(interval).toISOString().slice(0, 16)}Z`;

/** The interval behind a name; NaN when it is none. */
export const intervalFrom = (name: string): Interval => Date.parse(name);

export const isIntervalName = (name: string): boolean =>
  /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}Z$/.test(name) && intervalFrom(name) % INTERVAL_MS === 0;

/** The day an interval lies in: `2026-11-21`. */
export const dayOf = (interval: Interval): string => intervalName(interval).slice(0, 10);

/** When in its day an interval starts: `10:40`. */
export const timeOf = (interval: Interval): string => intervalName(interval).slice(11, 16);

/** The intervals of `from <= interval < to`, day by day, at most `atMost` together. */
export function* intervalsByDay(
  from: Interval,
  to: Interval,
  atMost = Number.POSITIVE_INFINITY,
): Generator<Interval[]> {
  let together: Interval[] = [];
  for (let interval = from; interval < to; interval += INTERVAL_MS) {
    if (together.length === atMost || (together.length > 0 && interval % DAY_MS === 0)) {
      yield together;
      together = [];
    }
    together.push(interval);
  }
  if (together.length > 0) yield together;
}

/** Nothing can be entered in an interval once it is sealed. */
export class IntervalSealed extends Error {
  override readonly name = "IntervalSealed";

  constructor(interval: Interval) {
    super(`The interval ${intervalName(interval)} of the audit log is sealed.`);
  }
}
