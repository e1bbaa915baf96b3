import type { Tables } from "../platform/storage/tables.ts";
import type { Change } from "../platform/storage/write-totals.ts";
import { type CountedResults, readChangedResults } from "./changed-results.ts";
import type { Check } from "./check.ts";
import { CHECKS, checkOfCode } from "./checks/all.ts";
import {
  EVALUATION_KEY,
  EvaluationRecord,
  ExemptionRecord,
  isChangedKey,
  isExemptionKey,
  isVaultKey,
  OverviewRows,
  overviewMembers,
  overviewRange,
  parseSummary,
  TOTALS_END_KEY,
  TOTALS_KEY,
  TotalsRangeRows,
  totalsRange,
  type VaultSummary,
  vaultOfChange,
} from "./compliance-rows.ts";
import { HOLDERS, type IsExcluded } from "./excluded-vaults.ts";
import { type Tally, unpackTallies } from "./packed-results.ts";
import { countedNow, isLeft, type ResultTotals, readTotals } from "./result-totals.ts";

/** Counts of a vault's results by check code. */
export interface VaultOverview extends Omit<VaultSummary, "tallies"> {
  tallies: ReadonlyMap<number, Tally>;
}

/** The data from which the score and the counts by check are computed. */
export interface CountedOverview {
  /** The vaults that count, without removed and excluded ones. One entry can combine the vaults of a subscription. */
  vaults: Pick<CountedResults, "name" | "subscriptionId" | "tallies" | "exemptions">[];
  /** Returns the active exemption of a whole vault, its subscription or everything that covers the check. */
  exemptionOf(checkId: string, vault: Pick<CountedResults, "name" | "subscriptionId">): ExemptionRecord | undefined;
  evaluation: EvaluationRecord | undefined;
  /** Number of vaults that the evaluation has not covered yet. */
  left: number;
  /** Time of the newest evaluation of any vault, ISO 8601. Null before the first. */
  evaluatedAt: string | null;
  /** Milliseconds since 1970. */
  now: number;
}

/** The data of responses that list vaults. */
export interface Overview extends CountedOverview {
  /** By name. */
  vaults: VaultOverview[];
}

/**
 * Reads the results of all vaults individually. One request per 1,000 vaults.
 *
 * @param uncounted - Receives whether there are holders of credentials.
 */
export async function readOverview(
  tables: Tables,
  now: number,
  uncounted: (holders: boolean) => Promise<IsExcluded>,
): Promise<Overview> {
  const vaults: VaultOverview[] = [];
  const broad = new Map<string, ExemptionRecord>();
  let evaluation: EvaluationRecord | undefined;
  for await (const rows of tables.pages(OverviewRows, { ...overviewRange, select: overviewMembers })) {
    for (const row of rows) {
      if (isVaultKey(row.rowKey)) {
        const summary = parseSummary(row);
        if (!summary.gone) vaults.push({ ...summary, tallies: unpackTallies(summary.tallies) });
      } else if (isExemptionKey(row.rowKey)) {
        const exemption = ExemptionRecord.parse(row);
        if (isActive(exemption, now)) broad.set(exemption.id, exemption);
      } else if (row.rowKey === EVALUATION_KEY) evaluation = EvaluationRecord.parse(row);
    }
  }
  const isExcluded = await uncounted(vaults.some(isHolder));
  const counted = vaults.filter((vault) => !isExcluded(vault));
  return {
    vaults: counted,
    exemptionOf: exemptionIn(broad),
    evaluation,
    left: evaluation ? counted.filter((vault) => isLeft(evaluation!, vault)).length : 0,
    evaluatedAt: counted.reduce<string | null>(
      (newest, { evaluatedAt }) => (newest === null || evaluatedAt > newest ? evaluatedAt : newest),
      null,
    ),
    now,
  };
}

const isHolder = ({ subscriptionId }: { subscriptionId: string }): boolean => HOLDERS.includes(subscriptionId);

const exemptionIn =
  (broad: ReadonlyMap<string, ExemptionRecord>): CountedOverview["exemptionOf"] =>
  (checkId, { name, subscriptionId }) =>
    broad.get(exemptionId(checkId, "vault", name)) ??
    broad.get(exemptionId(checkId, "subscription", subscriptionId)) ??
    broad.get(exemptionId(checkId, "all"));

/**
 * Reads the data for counts: one request for the totals and the vaults that changed since, if they are exact. Otherwise like
 * `readOverview`.
 *
 * @param uncounted - Receives whether there are holders of credentials.
 */
export async function readCounted(
  tables: Tables,
  now: number,
  uncounted: (holders: boolean) => Promise<IsExcluded>,
): Promise<CountedOverview> {
  const found = await readTotalsAndChanges(tables, now);
  if (found) {
    const { totals, changed, broad, evaluation } = found;
    const known = [...totals.groups, ...totals.apart, ...[...changed.values()].flatMap((one) => one.now ?? [])];
    const isExcluded = await uncounted(known.some(isHolder));
    const exempt = new Set<string>();
    for (const { scopeType, scopeId } of broad.values()) if (scopeType === "vault" && scopeId) exempt.add(scopeId);
    const counted = countedNow(totals, changed, { exempt, evaluation, isExcluded });
    if (counted) return { ...counted, exemptionOf: exemptionIn(broad), evaluation, now };
  }
  return await readOverview(tables, now, uncounted);
}

interface TotalsAndChanges {
  totals: ResultTotals;
  /** By lower-case name. */
  changed: Map<string, Change<CountedResults>>;
  /** Active exemptions of more than an asset. */
  broad: Map<string, ExemptionRecord>;
  evaluation: EvaluationRecord | undefined;
}

/** Maximum number of changed vaults, in addition to half of all vaults, as in the inventory. */
const MAX_CHANGED = 500;
const READINGS = 3;

/** Returns undefined if there are no totals or too many vaults changed. */
async function readTotalsAndChanges(tables: Tables, now: number): Promise<TotalsAndChanges | undefined> {
  for (let reading = 1; reading <= READINGS; reading++) {
    const changed: TotalsAndChanges["changed"] = new Map();
    const broad: TotalsAndChanges["broad"] = new Map();
    let found: { totals: ResultTotals; sequence: string | undefined } | undefined;
    let evaluation: EvaluationRecord | undefined;
    let sequence: string | undefined;
    let readable = true;
    const onCorrupt = () => {
      readable = false;
    };
    for await (const rows of tables.pages(TotalsRangeRows, { ...totalsRange, onCorrupt })) {
      for (const row of rows) {
        if (isExemptionKey(row.rowKey)) {
          const exemption = ExemptionRecord.parse(row);
          if (isActive(exemption, now)) broad.set(exemption.id, exemption);
        } else if (row.rowKey === EVALUATION_KEY) evaluation = EvaluationRecord.parse(row);
        else if (row.rowKey === TOTALS_KEY) {
          const totals = readTotals(row);
          found = totals && { totals, sequence: row.sequence };
          if (!found) return undefined;
        } else if (row.rowKey === TOTALS_END_KEY) sequence = row.sequence;
        else if (isChangedKey(row.rowKey)) {
          const change = readChangedResults(row);
          if (change) changed.set(vaultOfChange(row.rowKey), change);
          else readable = false;
        }
      }
      if (!readable || changed.size > MAX_CHANGED + (found?.totals.vaults ?? 0) / 2) return undefined;
    }
    // If the totals were replaced during the reading, the changed vaults may belong to the old or the new totals.
    if (found?.sequence === sequence) return found && { totals: found.totals, changed, broad, evaluation };
  }
  return undefined;
}

/** The natural key of an exemption: a check has at most one per scope. */
export const exemptionId = (checkId: string, scopeType: ExemptionRecord["scopeType"], scopeId?: string): string =>
  [checkId, scopeType, ...(scopeId === undefined ? [] : [scopeId.toLowerCase()])].join(".");

export const isActive = ({ until }: { until: string }, now: number): boolean => Date.parse(until) > now;

export interface Counts {
  passed: number;
  /** Without exempted pairs. */
  failed: number;
  exempted: number;
}

/** Returns the numbers of pairs by check over all vaults. */
export function countsOf(overview: CountedOverview): Map<Check, Counts> {
  const counts = new Map(CHECKS.map((check) => [check, { passed: 0, failed: 0, exempted: 0 }]));
  for (const vault of overview.vaults) {
    for (const [code, { passed, failed }] of vault.tallies) {
      const check = checkOfCode.get(code);
      const count = check && counts.get(check);
      if (!count) continue;
      const exempted = failed === 0 ? 0 : exemptedPairs(overview, check, vault, failed);
      count.passed += passed;
      count.failed += failed - exempted;
      count.exempted += exempted;
    }
  }
  return counts;
}

/** Returns how many failing pairs of a check in a vault an exemption covers. */
export function exemptedPairs(
  overview: Pick<CountedOverview, "exemptionOf" | "now">,
  { id }: Check,
  vault: CountedOverview["vaults"][number],
  failed: number,
): number {
  if (overview.exemptionOf(id, vault)) return failed;
  return vault.exemptions.filter((one) => one.checkId === id && one.failing && isActive(one, overview.now)).length;
}
