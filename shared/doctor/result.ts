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

/** The members with which a call changes its result `works`. A call that just works returns nothing. */
// biome-ignore lint/suspicious/noConfusingVoidType: most calls return nothing
export type Added = Partial<Result> | undefined | void;

/** Returns the results of a call whose feature is off. */
export const off = (detail: string): Result[] => [{ outcome: "off", resource: "the service", detail }];

/** Returns the result of a resource for which a read can't show whether the call works. */
export const notProven = (resource: string, detail: string): Result => ({ outcome: "notProven", resource, detail });

/**
 * Joins the checks of several actions that one call needs. Returns one result, which is `works` only if all actions are permitted.
 * Otherwise its detail names each action that is missing.
 */
export async function joinActions(checks: readonly Promise<Result[]>[]): Promise<Result[]> {
  const results = (await Promise.all(checks)).flat();
  const missing = results.filter(({ outcome }) => outcome !== "works");
  const [first] = missing.length > 0 ? missing : results;
  // The actions can have the same detail, for example that the roles can't be read.
  const details = new Set(missing.flatMap(({ detail }) => detail ?? []));
  return first ? [{ ...first, ...(details.size > 1 && { detail: [...details].join(" ") }) }] : [];
}

/** Returns the worst outcome of the results, which stands for the call. */
export function worstOf(results: readonly Result[]): Outcome {
  const worst = Math.max(...results.map(({ outcome }) => OUTCOMES.indexOf(outcome)));
  // A call that works for some resources and could not be tried for others is proven.
  const works = results.some(({ outcome }) => outcome === "works");
  return works && OUTCOMES[worst] === "notProven" ? "works" : OUTCOMES[worst]!;
}
