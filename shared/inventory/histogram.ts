import { DAY_SECONDS } from "../platform/time.ts";
import { END_OF_TIME, type ExpiryRange } from "./asset-status.ts";
import { UNSET } from "./expiries.ts";

/**
 * Histograms of expiries, which the stored totals contain (totals.ts, summary-totals.ts). Within a *window*, expiries
 * are counted to the second. Outside of the windows, all expiries of a day, or all between two windows, are one
 * number.
 */

/**
 * A period in which expiries are counted to the second: from <= expiry < before, in unix seconds. Windows of `countIn` are
 * whole days; windows of `countBetween` can start and end at any second.
 */
export type Window = [from: number, before: number];

/**
 * Numbers of assets that expire on each UTC day, and in some periods at each second. The size depends on the number of days,
 * not of assets.
 */
export interface Histogram {
  /** Ascending times, or starts of days, at which any asset expires. Unix seconds. */
  readonly at: ArrayLike<number>;
  /** Number of assets that expire at each of these times. */
  readonly counts: ArrayLike<number>;
  /** Number of assets without an expiry. */
  readonly unset: number;
}

/**
 * Returns the histogram of packed expiries.
 *
 * @param unsetInstant - The packed value of an asset without an expiry.
 * @param startOf - Returns the time under which an expiry outside of the windows is counted. Default: the start of its day.
 */
export function histogramOf(
  packed: Iterable<Uint32Array>,
  unsetInstant: number,
  windows: readonly Window[],
  startOf: (instant: number) => number = dayStart,
): Histogram {
  const counts = new Map<number, number>();
  let unset = 0;
  for (const instants of packed)
    for (const instant of instants) {
      if (instant === unsetInstant) unset++;
      else {
        const time = isWithin(windows, instant) ? instant : startOf(instant);
        counts.set(time, (counts.get(time) ?? 0) + 1);
      }
    }
  const sorted = [...counts].sort(([a], [b]) => a - b);
  return { at: sorted.map(([time]) => time), counts: sorted.map(([, count]) => count), unset };
}

/**
 * Returns the number of assets in the range, or of all. Undefined if a bound is within a day that is counted as a whole
 * and has expiries.
 */
export function countIn(histogram: Histogram, windows: readonly Window[], range?: ExpiryRange): number | undefined {
  const { at, counts, unset } = histogram;
  const { before } = range ?? { before: END_OF_TIME };
  // Expiries later than 32 bits can express count as the last second (expiries.ts).
  const from = Math.min(range?.from ?? 0, UNSET - 1);
  const partialDays = new Set(
    [from, before].filter((bound) => !isWithin(windows, bound) && bound !== dayStart(bound)).map(dayStart),
  );
  let total = range === undefined || range.unset ? unset : 0;
  for (let index = 0; index < at.length; index++) {
    const instant = at[index]!;
    if (partialDays.has(instant)) return undefined;
    if (instant >= from && instant < before) total += counts[index]!;
  }
  return total;
}

/** Returns the end of the last window that ends at or before the time. 0 if there is none. */
export const gapStart = (windows: readonly Window[], instant: number): number =>
  windows.reduce((start, [, before]) => (before <= instant ? Math.max(start, before) : start), 0);

/**
 * Same as `countIn`, for histograms that combine all expiries between two windows into one number. Undefined if a bound is
 * between windows.
 */
export function countBetween(
  histogram: Histogram,
  windows: readonly Window[],
  range?: ExpiryRange,
): number | undefined {
  const { at, counts, unset } = histogram;
  const { from, before } = range ?? { from: 0, before: END_OF_TIME };
  // A bound at the end of a window is exact too: the number of the following gap is counted at that time (`gapStart`).
  const isExact = (bound: number) =>
    bound === 0 || bound >= END_OF_TIME || windows.some(([first, end]) => bound >= first && bound <= end);
  if (!isExact(from) || !isExact(before)) return undefined;
  let total = range === undefined || range.unset ? unset : 0;
  for (let index = 0; index < at.length; index++) {
    const instant = at[index]!;
    if (instant >= from && instant < before) total += counts[index]!;
  }
  return total;
}

const isWithin = (windows: readonly Window[], instant: number): boolean =>
  windows.some(([from, before]) => instant >= from && instant < before);

const dayStart = (instant: number): number => instant - (instant % DAY_SECONDS);

/**
 * Returns 32-bit words. Each histogram has the length of `at`, the number of assets without an expiry, `at` (its first time,
 * then the difference of each time to the one before), and the counts. Small numbers compress well.
 */
export function packHistograms(histograms: readonly Histogram[]): Uint32Array {
  const words: number[] = [];
  for (const { at, counts, unset } of histograms) {
    words.push(at.length, unset);
    for (let index = 0; index < at.length; index++) words.push(at[index]! - (index === 0 ? 0 : at[index - 1]!));
    for (let index = 0; index < at.length; index++) words.push(counts[index]!);
  }
  return Uint32Array.from(words);
}

/** Returns undefined if the data is corrupt. */
export function unpackHistograms(words: Uint32Array): Histogram[] | undefined {
  const histograms: Histogram[] = [];
  for (let start = 0; start + 1 < words.length; ) {
    const length = words[start]!;
    if (start + 2 + 2 * length > words.length) return undefined;
    const times = words.slice(start + 2, start + 2 + length);
    for (let index = 1; index < length; index++) times[index]! += times[index - 1]!;
    histograms.push({
      at: times,
      counts: words.subarray(start + 2 + length, start + 2 + 2 * length),
      unset: words[start + 1]!,
    });
    start += 2 + 2 * length;
  }
  return histograms;
}
