/** Draws the random sample of mutants that a run tests. */
import { Dice } from "simulated-cloud/company/dice.ts";
import type { Change, Place } from "./changes.ts";
import { moduleOf } from "./modules.ts";

/** A module is reported separately if it has this many mutants; smaller modules are reported together. */
export const MODULE_SAMPLE = 20;
/** A module with fewer places that can be changed is small. */
const SMALL_MODULE = 200;
export const SMALL_MODULES = "small modules";

/**
 * The mutants of one group (a module, or all small modules) in random order. They are tried in this order until `quota` of them
 * were tested; those that don't compile or don't pass lint do not count.
 */
export interface GroupSample {
  group: string;
  quota: number;
  candidates: Change[];
}

/**
 * Draws mutants, at most one for each place; the same seed and code give the same mutants. Each group gets a quota:
 * MODULE_SAMPLE as far as `count` and the size of the group allow, and a share of the rest by its size.
 */
export function drawMutants(places: Place[], count: number, seed: number): GroupSample[] {
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

/**
 * Returns the places by group. The largest modules are groups of their own, as many as can have MODULE_SAMPLE mutants each. The
 * others, and all small modules, are one group.
 */
function groupsOf(places: Place[], count: number): Map<string, Place[]> {
  const modules = [...Map.groupBy(places, (place) => moduleOf(place[0]!.file))].sort(
    ([, a], [, b]) => b.length - a.length,
  );
  const maximumGroups = Math.floor(count / MODULE_SAMPLE);
  const separate = modules.length > maximumGroups ? maximumGroups - 1 : modules.length;
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
  const equalShare = Math.min(MODULE_SAMPLE, Math.floor(count / sizes.length));
  const quotas = sizes.map((size) => Math.min(size, equalShare));
  const remaining = count - quotas.reduce((sum, quota) => sum + quota, 0);
  const totalSize = sizes.reduce((sum, size) => sum + size, 0);
  const exactShares = sizes.map((size) => (remaining * size) / totalSize);
  const roundedShares = exactShares.map(Math.floor);
  const byRemainder = exactShares
    .map((_, index) => index)
    .sort((a, b) => (exactShares[b]! % 1) - (exactShares[a]! % 1));
  const rounding = remaining - roundedShares.reduce((sum, each) => sum + each, 0);
  for (const index of byRemainder.slice(0, rounding)) roundedShares[index]! += 1;
  return quotas.map((quota, index) => Math.min(sizes[index]!, quota + roundedShares[index]!));
}
