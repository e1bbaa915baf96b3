import { DAY_SECONDS } from "../platform/time.ts";
import type { ExpiryRange } from "./asset-status.ts";

/**
 * The expiries of a vault's assets of one type, packed into one value of the vault's row, and the counts that are
 * computed from it.
 */

/** Stands for "no expiry" in packed expiries: the largest value, so that it sorts last. */
export const UNSET = 0xffffffff;

/**
 * Packs the expiries of one vault's assets of one type as ascending 32-bit unix seconds (until 2106; later ones count as the
 * last second). All totals of asset queries are counted from these: one small value per vault, written only by the vault's
 * worker. Counters would become wrong with duplicate deliveries.
 */
export function packExpiries(expiries: Iterable<number | undefined>): Uint8Array<ArrayBuffer> {
  const instants = Uint32Array.from(expiries, (expiry) => (expiry === undefined ? UNSET : clampTo32Bits(expiry)));
  return new Uint8Array(instants.sort().buffer);
}

const clampTo32Bits = (instant: number): number => Math.min(Math.max(instant, 0), UNSET - 1);

/** Returns the number of expiries in the range, or of all. */
export function countExpiries(packed: Uint8Array | undefined, range?: ExpiryRange): number {
  if (!packed) return 0;
  const instants = unpackExpiries(packed);
  if (!range) return instants.length;
  const firstUnset = firstAtLeast(instants, UNSET);
  const from = firstAtLeast(instants, clampTo32Bits(range.from));
  const withExpiry = Math.max(0, Math.min(firstUnset, firstAtLeast(instants, range.before)) - from);
  return withExpiry + (range.unset ? instants.length - firstUnset : 0);
}

/** Adds the number of assets that expire on each UTC day from the given one on to `counts`. Days are numbered since 1970. */
export function addByDay(counts: number[], packed: Uint8Array | undefined, firstDay: number): void {
  if (!packed) return;
  const instants = unpackExpiries(packed);
  const end = Math.min(firstAtLeast(instants, (firstDay + counts.length) * DAY_SECONDS), firstAtLeast(instants, UNSET));
  for (let index = firstAtLeast(instants, firstDay * DAY_SECONDS); index < end; index++) {
    const day = Math.floor(instants[index]! / DAY_SECONDS) - firstDay;
    counts[day] = counts[day]! + 1;
  }
}

/** Returns the first expiries from `from` on, in unix seconds. Assets without an expiry are left out. */
export function nextExpiries(packed: Uint8Array | undefined, from: number, count: number): number[] {
  if (!packed) return [];
  const instants = unpackExpiries(packed);
  const firstIndex = firstAtLeast(instants, clampTo32Bits(from));
  return [...instants.subarray(firstIndex, Math.min(firstIndex + count, firstAtLeast(instants, UNSET)))];
}

/** Returns ascending unix seconds, `UNSET` for assets without an expiry. */
export function unpackExpiries(packed: Uint8Array | undefined): Uint32Array {
  // A copy, since decoded bytes may be unaligned in a larger buffer.
  return new Uint32Array(new Uint8Array(packed ?? []).buffer);
}

/** Returns the index of the first expiry that is not before `instant`. */
function firstAtLeast(instants: Uint32Array, instant: number): number {
  let low = 0;
  let high = instants.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (instants[middle]! < instant) low = middle + 1;
    else high = middle;
  }
  return low;
}
