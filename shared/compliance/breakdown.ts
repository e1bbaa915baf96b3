/**
 * Breaks down the compliance score: the checks with violations, and the score of each subscription. The credentials of each kind of
 * directory (Entra, B2C) count as one more subscription, whose ID is a fixed word (`HOLDER_SUBSCRIPTIONS`).
 */
import type { Scope } from "../inventory/scope.ts";
import { failureTitleOf, SEVERITIES, SEVERITY_WEIGHTS, type Severity } from "./check.ts";
import { HOLDER_SUBSCRIPTIONS } from "./excluded-vaults.ts";
import { type CountedOverview, countByCheck } from "./overview.ts";
import { computeScore, type Score } from "./score.ts";

/** A check with violations. All of them can be exempt: `failed` is then 0. */
export interface FailingCheck {
  id: string;
  /** The title of the failure, such as "Expired secret is still enabled". */
  title: string;
  severity: Severity;
  failed: number;
  exempted: number;
}

/** The score of a subscription, or of the credentials of one kind of directory. */
export interface ScoreOfSubscription extends Score {
  /** ID of the subscription. Null for credentials outside of key vaults. */
  subscriptionId: string | null;
  name: string;
}

/** The score by check and by subscription. */
export interface Breakdown {
  /** The checks with violations, those that lower the score the most first. Checks with exempt violations only are last. */
  checks: FailingCheck[];
  /** Lowest score first. */
  subscriptions: ScoreOfSubscription[];
  /** Newest evaluation of any vault, ISO 8601. Null before the first. */
  evaluatedAt: string | null;
}

/** Names that stand for the credentials of a kind of directory, by the fixed word. */
const NAMES_OF_DIRECTORIES: Readonly<Record<string, string>> = {
  entra: "Applications",
  b2c: "B2C tenants",
};

/**
 * Returns the failing checks and the score of each subscription.
 *
 * @param scope - Names of the subscriptions.
 */
export function breakdownOf(overview: CountedOverview, scope: Scope): Breakdown {
  const counts = [...countByCheck(overview)];
  const checks = counts
    .filter(([, { failed, exempted }]) => failed + exempted > 0)
    .sort(
      ([a, { failed: failedA }], [b, { failed: failedB }]) =>
        failedB * SEVERITY_WEIGHTS[b.severity] - failedA * SEVERITY_WEIGHTS[a.severity] ||
        SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) ||
        (a.id < b.id ? -1 : 1),
    )
    .map(([check, { failed, exempted }]) => ({
      id: check.id,
      title: failureTitleOf(check),
      severity: check.severity,
      failed,
      exempted,
    }));
  const bySubscription = Map.groupBy(overview.vaults, ({ subscriptionId }) => subscriptionId.toLowerCase());
  const subscriptions = [...bySubscription]
    .map(([id, vaults]): ScoreOfSubscription => {
      const isDirectory = HOLDER_SUBSCRIPTIONS.includes(id);
      return {
        subscriptionId: isDirectory ? null : id,
        name: isDirectory ? (NAMES_OF_DIRECTORIES[id] ?? id) : (scope.nameOf(id) ?? id),
        ...computeScore(countByCheck({ ...overview, vaults })),
      };
    })
    .filter(({ total }) => total > 0)
    .sort((a, b) => a.score - b.score || b.failed - a.failed || (a.name < b.name ? -1 : 1));
  return { checks, subscriptions, evaluatedAt: overview.evaluatedAt };
}
