import { type Check, SEVERITIES, type Severity, WEIGHTS } from "./check.ts";
import type { Counts } from "./overview.ts";

export interface Score {
  /** Returns 100 × the passed weight ÷ the whole weight with one decimal, or 100 if there are no results. */
  score: number;
  passed: number;
  failed: number;
  total: number;
  /** Weight of failed pairs. */
  bySeverity: Record<Severity, number>;
}

/** Returns the score over the checks in `counts`. */
export function scoreOf(counts: Iterable<readonly [Check, Counts]>): Score {
  const bySeverity = Object.fromEntries(SEVERITIES.map((severity) => [severity, 0])) as Record<Severity, number>;
  let [passed, failed, passedWeight, weight] = [0, 0, 0, 0];
  for (const [{ severity }, count] of counts) {
    passed += count.passed;
    failed += count.failed;
    bySeverity[severity] += count.failed;
    passedWeight += count.passed * WEIGHTS[severity];
    weight += (count.passed + count.failed) * WEIGHTS[severity];
  }
  const score = weight === 0 ? 100 : Math.round((1000 * passedWeight) / weight) / 10;
  return { score, passed, failed, total: passed + failed, bySeverity };
}
