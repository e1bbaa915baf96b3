import { HOLDER_SOURCES, holderSubscription, notCounted } from "../inventory/holder.ts";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import type { Check } from "./check.ts";
import { CHECKS, checkOfCode } from "./checks/all.ts";
import {
  EVALUATION_KEY,
  EvaluationRecord,
  ExemptionRecord,
  isExemptionKey,
  isVaultKey,
  OverviewRows,
  overviewMembers,
  overviewRange,
  parseSummary,
  type VaultSummary,
} from "./layout.ts";
import { type Tally, unpackTallies } from "./pack.ts";

/** A vault's results in numbers, by check code. */
export interface VaultOverview extends Omit<VaultSummary, "tallies"> {
  tallies: ReadonlyMap<number, Tally>;
}

/** What every answer is computed from. */
export interface Overview {
  /** By name, without those that left, and without holders of credentials that don't count now. */
  vaults: VaultOverview[];
  /** The exemption of a whole vault, its subscription or everything that covers the check there, now. */
  exemptionOf(checkId: string, vault: VaultOverview): ExemptionRecord | undefined;
  evaluation: EvaluationRecord | undefined;
  /** Milliseconds since 1970. */
  now: number;
}

/**
 * One request per 1,000 vaults.
 *
 * @param uncounted - The holders that don't count now, by lower-cased name; asked where there are holders.
 */
export async function readOverview(
  tables: Tables,
  now: number,
  uncounted: () => Promise<ReadonlySet<string>>,
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
  const left = vaults.some(({ subscriptionId }) => HOLDERS.includes(subscriptionId)) ? await uncounted() : new Set();
  return {
    vaults: vaults.filter(({ name }) => !left.has(name.toLowerCase())),
    exemptionOf: (checkId, vault) =>
      broad.get(exemptionId(checkId, "vault", vault.name)) ??
      broad.get(exemptionId(checkId, "subscription", vault.subscriptionId)) ??
      broad.get(exemptionId(checkId, "all")),
    evaluation,
    now,
  };
}

const HOLDERS: readonly string[] = HOLDER_SOURCES.map(holderSubscription);

/** Holders that don't count now, by lower-cased name. A request for each source and 1,000 of them. */
export async function uncountedHolders(
  tables: Tables,
  now: { now: number; licensed: boolean },
): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  for (const holders of HOLDERS) {
    const prefix = vaultInSubscriptionKey(holders, "");
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(Vaults, { ...range, select: ["name", "source", "listedAt"] }))
      for (const row of rows) if (notCounted(row, now) !== undefined) names.add(row.name.toLowerCase());
  }
  return names;
}

/** The natural name of an exemption: a check has at most one per scope. */
export const exemptionId = (checkId: string, scopeType: ExemptionRecord["scopeType"], scopeId?: string): string =>
  [checkId, scopeType, ...(scopeId === undefined ? [] : [scopeId.toLowerCase()])].join(".");

export const isActive = ({ until }: { until: string }, now: number): boolean => Date.parse(until) > now;

export interface Counts {
  passed: number;
  /** Without the exempted. */
  failed: number;
  exempted: number;
}

/** Pairs of each check over all vaults. */
export function countsOf(overview: Overview): Map<Check, Counts> {
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

function exemptedPairs(overview: Overview, { id }: Check, vault: VaultOverview, failed: number): number {
  if (overview.exemptionOf(id, vault)) return failed;
  return vault.exemptions.filter((one) => one.checkId === id && one.failing && isActive(one, overview.now)).length;
}
