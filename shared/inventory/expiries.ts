import type { ExpiryRange } from "./health.ts";

/** Stands for "no expiry" among the packed instants: the largest, so that it sorts last. */
const UNSET = 0xffffffff;

/**
 * The expiries of one vault's assets of one type, packed as ascending 32-bit unix seconds (until 2106, later ones count
 * as the last). Every total of an asset query is counted from these: one small row per vault, written only by that
 * vault's worker, where counters would drift with every message that comes twice.
 */
export function packExpiries(expiries: Iterable<number | undefined>): Uint8Array<ArrayBuffer> {
  const instants = Uint32Array.from(expiries, (expiry) => (expiry === undefined ? UNSET : packed32(expiry)));
  return new Uint8Array(instants.sort().buffer);
}

const packed32 = (instant: number): number => Math.min(Math.max(instant, 0), UNSET - 1);

/** How many of them lie in the range (all, when none is given). */
export function countExpiries(packed: Uint8Array | undefined, range?: ExpiryRange): number {
  if (!packed) return 0;
  const instants = unpack(packed);
  if (!range) return instants.length;
  const end = firstAtLeast(instants, UNSET);
  const from = firstAtLeast(instants, packed32(range.from));
  const set = Math.max(0, Math.min(end, firstAtLeast(instants, range.before)) - from);
  return set + (range.unset ? instants.length - end : 0);
}

function unpack(packed: Uint8Array): Uint32Array {
  // A copy, since decoded bytes may lie unaligned in a larger buffer.
  return new Uint32Array(new Uint8Array(packed).buffer);
}

/** Index of the first instant that is not below `instant`. */
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
