import type { Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { sum } from "../platform/sum.ts";
import { ASSET_TYPES, type AssetRecord, type AssetSource, Assets, type AssetType, SOURCES, sourceOf } from "./asset.ts";
import { type ExpiryIndex, expiryBounds, partitions, RENEWED } from "./asset-keys.ts";
import { type Moment, STATUSES, type Status } from "./asset-status.ts";
import { type ChangeCounts, countChanges } from "./change-log.ts";
import { ownersOf } from "./holder.ts";
import { byCount } from "./owners.ts";
import type { Scope } from "./scope.ts";
import { readSummarySource, type SummarySource } from "./summary-source.ts";
import { bySize } from "./summary-totals.ts";
import { forEachType } from "./vault.ts";
import { countWithStatus, groupKey, keyOfGroup, subscriptionOf, type VaultGroup } from "./vault-counts.ts";

/**
 * The summary of the inventory: counts by status, type, source, subscription, vault and owner, the assets that expire
 * next, and the changes. A *group* is one vault, or all vaults of a subscription, with the numbers of their assets.
 */

/** Maximum numbers of owners (those with the most assets), of subscriptions, and of assets that expire next. */
const LARGEST_OWNERS = 20;
const LARGEST_SUBSCRIPTIONS = 100;
const MAX_NEXT_TO_EXPIRE = 10;

export interface SummaryFilter {
  type?: AssetType | undefined;
  subscription?: string | undefined;
  source?: AssetSource | undefined;
  /** Time since which changes are counted. */
  since: Date;
}

type ByStatus = Record<Status, number>;

/** Counts of the assets that match the filter. */
export interface AssetSummary {
  assets: number;
  byStatus: ByStatus;
  byType: Record<AssetType, number>;
  byTypeAndStatus: Record<AssetType, ByStatus>;
  bySource: Record<AssetSource, number>;
  subscriptions: {
    largest: { subscriptionId: string; name: string | undefined; vaults: number; assets: number; byStatus: ByStatus }[];
    others: { subscriptions: number; assets: number };
  };
  vaults: {
    total: number;
    largest: { name: string; subscriptionId: string; assets: number; byStatus: ByStatus }[];
    others: { vaults: number; assets: number };
  };
  owners: {
    largest: { owner: string; assets: number }[];
    /** `owners` is undefined if a vault has more owners than its row contains. */
    others: { owners: number | undefined; assets: number };
    /** Assets without an owner. */
    none: number;
    /** Assets whose owners the next scan counts: they were last listed by an earlier version, or under another tag. */
    notCounted: number;
  };
  /** Numbers of assets by type that expire on each UTC day, from 28 days ago to 90 days ahead. Today is at index 28. */
  endsByDay: Record<AssetType, number[]>;
  endsNext: { asset: AssetRecord; owner: string | undefined; subscriptionName: string | undefined }[];
  changes: ChangeCounts;
  /** Assets excluded because their subscription left the scope. */
  outOfScope: { vaults: number; assets: number };
}

/**
 * Implements `AssetQueries.summary`. Counts come from the totals or the vaults' rows (summary-source.ts). Assets that expire
 * next and changes are read.
 */
export async function summaryOf(
  filter: SummaryFilter,
  moment: Moment,
  deps: { tables: Tables; ownerTag: string; licensed: boolean },
): Promise<AssetSummary> {
  const { tables, ownerTag, licensed } = deps;
  const { since, ...queryFilter } = filter;
  const [source, changes] = await Promise.all([
    readSummarySource(tables, queryFilter, { moment, licensed, ownerTag }),
    countChanges(tables, { ...queryFilter, since }),
  ]);
  const { scope, groups, largest } = source;
  const types = queryFilter.type ? [queryFilter.type] : ASSET_TYPES;
  const next = await readNextToExpire(tables, partitionOf(filter), moment, source);

  const assetsOf = (ofGroups: readonly VaultGroup[], ofTypes: readonly AssetType[] = types) =>
    sum(ofGroups, (group) => sum(ofTypes, (type) => group.count(type)));
  const byStatus = (ofGroups: readonly VaultGroup[], ofTypes: readonly AssetType[] = types): ByStatus =>
    Object.fromEntries(
      STATUSES.map((status) => [
        status,
        sum(ofGroups, (group) => sum(ofTypes, (type) => countWithStatus(group, type, status, moment))),
      ]),
    ) as ByStatus;
  const vaults = groups.filter((group) => sourceOf(group) === "keyVault");
  const vaultsIn = (ofGroups: readonly VaultGroup[]) => sum(ofGroups, (group) => group.vaults);
  const subscriptions = [...Map.groupBy(vaults, keyOfGroup)]
    // `name` is the subscription's ID, by which `keyOfGroup` groups vaults.
    .map(([name, ownGroups]) => ({ name, ownGroups, vaults: vaultsIn(ownGroups), assets: assetsOf(ownGroups) }))
    // A vault that changed since the totals has a group that subtracts its earlier state (summary-source.ts). So a subscription has
    // 0 vaults if all its vaults left since.
    .filter((one) => one.vaults > 0)
    .sort(bySize);
  return {
    assets: assetsOf(groups),
    byStatus: byStatus(groups),
    byType: forEachType((type) => (types.includes(type) ? assetsOf(groups, [type]) : 0)),
    byTypeAndStatus: forEachType((one) => byStatus(groups, types.includes(one) ? [one] : [])),
    endsByDay: source.endsByDay,
    bySource: Object.fromEntries(
      SOURCES.map((one) => [one, assetsOf(groups.filter((group) => sourceOf(group) === one))]),
    ) as Record<AssetSource, number>,
    subscriptions: {
      largest: subscriptions.slice(0, LARGEST_SUBSCRIPTIONS).map(({ name, ownGroups, vaults, assets }) => ({
        subscriptionId: name,
        name: scope.nameOf(name),
        vaults,
        assets,
        byStatus: byStatus(ownGroups),
      })),
      others: {
        subscriptions: Math.max(0, subscriptions.length - LARGEST_SUBSCRIPTIONS),
        assets: sum(subscriptions.slice(LARGEST_SUBSCRIPTIONS), ({ assets }) => assets),
      },
    },
    vaults: {
      total: vaultsIn(vaults),
      largest: largest.map(({ name, subscriptionId, assets, group }) => ({
        name,
        subscriptionId,
        assets,
        byStatus: byStatus([group]),
      })),
      others: {
        vaults: vaultsIn(vaults) - largest.length,
        assets: assetsOf(vaults) - sum(largest, ({ assets }) => assets),
      },
    },
    owners: largestOwners(source.owners, assetsOf(groups)),
    endsNext: next.map((asset) => ({
      asset,
      owner: ownersOf(asset, ownerTag)[0],
      subscriptionName: nameOf(scope, asset),
    })),
    changes,
    outOfScope: source.outOfScope,
  };
}

const nameOf = (scope: Scope, asset: AssetRecord): string | undefined =>
  sourceOf(asset) === "keyVault" ? scope.nameOf(asset.subscriptionId) : undefined;

function partitionOf(filter: SummaryFilter): string {
  const subscription = subscriptionOf(filter);
  return subscription ? partitions.subscription(subscription) : partitions.all;
}

function largestOwners(ownerTotals: SummarySource["owners"], assets: number): AssetSummary["owners"] {
  const owners = [...ownerTotals.counts].sort(byCount);
  const assetsOfNamedOwners = sum(owners, ([, count]) => count);
  return {
    largest: owners.slice(0, LARGEST_OWNERS).map(([owner, assets]) => ({ owner, assets })),
    others: {
      owners: ownerTotals.others > 0 ? undefined : Math.max(0, owners.length - LARGEST_OWNERS),
      assets: ownerTotals.others + sum(owners.slice(LARGEST_OWNERS), ([, count]) => count),
    },
    none: ownerTotals.assets - ownerTotals.others - assetsOfNamedOwners,
    notCounted: assets - ownerTotals.assets,
  };
}

/**
 * Returns the assets that expire next. The counts tell how many of each type to request from the index by expiry. One request
 * for each type with any of them, two for certificates if any has a renewal plan, more only if many excluded assets are in
 * between.
 */
async function readNextToExpire(
  tables: Tables,
  partitionKey: string,
  moment: Moment,
  { countNextToExpire, hidden, groups }: SummarySource,
): Promise<AssetRecord[]> {
  const { before, counts } = countNextToExpire(MAX_NEXT_TO_EXPIRE);
  // Certificates with a renewal plan are in an index of their own.
  const indexes = ASSET_TYPES.map((type): [AssetType, ExpiryIndex] => [type, type]);
  if (groups.some(({ withPlan }) => withPlan !== undefined)) indexes.push(["certificate", RENEWED]);
  const rowsByIndex = await Promise.all(
    indexes.map(async ([type, index]) => {
      const rows: Row<AssetRecord>[] = [];
      const rowsNeeded = Math.min(MAX_NEXT_TO_EXPIRE, counts.get(type) ?? 0);
      if (rowsNeeded <= 0) return rows;
      const includesUnset = false;
      const bounds = expiryBounds(index, Math.ceil(moment.now / 1000), before, includesUnset);
      // Rows of hidden groups are left out below, so more rows than needed are requested if there are such groups.
      const pageSize = hidden.size === 0 ? rowsNeeded : 1000;
      for await (const page of tables.pages(Assets, { partitionKey, ...bounds, pageSize })) {
        rows.push(...page.filter((asset) => !hidden.has(groupKey(asset))));
        if (rows.length >= rowsNeeded) break;
      }
      return rows.slice(0, rowsNeeded);
    }),
  );
  return rowsByIndex.flat().sort(byExpiry).slice(0, MAX_NEXT_TO_EXPIRE);
}

/** Sorted like lists ordered by expiry. */
function byExpiry(a: AssetRecord, b: AssetRecord): number {
  const sortText = ({ name, vaultName, type }: AssetRecord) => `${name}!${vaultName}`.toLowerCase() + type;
  return a.expiresOn! - b.expiresOn! || (sortText(a) < sortText(b) ? -1 : 1);
}
