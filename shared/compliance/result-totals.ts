/**
 * Totals of all vaults' results, so that a score reads one row instead of the rows of all vaults. For each subscription and
 * each holder of credentials (an entry that takes the place of a vault), a group has the numbers of passed and failed results
 * of each check. Vaults with an exemption of the vault or of an asset are listed individually instead. renew-totals.ts
 * recomputes the totals. A vault that changed later has a mark: a row with its results before and after the change
 * (changed-results.ts).
 *
 * "Evaluation" in this file is an evaluation of all vaults that a user requested. It has "covered" a vault once it evaluated
 * it.
 */
import * as z from "zod";
import { pack, undefinedIfNotPacked, unpackBytes } from "../platform/storage/packed-members.ts";
import type { Change } from "../platform/storage/write-totals.ts";
import { type CountedResults, PackedResults, packResults, unpackResults } from "./changed-results.ts";
import type { EvaluationRecord, TotalsRecord } from "./compliance-rows.ts";
import { HOLDER_SUBSCRIPTIONS, type IsExcluded } from "./excluded-vaults.ts";
import { packTallies, type Tally, unpackTallies } from "./packed-results.ts";

/** If more vaults of a group were last covered by the same evaluation, the totals don't list their names. */
const MAX_NAMED_VAULTS = 50;
/** Maximum size of the packed totals. A row has at most 1 MiB. */
const MAX_PACKED_BYTES = 700_000;

/** The vaults of a group that were last covered by the same evaluation. */
const Covered = z.object({
  /** ID of that evaluation. Empty if none covered these vaults. */
  evaluationId: z.string(),
  vaults: z.int(),
  /** The earliest and the latest time at which one of the vaults was first evaluated. */
  oldest: z.string(),
  newest: z.string(),
  /**
   * Names of the vaults, with the time of their first results. Empty if there are too many, or if the evaluation is the latest
   * one.
   */
  named: z.array(z.tuple([z.string(), z.string()])),
});

const Group = z.object({
  subscriptionId: z.string(),
  /** Name of a holder of credentials. Empty for the vaults of a subscription. */
  holder: z.string(),
  /** Sum of the vaults' tallies, packed as in a vault's row, in base64. */
  tallies: z.string(),
  /** The time at which a vault of the group was last evaluated, and the name of that vault. */
  evaluated: z.tuple([z.string(), z.string()]),
  covered: z.array(Covered),
});

const Packed = z.object({
  vaults: z.int(),
  groups: z.array(Group),
  /** Vaults that are listed individually and belong to no group. */
  apart: z.array(PackedResults),
  /**
   * Names of all vaults with an exemption of the whole vault, or at which the last evaluation failed. Includes vaults without
   * results.
   */
  exempt: z.array(z.string()),
});
export type ResultTotals = z.infer<typeof Packed>;

/**
 * Returns the key of the group in which a vault is counted: its subscription, or for a holder of credentials the holder itself.
 * A holder's `subscriptionId` is a fixed word such as `entra`, one of `HOLDER_SUBSCRIPTIONS`.
 */
const groupKeyOf = ({ subscriptionId, name }: Pick<CountedResults, "subscriptionId" | "name">): string =>
  HOLDER_SUBSCRIPTIONS.includes(subscriptionId)
    ? `${subscriptionId}!${name.toLowerCase()}`
    : subscriptionId.toLowerCase();

/**
 * Returns the totals of these results, without `totals` if they are too large for a row.
 *
 * @param individualVaults - Lower-case names of vaults to list individually, in addition to those with exemptions of assets.
 * @param sequence - New with each write. A reader that finds two values in one query knows that the totals were replaced.
 */
export function computeTotals(
  all: Iterable<CountedResults>,
  individualVaults: ReadonlySet<string>,
  sequence: string,
): Required<TotalsRecord> | Pick<TotalsRecord, "sequence"> {
  const vaults = [...all];
  const isIndividual = ({ name, exemptions }: CountedResults) =>
    exemptions.length > 0 || individualVaults.has(name.toLowerCase());
  const groups = [
    ...Map.groupBy(
      vaults.filter((vault) => !isIndividual(vault)),
      groupKeyOf,
    ),
  ].sort(([a], [b]) => (a < b ? -1 : 1));
  const latestEvaluationId = vaults.reduce((most, { evaluationId }) => (evaluationId > most ? evaluationId : most), "");
  const packed: ResultTotals = {
    vaults: vaults.length,
    groups: groups.map(([, members]) => {
      const { subscriptionId, name } = members[0]!;
      return {
        subscriptionId: HOLDER_SUBSCRIPTIONS.includes(subscriptionId) ? subscriptionId : subscriptionId.toLowerCase(),
        holder: HOLDER_SUBSCRIPTIONS.includes(subscriptionId) ? name : "",
        tallies: Buffer.from(packTallies(sumTallies(members))).toString("base64"),
        evaluated: members
          .map((vault): [string, string] => [vault.evaluatedAt, vault.name.toLowerCase()])
          .reduce(laterEvaluation),
        covered: [...Map.groupBy(members, ({ evaluationId }) => evaluationId)]
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([evaluationId, coveredVaults]) =>
            coverageOf(evaluationId, coveredVaults, evaluationId < latestEvaluationId),
          ),
      };
    }),
    apart: vaults.filter(isIndividual).sort(byName).map(packResults),
    exempt: [...individualVaults].sort(),
  };
  const totals = pack(packed);
  return totals.length <= MAX_PACKED_BYTES ? { sequence, totals } : { sequence };
}

/** Unpacks stored totals. Undefined if there are none or the data is corrupt. */
export function readTotals({ totals }: Partial<TotalsRecord>): ResultTotals | undefined {
  return totals && undefinedIfNotPacked(() => unpackBytes(totals, Packed));
}

const byName = (a: CountedResults, b: CountedResults): number => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1);
/**
 * Returns the later of two pairs of time and vault name. With equal times, the first name, so that recomputing gives the same.
 */
const laterEvaluation = (a: [string, string], b: [string, string]): [string, string] =>
  b[0] > a[0] || (b[0] === a[0] && b[1] < a[1]) ? b : a;

function coverageOf(
  evaluationId: string,
  vaults: readonly CountedResults[],
  isOutdated: boolean,
): z.infer<typeof Covered> {
  const created = vaults.map(({ createdAt }) => createdAt).sort();
  const named = vaults.map(({ name, createdAt }): [string, string] => [name.toLowerCase(), createdAt]).sort();
  return {
    evaluationId,
    vaults: vaults.length,
    oldest: created[0]!,
    newest: created.at(-1)!,
    named: isOutdated && vaults.length <= MAX_NAMED_VAULTS ? named : [],
  };
}

function sumTallies(vaults: readonly CountedResults[]): Map<number, Tally> {
  const sum = new Map<number, Tally>();
  for (const { tallies } of vaults) addTallies(sum, tallies, 1);
  return sum;
}

function addTallies(sum: Map<number, Tally>, tallies: ReadonlyMap<number, Tally>, sign: 1 | -1): void {
  for (const [code, { passed, failed }] of tallies) {
    const tally = sum.get(code) ?? { passed: 0, failed: 0 };
    sum.set(code, { passed: tally.passed + sign * passed, failed: tally.failed + sign * failed });
  }
}

/** The current results: vaults that are counted individually, and an entry for the sum of each group. */
export interface CurrentCounts {
  vaults: Pick<CountedResults, "name" | "subscriptionId" | "tallies" | "exemptions">[];
  /** The newest time at which any vault was evaluated. Null if none was. */
  evaluatedAt: string | null;
  /** Number of vaults that the last requested evaluation has not covered yet. */
  vaultsLeft: number;
}

/**
 * Returns the totals with the changes of marked vaults applied: takes each such vault out of the sum of its group, and counts its
 * current results individually. Returns undefined if the result would not be exact. A change has the vault's results as the totals
 * count them (`before`) and the current ones (`now`); either is undefined if there are none.
 *
 * @param changed - The marks, by the vault's lower-case name.
 * @param current - `exempt`: lower-case names of vaults with an active exemption of the whole vault.
 */
export function applyChanges(
  totals: ResultTotals,
  changed: ReadonlyMap<string, Change<CountedResults>>,
  current: { exempt: ReadonlySet<string>; evaluation: EvaluationRecord | undefined; isExcluded: IsExcluded },
): CurrentCounts | undefined {
  const individualVaults = new Set(totals.exempt);
  const isIndividual = (name: string) => individualVaults.has(name) || changed.has(name);
  // If an exemption of a vault was added after the totals, the vault's results must be counted apart from the group's sum.
  for (const name of current.exempt) if (!isIndividual(name)) return undefined;

  const groups = new Map(
    totals.groups.map((group) => [
      groupKeyOf({ subscriptionId: group.subscriptionId, name: group.holder }),
      {
        ...group,
        sum: unpackTallies(Buffer.from(group.tallies, "base64")),
        covered: group.covered.map((coverage) => ({ ...coverage })),
      },
    ]),
  );
  const individual = new Map(totals.apart.map((results) => [results.name.toLowerCase(), unpackResults(results)]));
  /** Newest times of groups whose last evaluated vault changed or was removed. The next older time of such a group is unknown. */
  const removedTimes: string[] = [];
  for (const [name, { before, now }] of changed) {
    // The totals count the vault's results before the change either individually, which ends here, or in the sum of its group.
    const group = before && !individual.delete(name) ? groups.get(groupKeyOf(before)) : undefined;
    if (before && group) {
      addTallies(group.sum, before.tallies, -1);
      if (group.evaluated[1] === name) {
        if (!current.isExcluded({ name: group.holder, subscriptionId: group.subscriptionId }))
          removedTimes.push(group.evaluated[0]);
        group.evaluated = ["", ""];
      }
      const covered = group.covered.find(({ evaluationId }) => evaluationId === before.evaluationId);
      if (covered) {
        covered.vaults--;
        covered.named = covered.named.filter(([vaultName]) => vaultName !== name);
      }
    }
    if (now) individual.set(name, now);
  }

  const countedGroups = [...groups.values()].filter(
    ({ holder, subscriptionId }) => !current.isExcluded({ name: holder, subscriptionId }),
  );
  const vaults = [...individual.values()].filter((vault) => !current.isExcluded(vault));
  const instants = [
    ...countedGroups.map(({ evaluated }) => evaluated[0]),
    ...vaults.map(({ evaluatedAt }) => evaluatedAt),
  ];
  const evaluatedAt = instants.reduce((newest, instant) => (instant > newest ? instant : newest), "");
  // A vault that only changed has a newer time. So such a newest time belongs to a removed vault, and only the vaults' rows
  // tell the next older time.
  if (removedTimes.some((time) => time > evaluatedAt)) return undefined;
  const vaultsLeft = countVaultsLeft(
    current.evaluation,
    countedGroups.flatMap(({ covered }) => covered),
    vaults,
    isIndividual,
  );
  if (vaultsLeft === undefined) return undefined;
  const groupSums = countedGroups.map(({ subscriptionId, holder, sum }) => ({
    name: holder,
    subscriptionId,
    tallies: sum,
    exemptions: [],
  }));
  return { vaults: [...groupSums, ...vaults], evaluatedAt: evaluatedAt || null, vaultsLeft };
}

/**
 * Returns whether the requested evaluation still has to cover a vault. It ignores vaults added later, and vaults at which it
 * failed.
 */
export const isStillToEvaluate = (
  { evaluationId, requestedAt, failedVaults }: EvaluationRecord,
  vault: { name: string; createdAt: string; evaluationId?: string | undefined },
): boolean =>
  vault.createdAt <= requestedAt &&
  (vault.evaluationId ?? "") < evaluationId &&
  !failedVaults.includes(vault.name.toLowerCase());

/**
 * Returns the number of vaults that the requested evaluation has not covered yet. Undefined if the totals can't tell: they lack
 * the names of a group's vaults, and only some of these vaults are left.
 */
function countVaultsLeft(
  evaluation: EvaluationRecord | undefined,
  covered: readonly z.infer<typeof Covered>[],
  vaults: readonly CountedResults[],
  isIndividual: (name: string) => boolean,
): number | undefined {
  if (!evaluation) return 0;
  let vaultsLeft = vaults.filter((vault) => isStillToEvaluate(evaluation, vault)).length;
  for (const { evaluationId, oldest, newest, named, vaults: count } of covered) {
    // These vaults were covered by this evaluation or a later one, or all of them were added after its request.
    if (evaluationId >= evaluation.evaluationId || oldest > evaluation.requestedAt || count === 0) continue;
    if (named.length === count)
      vaultsLeft += named.filter(([name, createdAt]) =>
        isStillToEvaluate(evaluation, { name, createdAt, evaluationId }),
      ).length;
    else if (newest <= evaluation.requestedAt && evaluation.failedVaults.every(isIndividual)) vaultsLeft += count;
    else return undefined;
  }
  return vaultsLeft;
}
