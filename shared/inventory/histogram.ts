import { DAY_SECONDS } from "../platform/time.ts";
import { UNSET } from "./expiries.ts";
import { END_OF_TIME, type ExpiryRange } from "./health.ts";

/** Days whose instants are kept to the second: from the start of the first to the end of the last. Unix seconds. */
export type Window = [from: number, before: number];

/**
 * Expiries of many assets: how many end on each day of UTC, and within some days how many at each instant. Its size goes by
 * the days, not by the assets.
 */
export interface Histogram {
  /** The instants, and starts of days, at which any end, ascending. Unix seconds. */
  readonly at: ArrayLike<number>;
  /** How many end at them. */
  readonly counts: ArrayLike<number>;
  /** How many have no expiry. */
  readonly unset: number;
}

/**
 * From packed expiries, whose largest instant stands for none.
 *
 * @param startOf - Where an instant outside of the windows is counted: at the start of its day, unless told otherwise.
 */
export function histogramOf(
  packed: Iterable<Uint32Array>,
  unsetInstant: number,
  windows: readonly Window[],
  startOf: (instant: number) => number = dayOf,
): Histogram {
  const counts = new Map<number, number>();
  let unset = 0;
  for (const instants of packed)
    for (const instant of instants) {
      if (instant === unsetInstant) unset++;
      else {
        const at = isWithin(windows, instant) ? instant : startOf(instant);
        counts.set(at, (counts.get(at) ?? 0) + 1);
      }
    }
  const sorted = [...counts].sort(([a], [b]) => a - b);
  return { at: sorted.map(([at]) => at), counts: sorted.map(([, count]) => count), unset };
}

/** How many lie in the range; all, when none is given. Undefined where a bound lies within a day that is counted as one. */
export function countIn(histogram: Histogram, windows: readonly Window[], range?: ExpiryRange): number | undefined {
  const { at, counts, unset } = histogram;
  const { before } = range ?? { before: END_OF_TIME };
  // What ends later than 32 bits hold is counted as their last instant (expiries.ts).
  const from = Math.min(range?.from ?? 0, UNSET - 1);
  const days = new Set(
    [from, before].filter((bound) => !isWithin(windows, bound) && bound !== dayOf(bound)).map(dayOf),
  );
  let found = range === undefined || range.unset ? unset : 0;
  for (let index = 0; index < at.length; index++) {
    const instant = at[index]!;
    if (days.has(instant)) return undefined;
    if (instant >= from && instant < before) found += counts[index]!;
  }
  return found;
}

/** The end of the last window that ends before the instant; 0 where none does. */
export const gapStart = (windows: readonly Window[], instant: number): number =>
  windows.reduce((start, [, before]) => (before <= instant ? Math.max(start, before) : start), 0);

/** As `countIn`, where what lies between two windows is counted as one: undefined where a bound lies there. */
export function countBetween(
  histogram: Histogram,
  windows: readonly Window[],
  range?: ExpiryRange,
): number | undefined {
  const { at, counts, unset } = histogram;
  const { from, before } = range ?? { from: 0, before: END_OF_TIME };
  const isExact = (bound: number) =>
    bound === 0 || bound >= END_OF_TIME || windows.some(([first, behind]) => bound >= first && bound <= behind);
  if (!isExact(from) || !isExact(before)) return undefined;
  let found = range === undefined || range.unset ? unset : 0;
  for (let index = 0; index < at.length; index++) {
    const instant = at[index]!;
    if (instant >= from && instant < before) found += counts[index]!;
  }
  return found;
}

const isWithin = (windows: readonly Window[], instant: number): boolean =>
  windows.some(([from, before]) => instant >= from && instant < before);

const dayOf = (instant: number): number => instant - (instant % DAY_SECONDS);

/** As 32-bit words: how many, how many without an expiry, the steps from each to the next, and the counts. */
export function packHistograms(histograms: readonly Histogram[]): Uint32Array {
  const words: number[] = [];
  for (const { at, counts, unset } of histograms) {
    words.push(at.length, unset);
    for (let index = 0; index < at.length; index++) words.push(at[index]! - (index === 0 ? 0 : at[index - 1]!));
    for (let index = 0; index < at.length; index++) words.push(counts[index]!);
  }
  return Uint32Array.from(words);
}

/** Undefined where no version of this service wrote them. */
export function unpackHistograms(words: Uint32Array): Histogram[] | undefined {
  const histograms: Histogram[] = [];
  for (let start = 0; start + 1 < words.length; ) {
    const length = words[start]!;
    if (start + 2 + 2 * length > words.length) return undefined;
    const at = words.slice(start + 2, start + 2 + length);
    for (let index = 1; index < length; index++) at[index]! += at[index - 1]!;
    histograms.push({
      at,
      counts: words.subarray(start + 2 + length, start + 2 + 2 * length),
      unset: words[start + 1]!,
    });
    start += 2 + 2 * length;
  }
  return histograms;
}
