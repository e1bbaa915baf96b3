import type { Finding } from "../chain/findings.ts";

/** Maximum number of findings in one response. */
export const MAX_FINDINGS = 1000;

/** Collects the findings of one response. Up to MAX_FINDINGS are listed, all that the checks found are counted. */
export interface FindingList {
  readonly listed: Finding[];
  readonly total: number;
  add(...findings: readonly Finding[]): void;
  /** Counts findings that are not listed. */
  addUnlisted(count: number): void;
}

export function createFindingList(): FindingList {
  const listed: Finding[] = [];
  let total = 0;
  return {
    listed,
    get total() {
      return total;
    },
    add(...findings) {
      total += findings.length;
      listed.push(...findings.slice(0, Math.max(0, MAX_FINDINGS - listed.length)));
    },
    addUnlisted(count) {
      total += count;
    },
  };
}
