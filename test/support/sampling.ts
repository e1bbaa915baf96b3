/**
 * Whether this run is a campaign. Some tests have more cases than a normal run has time for. A normal run tests a sample of the
 * cases. It is the same in every run, so that a new failure is caused by a change of the code. A campaign
 * (`CAMPAIGN=all npx vitest run test/rotation`) tests every case, or many more random cases.
 */
export const IS_CAMPAIGN = process.env.CAMPAIGN === "all";

/** The seed of random tests and samples. The environment variable `SEED=7` selects other cases. */
export const SEED = Number(process.env.SEED ?? 20_261_121);
if (!Number.isSafeInteger(SEED) || SEED < 0) throw new Error("SEED is no whole number of at least 0.");

/**
 * Returns `count` evenly spread items, starting at a position that depends on the seed, so that every item is selected by some
 * seed. In a campaign, returns all items.
 */
export function sampled<T>(all: readonly T[], count: number): T[] {
  if (IS_CAMPAIGN || count >= all.length) return [...all];
  const step = all.length / count;
  const start = SEED % all.length;
  return Array.from({ length: count }, (_, index) => all[Math.floor(start + index * step) % all.length]!);
}

/**
 * Time limit in milliseconds for a test with many cases. A campaign takes minutes per test, and up to ten times as long on a
 * busy machine.
 */
export const LONG_MS = IS_CAMPAIGN ? 3_600_000 : 900_000;
