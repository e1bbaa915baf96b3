/**
 * Whether all cases of sampled tests run. The suite runs a sample, which is the same in every run, so that a failure is caused
 * by the tested change. A campaign (`CAMPAIGN=all npx vitest run test/rotation`) runs every case, or many more random cases.
 */
export const IS_CAMPAIGN = process.env.CAMPAIGN === "all";

/** The seed of random tests and samples. `SEED=7` selects other cases than those of the suite. */
export const SEED = Number(process.env.SEED ?? 20_261_121);
if (!Number.isSafeInteger(SEED) || SEED < 0) throw new Error("SEED is no whole number of at least 0.");

/**
 * Returns `count` evenly spread items, starting at a position that depends on the seed. Every item is selected by some seed. A
 * campaign gets all items.
 */
export function sampled<T>(all: readonly T[], count: number): T[] {
  if (IS_CAMPAIGN || count >= all.length) return [...all];
  const step = all.length / count;
  return Array.from({ length: count }, (_, at) => all[Math.floor((SEED % all.length) + at * step) % all.length]!);
}

/**
 * Time limit in milliseconds for a test with many cases. A campaign takes minutes, and up to ten times as long on a busy
 * machine.
 */
export const LONG_MS = IS_CAMPAIGN ? 3_600_000 : 900_000;
