/**
 * How much of a long walk is tried. The suite takes a sample, the same in each run, so that it tells of the change that is tested
 * and of nothing else. A campaign (`CAMPAIGN=all npx vitest run test/rotation`) takes every case, or many more of endless ones.
 */
export const IS_CAMPAIGN = process.env.CAMPAIGN === "all";

/** What a random test and a sample draw by: `SEED=7` draws others than the suite's. */
export const SEED = Number(process.env.SEED ?? 20_261_121);
if (!Number.isSafeInteger(SEED) || SEED < 0) throw new Error("SEED is no whole number of at least 0.");

/** So many of them, spread evenly from a place that the seed gives; every one comes up with some seed. All in a campaign. */
export function sampled<T>(all: readonly T[], count: number): T[] {
  if (IS_CAMPAIGN || count >= all.length) return [...all];
  const step = all.length / count;
  return Array.from({ length: count }, (_, at) => all[Math.floor((SEED % all.length) + at * step) % all.length]!);
}

/** Milliseconds that a test of many cases may take: all of them take minutes, and a busy machine ten times as long. */
export const LONG_MS = IS_CAMPAIGN ? 3_600_000 : 900_000;
