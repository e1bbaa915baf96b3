import * as z from "zod";
import { pack, undefinedIfNotPacked, unpackBytes } from "../platform/storage/packed-members.ts";
import type { Change } from "../platform/storage/write-totals.ts";
import { type CountedResults, PackedResults, packResults, unpackResults } from "./changed-results.ts";
import type { EvaluationRecord, TotalsRecord } from "./compliance-rows.ts";
import { HOLDERS, type IsExcluded } from "./excluded-vaults.ts";
import { packTallies, type Tally, unpackTallies } from "./packed-results.ts";

/**
 * Totals of all vaults' results, so that a score reads one row instead of all: for each subscription and each holder of
 * credentials, the numbers of passed and failed pairs by check. Vaults with exemptions of the vault or of its assets are listed
 * individually. Totals are recomputed from the vaults' rows and written under their ETag. Later changes are in rows of their
 * own (changed-results.ts).
 */

/** Maximum number of vaults with the same last evaluation of everything that the totals list by name. */
const MAX_NAMED = 50;
/** An entity has at most 1 MiB. */
const MAX_BYTES = 700_000;

const Covered = z.object({
  /** ID of the last evaluation of everything that covered these vaults. Empty if none did. */
  evaluationId: z.string(),
  vaults: z.int(),
  /** The earliest and the latest time at which one of the vaults was first evaluated. */
  oldest: z.string(),
  newest: z.string(),
  /** The vaults with the time of their first evaluation. Empty if there are too many, or if no listing is needed. */
  named: z.array(z.tuple([z.string(), z.string()])),
});

const Group = z.object({
  subscriptionId: z.string(),
  /** Name of a holder of credentials. Empty for the vaults of a subscription. */
  holder: z.string(),
  /** Packed like a vault's, in base64. */
  tallies: z.string(),
  /** The newest evaluation of any vault of the group: its time, and the vault's name. */
  evaluated: z.tuple([z.string(), z.string()]),
  covered: z.array(Covered),
});

const Packed = z.object({
  vaults: z.int(),
  groups: z.array(Group),
  /** Individually listed vaults. */
  apart: z.array(PackedResults),
  /**
   * All vaults with an exemption of the whole vault, or at which the last evaluation of everything failed, with or without
   * results.
   */
  exempt: z.array(z.string()),
});
export type ResultTotals = z.infer<typeof Packed>;

const groupOf = ({ subscriptionId, name }: Pick<CountedResults, "subscriptionId" | "name">): string =>
  HOLDERS.includes(subscriptionId) ? `${subscriptionId}!${name.toLowerCase()}` : subscriptionId.toLowerCase();

/**
 * Returns the totals of these results, without `totals` if they are too large for a row.
 *
 * @param apart - Lower-case names of vaults to list individually, in addition to those with exemptions of assets.
 */
export function totalsOf(
  all: Iterable<CountedResults>,
  apart: ReadonlySet<string>,
  sequence: string,
): Required<TotalsRecord> | Pick<TotalsRecord, "sequence"> {
  const vaults = [...all];
  const isApart = ({ name, exemptions }: CountedResults) => exemptions.length > 0 || apart.has(name.toLowerCase());
  const groups = [
    ...Map.groupBy(
      vaults.filter((vault) => !isApart(vault)),
      groupOf,
    ),
  ].sort(([a], [b]) => (a < b ? -1 : 1));
  const furthest = vaults.reduce((most, { evaluationId }) => (evaluationId > most ? evaluationId : most), "");
  const packed: ResultTotals = {
    vaults: vaults.length,
    groups: groups.map(([, own]) => {
      const { subscriptionId, name } = own[0]!;
      return {
        subscriptionId: HOLDERS.includes(subscriptionId) ? subscriptionId : subscriptionId.toLowerCase(),
        holder: HOLDERS.includes(subscriptionId) ? name : "",
        tallies: Buffer.from(packTallies(sumOf(own))).toString("base64"),
        evaluated: own.map((one): [string, string] => [one.evaluatedAt, one.name.toLowerCase()]).reduce(later),
        covered: [...Map.groupBy(own, ({ evaluationId }) => evaluationId)]
          .sort(([a], [b]) => (a < b ? -1 : 1))
          .map(([evaluationId, some]) => coveredOf(evaluationId, some, evaluationId < furthest)),
      };
    }),
    apart: vaults.filter(isApart).sort(byName).map(packResults),
    exempt: [...apart].sort(),
  };
  const totals = pack(packed);
  return totals.length <= MAX_BYTES ? { sequence, totals } : { sequence };
}

/** Returns undefined if the data is corrupt. */
export function readTotals({ totals }: Partial<TotalsRecord>): ResultTotals | undefined {
  return totals && undefinedIfNotPacked(() => unpackBytes(totals, Packed));
}

const byName = (a: CountedResults, b: CountedResults): number => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1);
const later = (a: [string, string], b: [string, string]): [string, string] =>
  b[0] > a[0] || (b[0] === a[0] && b[1] < a[1]) ? b : a;

function coveredOf(
  evaluationId: string,
  vaults: readonly CountedResults[],
  isBehind: boolean,
): z.infer<typeof Covered> {
  const created = vaults.map(({ createdAt }) => createdAt).sort();
  const named = vaults.map(({ name, createdAt }): [string, string] => [name.toLowerCase(), createdAt]).sort();
  return {
    evaluationId,
    vaults: vaults.length,
    oldest: created[0]!,
    newest: created.at(-1)!,
    named: isBehind && vaults.length <= MAX_NAMED ? named : [],
  };
}

function sumOf(vaults: readonly CountedResults[]): Map<number, Tally> {
  const sum = new Map<number, Tally>();
  for (const { tallies } of vaults) add(sum, tallies, 1);
  return sum;
}

function add(sum: Map<number, Tally>, tallies: ReadonlyMap<number, Tally>, sign: 1 | -1): void {
  for (const [code, { passed, failed }] of tallies) {
    const of = sum.get(code) ?? { passed: 0, failed: 0 };
    sum.set(code, { passed: of.passed + sign * passed, failed: of.failed + sign * failed });
  }
}

/** Individual vaults, and the sums of the others. */
export interface CountedTogether {
  vaults: Pick<CountedResults, "name" | "subscriptionId" | "tallies" | "exemptions">[];
  /** When a vault was last evaluated. Null if none was. */
  evaluatedAt: string | null;
  /** Number of vaults that the last evaluation of everything has not covered yet. */
  left: number;
}

/**
 * Counts the totals and the changed vaults together. Returns undefined if the result would not be exact.
 *
 * @param changed - By lower-case name.
 * @param exempt - Vaults with an active exemption.
 */
export function countedNow(
  totals: ResultTotals,
  changed: ReadonlyMap<string, Change<CountedResults>>,
  of: { exempt: ReadonlySet<string>; evaluation: EvaluationRecord | undefined; isExcluded: IsExcluded },
): CountedTogether | undefined {
  const apart = new Set(totals.exempt);
  const isAlone = (name: string) => apart.has(name) || changed.has(name);
  for (const name of of.exempt) if (!isAlone(name)) return undefined;

  const groups = new Map(
    totals.groups.map((group) => [
      groupOf({ subscriptionId: group.subscriptionId, name: group.holder }),
      {
        ...group,
        sum: unpackTallies(Buffer.from(group.tallies, "base64")),
        covered: group.covered.map((one) => ({ ...one })),
      },
    ]),
  );
  const single = new Map(totals.apart.map((one) => [one.name.toLowerCase(), unpackResults(one)]));
  /** Times of vaults that had been evaluated last at the time of the totals. */
  const lost: string[] = [];
  for (const [name, { before, now }] of changed) {
    const group = before && !single.delete(name) ? groups.get(groupOf(before)) : undefined;
    if (before && group) {
      add(group.sum, before.tallies, -1);
      if (group.evaluated[1] === name) {
        if (!of.isExcluded({ name: group.holder, subscriptionId: group.subscriptionId })) lost.push(group.evaluated[0]);
        group.evaluated = ["", ""];
      }
      const covered = group.covered.find(({ evaluationId }) => evaluationId === before.evaluationId);
      if (covered) {
        covered.vaults--;
        covered.named = covered.named.filter(([one]) => one !== name);
      }
    }
    if (now) single.set(name, now);
  }

  const counted = [...groups.values()].filter(
    ({ holder, subscriptionId }) => !of.isExcluded({ name: holder, subscriptionId }),
  );
  const vaults = [...single.values()].filter((vault) => !of.isExcluded(vault));
  const instants = [...counted.map(({ evaluated }) => evaluated[0]), ...vaults.map(({ evaluatedAt }) => evaluatedAt)];
  const evaluatedAt = instants.reduce((newest, at) => (at > newest ? at : newest), "");
  // The vault that was evaluated last was removed or changed, and the one before it is not known.
  if (lost.some((at) => at > evaluatedAt)) return undefined;
  const left = leftOf(
    of.evaluation,
    counted.flatMap(({ covered }) => covered),
    vaults,
    isAlone,
  );
  if (left === undefined) return undefined;
  const together = counted.map(({ subscriptionId, holder, sum }) => ({
    name: holder,
    subscriptionId,
    tallies: sum,
    exemptions: [],
  }));
  return { vaults: [...together, ...vaults], evaluatedAt: evaluatedAt || null, left };
}

/** Returns whether an evaluation of everything still has to cover a vault. */
export const isLeft = (
  { evaluationId, requestedAt, failedVaults }: EvaluationRecord,
  vault: { name: string; createdAt: string; evaluationId?: string | undefined },
): boolean =>
  vault.createdAt <= requestedAt &&
  (vault.evaluationId ?? "") < evaluationId &&
  !failedVaults.includes(vault.name.toLowerCase());

function leftOf(
  evaluation: EvaluationRecord | undefined,
  covered: readonly z.infer<typeof Covered>[],
  vaults: readonly CountedResults[],
  isAlone: (name: string) => boolean,
): number | undefined {
  if (!evaluation) return 0;
  let left = vaults.filter((vault) => isLeft(evaluation, vault)).length;
  for (const { evaluationId, oldest, newest, named, ...of } of covered) {
    if (evaluationId >= evaluation.evaluationId || oldest > evaluation.requestedAt || of.vaults === 0) continue;
    if (named.length === of.vaults)
      left += named.filter(([name, createdAt]) => isLeft(evaluation, { name, createdAt, evaluationId })).length;
    else if (newest <= evaluation.requestedAt && evaluation.failedVaults.every(isAlone)) left += of.vaults;
    else return undefined;
  }
  return left;
}
