import type { Doctor } from "./context.ts";

/** What a check of one call found, from good to bad. docs/doctor.md says what each means. */
export const OUTCOMES = [
  "works",
  "off",
  "notProven",
  "answeredWithBlanks",
  "permissionMissing",
  "unreachable",
  "failed",
] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** The result of a call for one resource. */
export interface Result {
  outcome: Outcome;
  /** The resource that was called, in words, such as `key vault kv-payments`. */
  resource: string;
  /** What was found, in a sentence. Absent if the call works and there is nothing to add. */
  detail?: string;
  /** The fix in a sentence. */
  remedy?: string;
  /** A command that fixes it. */
  command?: string;
}

/** One outgoing call of the service. `CALLS` lists all of them. */
export interface OutgoingCall {
  /** Stable name, such as `keyVault.listSecrets`. */
  id: string;
  /** The feature that needs the call: the first cell of its row in `page`, if that page has a table of permissions. */
  feature: string;
  /** The request, as documented. */
  call: string;
  /** Everything that the identity must be permitted, as `page` names it. */
  permissions: readonly string[];
  /** Page and section that explain the permission, below docs/. */
  page: string;
  /** True if the service works without the permission, or if it is needed only in some places. A missing one is then no error. */
  optional?: true;
  /** Makes the call, or finds out by other reads whether it would work. Returns a result for each resource. */
  check(doctor: Doctor): Promise<Result[]>;
}

export const off = (detail: string): Result[] => [{ outcome: "off", resource: "the service", detail }];

export const notProven = (resource: string, detail: string): Result => ({ outcome: "notProven", resource, detail });

/** Returns the worst outcome of the results, which stands for the call. */
export function worstOf(results: readonly Result[]): Outcome {
  const worst = Math.max(...results.map(({ outcome }) => OUTCOMES.indexOf(outcome)));
  // A call that works for some resources and could not be tried for others is proven.
  const works = results.some(({ outcome }) => outcome === "works");
  return works && OUTCOMES[worst] === "notProven" ? "works" : OUTCOMES[worst]!;
}
