import { type Check, SEVERITIES, SEVERITY_WEIGHTS, type Severity } from "./check.ts";
import type { Counts } from "./overview.ts";

/**
 * The compliance score: the share of passed results, each weighted by the severity of its check. Computed for the whole
 * inventory and for each framework.
 */
export interface Score {
  /** 100 × weight of passed results ÷ weight of all results, with one decimal. 100 if there are no results. */
  score: number;
  passed: number;
  failed: number;
  total: number;
  /** Number of failed results by severity. */
  bySeverity: Record<Severity, number>;
}

/** Returns the score over the checks in `counts`. A result weighs as much as its check's severity; see check.ts. */
export function computeScore(counts: Iterable<readonly [Check, Counts]>): Score {
  const bySeverity = Object.fromEntries(SEVERITIES.map((severity) => [severity, 0])) as Record<Severity, number>;
  let [passed, failed, passedWeight, weight] = [0, 0, 0, 0];
  for (const [{ severity }, count] of counts) {
    passed += count.passed;
    failed += count.failed;
    bySeverity[severity] += count.failed;
    passedWeight += count.passed * SEVERITY_WEIGHTS[severity];
    weight += (count.passed + count.failed) * SEVERITY_WEIGHTS[severity];
  }
  const score = weight === 0 ? 100 : Math.round((1000 * passedWeight) / weight) / 10;
  return { score, passed, failed, total: passed + failed, bySeverity };
}
