/** Counts open violations by owner. Owners are stored with each violation, so the violations are read. */
import type { Tables } from "../platform/storage/tables.ts";
import { SEVERITIES, type Severity } from "./check.ts";
import type { Overview } from "./overview.ts";
import { exemptionIdOf } from "./violation.ts";
import { MAX_STEPS, readNextEntries, slicesAfter, slicesOf, VIOLATIONS_PER_STEP } from "./violations.ts";

type BySeverity = Record<Severity, number>;

/** An owner with open violations. A violation stores up to three owners of its resource, and counts for each of them. */
export interface OwnerViolations {
  owner: string;
  failed: number;
  bySeverity: BySeverity;
}

/** Violations without an exemption, by owner. */
export interface ViolationsByOwner {
  /** Owners with the most critical violations first, then by the next lower severities. */
  owners: OwnerViolations[];
  /** Number of violations of resources without an owner. */
  none: number;
  noneBySeverity: BySeverity;
  /** Number of examined violations. */
  examined: number;
  /** False if there are more violations than one call examines. The most severe ones are examined first. */
  complete: boolean;
}

/**
 * Counts the open violations of each owner. Examines up to 10,000 violations, as many as one page of a list with the filter
 * `owner`.
 */
export async function violationsByOwner(tables: Tables, overview: Overview): Promise<ViolationsByOwner> {
  const owners = new Map<string, BySeverity>();
  const withoutOwner = noViolations();
  let [remaining, examined, complete] = [slicesOf({}, overview), 0, false];
  for (let step = 0; step < MAX_STEPS && !complete; step++) {
    const { entries, next } = await readNextEntries(tables, overview, remaining, 0, VIOLATIONS_PER_STEP);
    examined += entries.length;
    for (const { slice, finding } of entries) {
      if (exemptionIdOf(slice, finding, overview) !== null) continue;
      // `finding[3]` are the facts of the failing resource, such as its owners.
      const ownersOfFinding = new Set(finding[3]?.owners);
      if (ownersOfFinding.size === 0) withoutOwner[slice.check.severity]++;
      for (const owner of ownersOfFinding) {
        const bySeverity = owners.get(owner) ?? noViolations();
        bySeverity[slice.check.severity]++;
        owners.set(owner, bySeverity);
      }
    }
    if (next) remaining = slicesAfter(remaining, next);
    else complete = true;
  }
  return {
    owners: [...owners].map(ownerViolations).sort(bySeverityAndName),
    none: totalOf(withoutOwner),
    noneBySeverity: withoutOwner,
    examined,
    complete,
  };
}

const noViolations = (): BySeverity => ({ critical: 0, high: 0, medium: 0, low: 0 });

const totalOf = (bySeverity: BySeverity): number => SEVERITIES.reduce((sum, severity) => sum + bySeverity[severity], 0);

const ownerViolations = ([owner, bySeverity]: [string, BySeverity]): OwnerViolations => ({
  owner,
  failed: totalOf(bySeverity),
  bySeverity,
});

function bySeverityAndName(a: OwnerViolations, b: OwnerViolations): number {
  for (const severity of SEVERITIES) {
    const difference = b.bySeverity[severity] - a.bySeverity[severity];
    if (difference !== 0) return difference;
  }
  return a.owner < b.owner ? -1 : 1;
}
