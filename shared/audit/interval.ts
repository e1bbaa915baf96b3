/**
 * Entries are sealed by the interval: each has one digest, even an empty one. Ten minutes is the longest an entry can
 * stand unsealed (plus `SEAL_DELAY_MS`) and still only 144 digests a day.
 */
export const INTERVAL_MINUTES = 10;
export const INTERVAL_MS = INTERVAL_MINUTES * 60_000;

/** How long after its end an interval is closed, so that the clocks of two instances need not agree to the second. */
export const SEAL_DELAY_MS = 60_000;

/** An interval is known by the instant it starts, in milliseconds since 1970. */
export type Interval = number;

export const intervalOf = (at: number): Interval => Math.floor(at / INTERVAL_MS) * INTERVAL_MS;

/** `2026-11-21T10:40Z`: sorts by time and is a legal table key. */
export const intervalName = (interval: Interval): string => `${new Date(interval).toISOString().slice(0, 16)}Z`;

/** The interval behind a name; NaN when it is none. */
export const intervalFrom = (name: string): Interval => Date.parse(name);
