import { Dice } from "simulated-cloud/company/dice.ts";
import type { Change, Place } from "./changes.ts";
import { roomOf } from "./rooms.ts";

/** A room is judged by itself with this many changes; smaller rooms are judged together. */
export const ROOM_SAMPLE = 20;
/** A room with fewer places than this is small. */
const SMALL_ROOM = 200;
export const SMALL_ROOMS = "small rooms";

/**
 * Draws `count` changes by the seed, at most one of a place: at least ROOM_SAMPLE a room as far as `count` goes, the
 * rest by the rooms' sizes.
 */
export function draw(places: Place[], count: number, seed: number): { group: string; change: Change }[] {
  const dice = new Dice(seed);
  const groups = groupsOf(places, count);
  const sizes = [...groups.values()].map((group) => group.length);
  const quotas = quotasOf(sizes, count);
  return [...groups].flatMap(([group, all], index) =>
    dice.sample(all, quotas[index]!).map((place) => ({ group, change: dice.pick(place) })),
  );
}

/** The largest rooms by themselves, as many as can have ROOM_SAMPLE each, and all others together. */
function groupsOf(places: Place[], count: number): Map<string, Place[]> {
  const rooms = [...Map.groupBy(places, (place) => roomOf(place[0]!.file))].sort(([, a], [, b]) => b.length - a.length);
  const most = Math.floor(count / ROOM_SAMPLE);
  const alone = rooms.length > most ? most - 1 : rooms.length;
  const groups = new Map<string, Place[]>();
  for (const [index, [room, all]] of rooms.entries()) {
    const isSmall = index >= alone || all.length < SMALL_ROOM;
    const name = isSmall && rooms.length > 1 ? SMALL_ROOMS : room;
    groups.set(name, [...(groups.get(name) ?? []), ...all]);
  }
  return new Map([...groups].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** An even share first, at most ROOM_SAMPLE each; what is left by size, the largest remainders first. */
function quotasOf(sizes: number[], count: number): number[] {
  const even = Math.min(ROOM_SAMPLE, Math.floor(count / sizes.length));
  const quotas = sizes.map((size) => Math.min(size, even));
  const left = count - quotas.reduce((sum, quota) => sum + quota, 0);
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  const exact = sizes.map((size) => (left * size) / whole);
  const wanted = exact.map(Math.floor);
  const byRemainder = exact.map((_, index) => index).sort((a, b) => (exact[b]! % 1) - (exact[a]! % 1));
  const rounding = left - wanted.reduce((sum, each) => sum + each, 0);
  for (const index of byRemainder.slice(0, rounding)) wanted[index]! += 1;
  return quotas.map((quota, index) => Math.min(sizes[index]!, quota + wanted[index]!));
}
