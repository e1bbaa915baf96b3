/**
 * Reads the results of all vaults and their exemptions. An `Overview` has each vault, for lists of violations. A
 * `CountedOverview` is enough for scores: it usually costs one request, because it uses the stored totals. A vault whose results
 * changed after the totals were computed has a row, the mark, with its results before and after the change.
 *
 * A "pair" is a check together with a resource that it applies to. A "holder" is an entry that takes the place of a vault for
 * the credentials of a directory; its `subscriptionId` is a fixed word such as `entra`.
 */
import { toStorageCorrupt } from "../platform/storage/packed-members.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Change } from "../platform/storage/write-totals.ts";
import { type CountedResults, readChangedResults } from "./changed-results.ts";
import type { Check } from "./check.ts";
import { CHECKS, checkOfCode } from "./checks/all.ts";
import {
  EVALUATION_KEY,
  EvaluationRecord,
  ExemptionRecord,
  isChangedVaultKey,
  isExemptionKey,
  isVaultKey,
  OverviewRows,
  overviewColumns,
  overviewRange,
  parseSummary,
  TOTALS_END_KEY,
  TOTALS_KEY,
  TotalsRangeRows,
  totalsRange,
  type VaultSummary,
  vaultOfChangedKey,
} from "./compliance-rows.ts";
import { HOLDER_SUBSCRIPTIONS, type IsExcluded } from "./excluded-vaults.ts";
import { type Tally, unpackTallies } from "./packed-results.ts";
import { applyChanges, isStillToEvaluate, type ResultTotals, readTotals } from "./result-totals.ts";

/** A vault's own row, with its counts of results unpacked: passed and failed pairs by check code. */
export interface VaultOverview extends Omit<VaultSummary, "tallies"> {
  tallies: ReadonlyMap<number, Tally>;
}

/** The data from which the score and the counts by check are computed. */
export interface CountedOverview {
  /** Vaults that count, without removed and excluded ones. One entry can be the sum of several vaults of a subscription. */
  vaults: Pick<CountedResults, "name" | "subscriptionId" | "tallies" | "exemptions">[];
  /** Returns the active exemption from the check that covers the whole vault: of the vault, its subscription or everything. */
  exemptionFor(checkId: string, vault: Pick<CountedResults, "name" | "subscriptionId">): ExemptionRecord | undefined;
  evaluation: EvaluationRecord | undefined;
  /** Number of vaults that the requested evaluation has not evaluated yet. */
  vaultsLeft: number;
  /** Time of the newest evaluation of any vault, ISO 8601. Null before the first. */
  evaluatedAt: string | null;
  /** Milliseconds since 1970. */
  now: number;
}

/** The data of responses that list violations or vaults. */
export interface Overview extends CountedOverview {
  /** Sorted by name. */
  vaults: VaultOverview[];
}

/**
 * Reads the results of all vaults individually. One request per 1,000 vaults.
 *
 * @param readExclusions - Returns which vaults are excluded. Its argument says whether there are holders of credentials.
 */
export async function readOverview(
  tables: Tables,
  now: number,
  readExclusions: (hasHolders: boolean) => Promise<IsExcluded>,
): Promise<Overview> {
  const vaults: VaultOverview[] = [];
  const broadExemptions = new Map<string, ExemptionRecord>();
  let evaluation: EvaluationRecord | undefined;
  for await (const rows of tables.pages(OverviewRows, { ...overviewRange, select: overviewColumns })) {
    for (const row of rows) {
      try {
        if (isVaultKey(row.rowKey)) {
          const summary = parseSummary(row);
          if (!summary.gone) vaults.push({ ...summary, tallies: unpackTallies(summary.tallies) });
        } else if (isExemptionKey(row.rowKey)) {
          const exemption = ExemptionRecord.parse(row);
          if (isActive(exemption, now)) broadExemptions.set(exemption.id, exemption);
        } else if (row.rowKey === EVALUATION_KEY) evaluation = EvaluationRecord.parse(row);
      } catch (error) {
        await tables.leaveOut(toStorageCorrupt(error, OverviewRows, row));
      }
    }
  }
  const isExcluded = await readExclusions(vaults.some(isHolder));
  const countedVaults = vaults.filter((vault) => !isExcluded(vault));
  return {
    vaults: countedVaults,
    exemptionFor: exemptionFinder(broadExemptions),
    evaluation,
    vaultsLeft: evaluation ? countedVaults.filter((vault) => isStillToEvaluate(evaluation!, vault)).length : 0,
    evaluatedAt: countedVaults.reduce<string | null>(
      (newest, { evaluatedAt }) => (newest === null || evaluatedAt > newest ? evaluatedAt : newest),
      null,
    ),
    now,
  };
}

const isHolder = ({ subscriptionId }: { subscriptionId: string }): boolean =>
  HOLDER_SUBSCRIPTIONS.includes(subscriptionId);

const exemptionFinder =
  (broadExemptions: ReadonlyMap<string, ExemptionRecord>): CountedOverview["exemptionFor"] =>
  (checkId, { name, subscriptionId }) =>
    broadExemptions.get(exemptionId(checkId, "vault", name)) ??
    broadExemptions.get(exemptionId(checkId, "subscription", subscriptionId)) ??
    broadExemptions.get(exemptionId(checkId, "all"));

/**
 * Reads the data for counts. One request reads the totals and the marks of changed vaults. If they don't give exact counts,
 * this reads all vaults' rows, like `readOverview`.
 *
 * @param readExclusions - Returns which vaults are excluded. Its argument says whether there are holders of credentials.
 */
export async function readCountedOverview(
  tables: Tables,
  now: number,
  readExclusions: (hasHolders: boolean) => Promise<IsExcluded>,
): Promise<CountedOverview> {
  const totalsAndChanges = await readTotalsAndChanges(tables, now);
  if (totalsAndChanges) {
    const { totals, changed, broadExemptions, evaluation } = totalsAndChanges;
    // `groups`: sums over the vaults of a subscription, or a holder. `apart`: vaults that the totals list individually.
    const allVaults = [
      ...totals.groups,
      ...totals.apart,
      ...[...changed.values()].flatMap((change) => change.now ?? []),
    ];
    const isExcluded = await readExclusions(allVaults.some(isHolder));
    const exemptVaults = new Set<string>();
    for (const { scopeType, scopeId } of broadExemptions.values())
      if (scopeType === "vault" && scopeId) exemptVaults.add(scopeId);
    const counts = applyChanges(totals, changed, { exempt: exemptVaults, evaluation, isExcluded });
    if (counts) return { ...counts, exemptionFor: exemptionFinder(broadExemptions), evaluation, now };
  }
  return await readOverview(tables, now, readExclusions);
}

/** The stored totals, and what changed after they were computed. */
interface TotalsAndChanges {
  totals: ResultTotals;
  /** Vaults that changed after the totals were computed, by lower-case name. */
  changed: Map<string, Change<CountedResults>>;
  /** Active exemptions of more than one asset, by ID. */
  broadExemptions: Map<string, ExemptionRecord>;
  evaluation: EvaluationRecord | undefined;
}

/** If more vaults changed than this number plus half of all vaults, reading all vaults' rows is cheaper. */
const MAX_CHANGED_VAULTS = 500;
const MAX_READ_ATTEMPTS = 3;

/**
 * Returns undefined if there are no readable totals, if too many vaults changed, or if the totals were replaced during every
 * attempt.
 */
async function readTotalsAndChanges(tables: Tables, now: number): Promise<TotalsAndChanges | undefined> {
  for (let attempt = 1; attempt <= MAX_READ_ATTEMPTS; attempt++) {
    const changed: TotalsAndChanges["changed"] = new Map();
    const broadExemptions: TotalsAndChanges["broadExemptions"] = new Map();
    let totalsRow: { totals: ResultTotals; sequence: string | undefined } | undefined;
    let evaluation: EvaluationRecord | undefined;
    // The sequence of the row behind the marks, which is written together with the totals.
    let sequence: string | undefined;
    let isReadable = true;
    const onCorrupt = () => {
      isReadable = false;
    };
    for await (const rows of tables.pages(TotalsRangeRows, { ...totalsRange, onCorrupt })) {
      for (const row of rows) {
        if (isExemptionKey(row.rowKey)) {
          const exemption = ExemptionRecord.safeParse(row);
          if (!exemption.success) isReadable = false;
          else if (isActive(exemption.data, now)) broadExemptions.set(exemption.data.id, exemption.data);
        } else if (row.rowKey === EVALUATION_KEY) {
          const parsed = EvaluationRecord.safeParse(row);
          if (parsed.success) evaluation = parsed.data;
          else isReadable = false;
        } else if (row.rowKey === TOTALS_KEY) {
          const totals = readTotals(row);
          totalsRow = totals && { totals, sequence: row.sequence };
          if (!totalsRow) return undefined;
        } else if (row.rowKey === TOTALS_END_KEY) sequence = row.sequence;
        else if (isChangedVaultKey(row.rowKey)) {
          const change = readChangedResults(row);
          if (change) changed.set(vaultOfChangedKey(row.rowKey), change);
          else isReadable = false;
        }
      }
      if (!isReadable || changed.size > MAX_CHANGED_VAULTS + (totalsRow?.totals.vaults ?? 0) / 2) return undefined;
    }
    // Different sequences: the totals were replaced during this query, so some marks may be missing. Read again.
    if (totalsRow?.sequence === sequence)
      return totalsRow && { totals: totalsRow.totals, changed, broadExemptions, evaluation };
  }
  return undefined;
}

/** Returns the ID of an exemption. A check has at most one exemption per scope. */
export const exemptionId = (checkId: string, scopeType: ExemptionRecord["scopeType"], scopeId?: string): string =>
  [checkId, scopeType, ...(scopeId === undefined ? [] : [scopeId.toLowerCase()])].join(".");

export const isActive = ({ until }: { until: string }, now: number): boolean => Date.parse(until) > now;

/** Numbers of pairs of a check and a resource. */
export interface Counts {
  passed: number;
  /** Failed pairs without an exemption. */
  failed: number;
  exempted: number;
}

/** Returns the numbers of passed, failed and exempted pairs of each check, over all vaults. */
export function countByCheck(overview: CountedOverview): Map<Check, Counts> {
  const counts = new Map(CHECKS.map((check) => [check, { passed: 0, failed: 0, exempted: 0 }]));
  for (const vault of overview.vaults) {
    for (const [code, { passed, failed }] of vault.tallies) {
      const check = checkOfCode.get(code);
      const count = check && counts.get(check);
      if (!count) continue;
      const exempted = failed === 0 ? 0 : countExempted(overview, check, vault, failed);
      count.passed += passed;
      count.failed += failed - exempted;
      count.exempted += exempted;
    }
  }
  return counts;
}

/** Returns how many failing pairs of the check in the vault are exempted. */
export function countExempted(
  overview: Pick<CountedOverview, "exemptionFor" | "now">,
  { id }: Check,
  vault: CountedOverview["vaults"][number],
  failed: number,
): number {
  if (overview.exemptionFor(id, vault)) return failed;
  return vault.exemptions.filter(
    (exemption) => exemption.checkId === id && exemption.failing && isActive(exemption, overview.now),
  ).length;
}
