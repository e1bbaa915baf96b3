import type { Tables } from "../platform/storage/tables.ts";
import { sum } from "../platform/sum.ts";
import { DAY_MS, DAY_SECONDS } from "../platform/time.ts";
import { ASSET_TYPES, type AssetSource, type AssetType, sourceOf } from "./asset.ts";
import { END_OF_TIME, type Moment, rangeOf, STATUSES } from "./asset-status.ts";
import { addByDay, countExpiries, nextExpiries, UNSET, unpackExpiries } from "./expiries.ts";
import { countBetween, type Histogram, type Window } from "./histogram.ts";
import { type CountingContext, exclusionReason } from "./holder.ts";
import { effectiveOwnerTag } from "./owners.ts";
import type { Scope } from "./scope.ts";
import { bySize, LARGEST_VAULTS, NEXT_DAYS, PAST_DAYS, type SummaryTotals, unpackSummary } from "./summary-totals.ts";
import { readRenewals, type StoredRenewals } from "./totals.ts";
import { expiriesOf, forEachType } from "./vault.ts";
import {
  groupOf,
  groupOfSubscription,
  hiddenGroups,
  isExactFor,
  keyOfGroup,
  plannedCountsAt,
  readTotalsAndChanges,
  readVaultRows,
  type SummaryRow,
  subscriptionOf,
  type TotalsAndChanges,
  type TotalsReading,
  type VaultGroup,
} from "./vault-counts.ts";

/**
 * Reads the data of a summary (summary.ts) from the stored totals and the vaults that changed since. With filters, or when the
 * totals are not exact, reads the rows of all vaults instead.
 *
 * A *group* is a set of vaults that are counted together, such as all vaults of a subscription. A vault that changed since the
 * totals were computed adds two groups. The group with `sign` -1 subtracts its state in the totals. The group with `sign` 1
 * adds its current state.
 */

/** The data of a summary, from the vaults' own rows or from the totals and the vaults that changed since. */
export interface SummarySource {
  scope: Scope;
  /** Counted groups. Some have negative counts that correct the others. */
  groups: VaultGroup[];
  /** Keys (`groupKey`) of groups that are excluded although their assets are in the queried partitions. */
  hidden: ReadonlySet<string>;
  outOfScope: { vaults: number; assets: number };
  /** Counted key vaults with the most assets, largest first. */
  largest: { name: string; subscriptionId: string; assets: number; group: VaultGroup }[];
  owners: {
    /** Numbers of assets by owner. */
    counts: ReadonlyMap<string, number>;
    /** Assets of owners that a vault's row does not name. */
    others: number;
    /** Assets whose owners were counted under the current owner tag. */
    assets: number;
  };
  /** Numbers of assets that expire on each day of the summary. */
  endsByDay: Record<AssetType, number[]>;
  /**
   * Returns a time before which at least `atLeast` unexpired assets expire, and how many of each type do so. If fewer assets ever
   * expire, returns all of them.
   */
  countNextToExpire(atLeast: number): NextExpiryCounts;
}

/** Numbers of assets by type that expire before a time in unix seconds. */
export interface NextExpiryCounts {
  before: number;
  counts: Map<AssetType, number>;
}

export interface SourceFilter {
  type?: AssetType | undefined;
  subscription?: string | undefined;
  source?: AssetSource | undefined;
}

interface CountContext {
  moment: Moment;
  licensed: boolean;
  ownerTag: string;
}

/**
 * Reads the data of a summary. One request without filters if the totals are sufficient. Otherwise one per 1,000 vaults, and
 * mostly one more.
 */
export async function readSummarySource(
  tables: Tables,
  filter: SourceFilter,
  context: CountContext,
): Promise<SummarySource> {
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  const totalsAndChanges = isFiltered ? undefined : await readTotalsAndChanges(tables, SUMMARY_WITH_OWNERS);
  return (
    (totalsAndChanges && summaryFromTotals(totalsAndChanges, context)) ??
    (await summaryFromRows(tables, filter, context))
  );
}

/** The totals of a summary, with the counts of certificates with a renewal plan. */
interface TotalsWithRenewals extends SummaryTotals {
  renewals: StoredRenewals | null;
}

const SUMMARY_WITH_OWNERS: TotalsReading<TotalsWithRenewals> = {
  columns: ["summary", "windows", "renewals", "thresholds"],
  owners: true,
  read: ({ summary, ...record }) => {
    const totals = summary && unpackSummary(summary);
    const renewals = readRenewals(record);
    return totals && renewals !== undefined ? { ...totals, renewals } : undefined;
  },
};

async function summaryFromRows(tables: Tables, filter: SourceFilter, context: CountContext): Promise<SummarySource> {
  const { moment, licensed, ownerTag } = context;
  const { vaults, scope } = await readVaultRows(tables, { subscription: subscriptionOf(filter) }, ["owners"]);
  const countingContext = { now: moment.now, licensed, scope };
  const types = filter.type ? [filter.type] : ASSET_TYPES;
  const matching = vaults.filter((vault) => filter.source === undefined || sourceOf(vault) === filter.source);
  const counted = matching.filter((vault) => exclusionReason(vault, countingContext) === undefined);
  const outOfScopeVaults = matching.filter((vault) => exclusionReason(vault, countingContext) === "outOfScope");
  const groups = new Map(vaults.map((vault) => [vault, groupOf(vault, 1)]));
  const groupsOf = (rows: readonly SummaryRow[]) => rows.map((vault) => groups.get(vault)!);
  const assetsOf = (vault: SummaryRow) => sum(types, (type) => countExpiries(expiriesOf(vault, type)));
  const owners = { counts: new Map<string, number>(), others: 0, assets: 0 };
  for (const vault of counted) addOwners(owners, vault, types, ownerTag, 1);
  const firstDay = Math.floor(moment.now / DAY_MS) - PAST_DAYS;
  const from = Math.ceil(moment.now / 1000);
  return {
    scope,
    groups: groupsOf(counted),
    hidden: hiddenGroups([...groups.values()], new Set(groupsOf(counted)), types),
    outOfScope: { vaults: outOfScopeVaults.length, assets: sum(outOfScopeVaults, assetsOf) },
    largest: counted
      .filter((vault) => sourceOf(vault) === "keyVault")
      .map((vault) => ({ ...vault, assets: assetsOf(vault), group: groups.get(vault)! }))
      .sort(bySize)
      .slice(0, LARGEST_VAULTS),
    owners,
    endsByDay: forEachType((type) => {
      const counts = new Array<number>(PAST_DAYS + NEXT_DAYS).fill(0);
      if (types.includes(type)) for (const vault of counted) addByDay(counts, expiriesOf(vault, type), firstDay);
      return counts;
    }),
    countNextToExpire: (atLeast) => {
      // For each time, how many assets of each type expire in the second before it.
      const events = new Map<number, Map<AssetType, number>>();
      for (const vault of counted)
        for (const type of types)
          for (const instant of nextExpiries(expiriesOf(vault, type), from, atLeast))
            addEvent(events, instant + 1, type, 1);
      return nextExpiryCounts(events, atLeast);
    },
  };
}

/**
 * Returns the summary's data from the totals. Undefined if they are not exact at this time, so that the vaults' rows must be
 * read.
 */
function summaryFromTotals(
  { totals, scope, changed }: TotalsAndChanges<TotalsWithRenewals>,
  context: CountContext,
): SummarySource | undefined {
  const { moment, licensed, ownerTag } = context;
  const { windows, days } = totals;
  const countingContext: CountingContext = { now: moment.now, licensed, scope };
  const todayIndex = Math.floor(moment.now / DAY_MS) - PAST_DAYS - totals.firstDay;
  const isInTime = todayIndex >= 0 && days.secret.length >= todayIndex + PAST_DAYS + NEXT_DAYS;
  // The first window contains the time at which the totals were computed, the others the critical and the warning threshold.
  const ranges = STATUSES.map((status) => rangeOf(status, moment));
  const from = Math.ceil(moment.now / 1000);
  // Without assets, `countBetween` shows only whether the bounds of a range are within the windows.
  const isExact = ranges.every((range) => countBetween(EMPTY_HISTOGRAM, windows, range) !== undefined);
  const isExactNow = from >= windows[0]![0] && from <= windows[0]![1];
  // The days, the owners and the largest vaults were counted without the subscriptions that were out of scope then.
  const isSameScope = totals.subscriptions.every(
    ({ id, isOutOfScope }) => isOutOfScope === (scope.leftAt(id) !== undefined),
  );
  // `totals.owners` is undefined if there are too many for the totals.
  if (!isInTime || !isExact || !isExactNow || !isSameScope || !totals.owners) return undefined;

  const subscriptions = totals.subscriptions.map((one, index) => ({
    ...one,
    group: { ...groupOfSubscription(one, windows, countBetween), withPlan: plannedCountsAt(totals.renewals, index) },
  }));
  if (!subscriptions.every(({ group }) => STATUSES.every((status) => isExactFor(group, { status, moment }))))
    return undefined;
  const groups = subscriptions.filter(({ isOutOfScope }) => !isOutOfScope).map(({ group }) => group);
  const outOfScopeSubscriptions = subscriptions
    .filter(({ isOutOfScope }) => isOutOfScope)
    .map(({ id, vaults, group }) => ({ id, vaults, assets: sum(ASSET_TYPES, (type) => group.count(type)) }));
  const outOfScope = {
    vaults: sum(outOfScopeSubscriptions, ({ vaults }) => vaults),
    assets: sum(outOfScopeSubscriptions, ({ assets }) => assets),
  };
  const hidden = new Set(outOfScopeSubscriptions.filter(({ assets }) => assets > 0).map(({ id }) => id));
  const ownersOfTag = totals.owners.find(({ tag }) => tag === ownerTag);
  const owners = {
    counts: new Map(ownersOfTag?.owners),
    others: ownersOfTag?.others ?? 0,
    assets: ownersOfTag?.assets ?? 0,
  };
  const endsByDay = forEachType((type) => [...days[type]]);
  const changes: { vault: SummaryRow; sign: 1 | -1 }[] = [];
  for (const { before, now: current } of changed.values()) {
    for (const [vault, sign] of [[before, -1] as const, [current, 1] as const]) {
      if (!vault) continue;
      const group = groupOf(vault, sign);
      const reason = exclusionReason(vault, countingContext);
      if (reason === "outOfScope") {
        outOfScope.vaults += sign;
        outOfScope.assets += sum(ASSET_TYPES, (type) => group.count(type));
      }
      if (reason !== undefined) {
        // False for an earlier state (`sign` -1), whose counts are negative.
        if (ASSET_TYPES.some((type) => group.count(type) > 0)) hidden.add(keyOfGroup(group));
        continue;
      }
      groups.push(group);
      changes.push({ vault, sign });
      addOwners(owners, vault, ASSET_TYPES, ownerTag, sign);
      for (const type of ASSET_TYPES) addDays(endsByDay[type], expiriesOf(vault, type), totals.firstDay, sign);
    }
  }
  const largest = largestOf(totals, changed, changes);
  if (!largest) return undefined;
  return {
    scope,
    groups,
    hidden,
    outOfScope,
    largest,
    owners,
    endsByDay: forEachType((type) => endsByDay[type].slice(todayIndex, todayIndex + PAST_DAYS + NEXT_DAYS)),
    countNextToExpire: (atLeast) => {
      const events = eventsOf(totals, changes, from);
      // After the days that are counted individually, any of the remaining assets may expire.
      const later = { from, before: END_OF_TIME, unset: false };
      for (const type of ASSET_TYPES) {
        const sooner = sum([...events.values()], (counts) => counts.get(type) ?? 0);
        addEvent(events, END_OF_TIME, type, sum(groups, (one) => one.count(type, later)) - sooner);
      }
      return nextExpiryCounts(events, atLeast);
    },
  };
}

/**
 * Returns the largest vaults. Undefined if other vaults may be among them, because vaults that the totals do not list may be as
 * large as the last listed one.
 */
function largestOf(
  { largest, subscriptions, windows, renewals }: TotalsWithRenewals,
  changed: TotalsAndChanges<SummaryTotals>["changed"],
  changes: readonly { vault: SummaryRow; sign: 1 | -1 }[],
): SummarySource["largest"] | undefined {
  const unchanged = largest
    .map(({ expiries, ...vault }, index) => ({
      ...vault,
      group: {
        ...singleVaultGroup(vault, expiries, windows),
        // The counts of the largest vaults follow those of the subscriptions.
        withPlan: plannedCountsAt(renewals, subscriptions.length + index),
      },
    }))
    .filter(({ name }) => !changed.has(name.toLowerCase()));
  const changedVaults = changes
    .filter(({ vault, sign }) => sign === 1 && sourceOf(vault) === "keyVault")
    .map(({ vault }) => {
      const assets = sum(ASSET_TYPES, (type) => countExpiries(expiriesOf(vault, type)));
      return { name: vault.name, subscriptionId: vault.subscriptionId, assets, group: groupOf(vault, 1) };
    });
  const candidates = [...unchanged, ...changedVaults].sort(bySize).slice(0, LARGEST_VAULTS);
  const [last, lastListed] = [candidates.at(-1), largest.at(-1)];
  if (sum(subscriptions, ({ vaults, isOutOfScope }) => (isOutOfScope ? 0 : vaults)) <= largest.length)
    return candidates;
  const isCertain = candidates.length === LARGEST_VAULTS && last && lastListed && bySize(lastListed, last) > 0;
  return isCertain ? candidates : undefined;
}

/** Returns the group of a vault whose types are counted together, as secrets. */
const singleVaultGroup = (
  { subscriptionId }: { subscriptionId: string },
  expiries: Histogram,
  windows: readonly Window[],
): VaultGroup => ({
  name: undefined,
  source: undefined,
  subscriptionId,
  listedAt: {},
  vaults: 1,
  unreadable: 0,
  count: (type, range) => (type === "secret" ? countBetween(expiries, windows, range)! : 0),
  withPlan: undefined,
});

function addOwners(
  target: { counts: Map<string, number>; others: number; assets: number },
  vault: SummaryRow,
  types: readonly AssetType[],
  ownerTag: string,
  sign: 1 | -1,
): void {
  for (const type of types) {
    const ownerCounts = vault.owners?.[type];
    if (ownerCounts?.tag !== effectiveOwnerTag(vault, ownerTag)) continue;
    target.assets += sign * countExpiries(expiriesOf(vault, type));
    target.others += sign * ownerCounts.others;
    for (const [owner, count] of ownerCounts.owners) {
      const remaining = (target.counts.get(owner) ?? 0) + sign * count;
      if (remaining === 0) target.counts.delete(owner);
      else target.counts.set(owner, remaining);
    }
  }
}

function addDays(target: number[], packed: Uint8Array | undefined, firstDay: number, sign: 1 | -1): void {
  const counts = new Array<number>(target.length).fill(0);
  addByDay(counts, packed, firstDay);
  for (const [day, count] of counts.entries()) target[day]! += sign * count;
}

/**
 * Returns "events": for each time, how many assets of each type expire before it and after the previous time. The times are
 * seconds as far as the totals are exact, then ends of days.
 */
function eventsOf(
  { windows, days, subscriptions, firstDay }: SummaryTotals,
  changes: readonly { vault: SummaryRow; sign: 1 | -1 }[],
  from: number,
): Map<number, Map<AssetType, number>> {
  const events = new Map<number, Map<AssetType, number>>();
  const exactUntil = windows[0]![1];
  const lastDay = firstDay + days.secret.length;
  // The time of the event that counts an expiry: the next second while times are exact, then the end of the day.
  const boundOf = (instant: number) =>
    instant < exactUntil ? instant + 1 : (Math.floor(instant / DAY_SECONDS) + 1) * DAY_SECONDS;
  for (const type of ASSET_TYPES) {
    const firstWholeDay = Math.floor(exactUntil / DAY_SECONDS);
    for (let day = firstWholeDay; day < lastDay; day++)
      addEvent(events, (day + 1) * DAY_SECONDS, type, days[type][day - firstDay]!);
    for (const { expiries, isOutOfScope } of subscriptions) {
      if (isOutOfScope) continue;
      const { at, counts } = expiries[type];
      for (let index = 0; index < at.length; index++) {
        const instant = at[index]!;
        if (instant >= exactUntil) continue;
        if (instant >= from) addEvent(events, instant + 1, type, counts[index]!);
        // The day on which exact times end also counts them as a whole. Subtract them here.
        if (instant >= firstWholeDay * DAY_SECONDS)
          addEvent(events, (firstWholeDay + 1) * DAY_SECONDS, type, -counts[index]!);
      }
    }
    for (const { vault, sign } of changes)
      for (const instant of unpackExpiries(expiriesOf(vault, type)))
        if (instant !== UNSET && instant >= from && instant < lastDay * DAY_SECONDS)
          addEvent(events, boundOf(instant), type, sign);
  }
  return events;
}

function addEvent(events: Map<number, Map<AssetType, number>>, bound: number, type: AssetType, count: number): void {
  const counts = events.get(bound) ?? new Map<AssetType, number>();
  events.set(bound, counts);
  counts.set(type, (counts.get(type) ?? 0) + count);
}

function nextExpiryCounts(
  events: ReadonlyMap<number, ReadonlyMap<AssetType, number>>,
  atLeast: number,
): NextExpiryCounts {
  const counts = new Map<AssetType, number>();
  for (const [before, countsAtBound] of [...events].sort(([a], [b]) => a - b)) {
    for (const [type, count] of countsAtBound) counts.set(type, (counts.get(type) ?? 0) + count);
    if (sum([...counts.values()], (count) => count) >= atLeast) return { before, counts };
  }
  return { before: END_OF_TIME, counts };
}

const EMPTY_HISTOGRAM: Histogram = { at: [], counts: [], unset: 0 };
