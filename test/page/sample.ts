/**
 * What the suite looks at of something that is long: `PAGE_VIEWS=all npx vitest run test/page` looks at all of it, `PAGE_SEED`
 * at others. The suite's are always the same.
 */
const SEED = Number(process.env.PAGE_SEED ?? 7);

export const IS_WHOLE = process.env.PAGE_VIEWS === "all";

/** So many of them, spread evenly from a place that the seed gives; every one comes up with some seed. */
export function sampled<T>(all: readonly T[], count: number): T[] {
  if (IS_WHOLE || count >= all.length) return [...all];
  const step = all.length / count;
  return Array.from({ length: count }, (_, at) => all[Math.floor((SEED % all.length) + at * step) % all.length]!);
}

/** Milliseconds that a test of many views may take: all of it takes minutes, and a busy machine ten times as long. */
export const LONG_MS = IS_WHOLE ? 3_600_000 : 900_000;
