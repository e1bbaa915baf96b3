import { Dice } from "simulated-cloud/company/dice.ts";
import type { Change, Place } from "./changes.ts";
import { moduleOf } from "./modules.ts";

/** A module is reported separately if it has this many mutants; smaller modules are reported together. */
export const MODULE_SAMPLE = 20;
/** A module with fewer places is small. */
const SMALL_MODULE = 200;
export const SMALL_MODULES = "small modules";

/** The mutants of one module in random order. `quota` of them that compile are tested. */
export interface Draw {
  group: string;
  quota: number;
  candidates: Change[];
}

/**
 * Draws mutants by the seed, at most one for each place. Each group gets a quota: at least MODULE_SAMPLE as far as `count`
 * allows, and the rest by the sizes of the groups. Mutants that don't compile are replaced by the next candidate.
 */
export function draw(places: Place[], count: number, seed: number): Draw[] {
  const dice = new Dice(seed);
  const groups = groupsOf(places, count);
  const sizes = [...groups.values()].map((group) => group.length);
  const quotas = quotasOf(sizes, count);
  return [...groups].map(([group, all], index) => ({
    group,
    quota: quotas[index]!,
    candidates: dice.sample(all, all.length).map((place) => dice.pick(place)),
  }));
}

/** Returns the largest modules as groups of their own, as many as can have MODULE_SAMPLE each, and the others as one group. */
function groupsOf(places: Place[], count: number): Map<string, Place[]> {
  const modules = [...Map.groupBy(places, (place) => moduleOf(place[0]!.file))].sort(
    ([, a], [, b]) => b.length - a.length,
  );
  const most = Math.floor(count / MODULE_SAMPLE);
  const separate = modules.length > most ? most - 1 : modules.length;
  const groups = new Map<string, Place[]>();
  for (const [index, [module, all]] of modules.entries()) {
    const isSmall = index >= separate || all.length < SMALL_MODULE;
    const name = isSmall && modules.length > 1 ? SMALL_MODULES : module;
    groups.set(name, [...(groups.get(name) ?? []), ...all]);
  }
  return new Map([...groups].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Returns an even share of at most MODULE_SAMPLE for each group, plus the rest by size with the largest remainders first. */
function quotasOf(sizes: number[], count: number): number[] {
  const even = Math.min(MODULE_SAMPLE, Math.floor(count / sizes.length));
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
