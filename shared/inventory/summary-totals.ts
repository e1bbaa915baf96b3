import * as z from "zod";
import { pack, undefinedIfNotPacked, unpackBytes } from "../platform/storage/packed-members.ts";
import { sum } from "../platform/sum.ts";
import { DAY_MS, HOUR_MS } from "../platform/time.ts";
import { ASSET_TYPES, type AssetType } from "./asset.ts";
import type { Moment } from "./asset-status.ts";
import type { CountedState } from "./changed-vaults.ts";
import { addByDay, countExpiries, UNSET, unpackExpiries } from "./expiries.ts";
import { gapStart, type Histogram, histogramOf, packHistograms, unpackHistograms, type Window } from "./histogram.ts";
import { byCount } from "./owners.ts";
import type { Scope } from "./scope.ts";
import { expiriesOf, forEachType } from "./vault.ts";

/**
 * Totals of all key vaults for summary, metrics and lists by type or status. Their size depends on the number of days,
 * subscriptions and owners, not of assets. They are stored and renewed with the other totals (totals.ts).
 */

/** Days that a summary counts individually: those before today, and today with those after it. */
export const PAST_DAYS = 28;
export const NEXT_DAYS = 91;
/** Number of vaults in a summary. Twice as many are stored, because others may shrink or be removed before the next scan. */
export const LARGEST_VAULTS = 20;
const STORED_LARGEST_VAULTS = 2 * LARGEST_VAULTS;
/** With more owners than this, a summary is counted from the vaults' rows. */
const MAX_OWNERS = 5_000;
/** Maximum size when compressed. An entity has at most 1 MiB, and the histograms of the totals need most of it. */
const MAX_BYTES = 200_000;
/** The totals are exact for this time after a scan. Later, everything is counted from the vaults' rows. */
const EXACT_FOR_MS = 36 * HOUR_MS;
/**
 * The totals are also exact for this time before they were computed, because a request may have an earlier time: it started
 * before, or its instance's clock is behind.
 */
const EXACT_BEFORE_MS = HOUR_MS;
/** Further days that are stored, so that the stored days are still enough on the days after the totals were computed. */
const SPARE_DAYS = 3;

/** The periods in which the totals are exact, and the subscriptions that were out of scope when the totals were computed. */
export interface SummaryLayout {
  /**
   * Periods around the times at which a status starts or ends: now, the critical and the warning threshold, in this order.
   * Expiries within them are kept to the second.
   */
  windows: Window[];
  /** The first counted day, in days since 1970. */
  firstDay: number;
  isOutOfScope: (subscriptionId: string) => boolean;
}

/** Owners of assets under one owner tag. */
export interface OwnersOfTag {
  tag: string;
  /** Owners with the most assets first. */
  owners: [name: string, assets: number][];
  /** Assets of owners that a vault's row does not name. */
  others: number;
  /** All assets of the vaults and types whose owners were counted under this tag. */
  assets: number;
}

/** The unpacked totals for a summary. */
export interface SummaryTotals extends Pick<SummaryLayout, "windows" | "firstDay"> {
  /** Numbers of assets that expire on each day from the first one on. */
  days: Record<AssetType, number[]>;
  /** Totals by subscription. The histograms have the times within the windows, and one number for each gap between windows. */
  subscriptions: {
    id: string;
    vaults: number;
    unreadable: number;
    isOutOfScope: boolean;
    expiries: Record<AssetType, Histogram>;
  }[];
  /** Vaults in scope with the most assets of all types. */
  largest: { name: string; subscriptionId: string; assets: number; expiries: Histogram }[];
  /** By tag. Undefined if there are too many owners. */
  owners: OwnersOfTag[] | undefined;
}

const Packed = z.object({
  windows: z.array(z.tuple([z.int(), z.int()])),
  firstDay: z.int(),
  days: z.object(forEachType(() => z.array(z.int()))),
  /**
   * For each subscription: its ID, number of vaults, number of vaults none of whose lists could be read, and whether it was out
   * of scope.
   */
  subscriptions: z.array(z.tuple([z.string(), z.int(), z.int(), z.boolean()])),
  /** For each vault: name, subscription ID, number of assets. */
  largest: z.array(z.tuple([z.string(), z.string(), z.int()])),
  owners: z
    .array(
      z.object({
        tag: z.string(),
        owners: z.array(z.tuple([z.string(), z.int()])),
        others: z.int(),
        assets: z.int(),
      }),
    )
    .optional(),
  /** Histograms of each subscription's types, then of the largest vaults. */
  expiries: z.array(z.int()),
});

/** Returns the periods in which a summary needs exact counts from now until the next scan. */
export function summaryLayoutAt({ now, criticalDays, warningDays }: Moment, scope: Scope): SummaryLayout {
  return {
    windows: [0, criticalDays, warningDays].map((days) => {
      const boundary = now + days * DAY_MS;
      return [Math.floor((boundary - EXACT_BEFORE_MS) / 1000), Math.ceil((boundary + EXACT_FOR_MS) / 1000)];
    }),
    firstDay: Math.floor((now - EXACT_BEFORE_MS) / DAY_MS) - PAST_DAYS,
    isOutOfScope: (id) => scope.leftAt(id) !== undefined,
  };
}

/** Restores the layout of stored totals, to recompute them identically. */
export function layoutOfSummary({ windows, firstDay, subscriptions }: SummaryTotals): SummaryLayout {
  const outOfScope = new Set(subscriptions.flatMap(({ id, isOutOfScope }) => (isOutOfScope ? [id] : [])));
  return { windows, firstDay, isOutOfScope: (id) => outOfScope.has(id.toLowerCase()) };
}

/** Returns the packed totals. Undefined if they would be too large. */
export function packSummary(
  vaults: readonly CountedState[],
  { windows, firstDay, isOutOfScope }: SummaryLayout,
): Uint8Array<ArrayBuffer> | undefined {
  const counted = vaults.filter(({ subscriptionId }) => !isOutOfScope(subscriptionId));
  const owners = countOwnersByTag(counted);
  const subscriptions = bySubscription(vaults);
  const largest = counted
    .map((vault) => ({ vault, assets: assetsOf(vault) }))
    .sort((a, b) => bySize({ name: a.vault.name, assets: a.assets }, { name: b.vault.name, assets: b.assets }))
    .slice(0, STORED_LARGEST_VAULTS);
  const histograms = [
    ...subscriptions.flatMap(([, ownVaults]) => ASSET_TYPES.map((type) => countByWindow(ownVaults, [type], windows))),
    ...largest.map(({ vault }) => countByWindow([vault], ASSET_TYPES, windows)),
  ];
  const packed: z.infer<typeof Packed> = {
    windows,
    firstDay,
    days: forEachType((type) => {
      const counts = new Array<number>(PAST_DAYS + NEXT_DAYS + SPARE_DAYS).fill(0);
      for (const vault of counted) addByDay(counts, expiriesOf(vault, type), firstDay);
      return counts;
    }),
    subscriptions: subscriptions.map(([id, ownVaults]) => {
      // `failedScans` counts the scans in a row in which no list of the vault could be read.
      const unreadable = ownVaults.filter(({ failedScans }) => failedScans > 0);
      return [id, ownVaults.length, unreadable.length, isOutOfScope(id)];
    }),
    largest: largest.map(({ vault, assets }) => [vault.name, vault.subscriptionId, assets]),
    ...(owners.every((tagOwners) => tagOwners.owners.length <= MAX_OWNERS) ? { owners } : {}),
    expiries: [...packHistograms(histograms)],
  };
  const bytes = pack(packed);
  return bytes.length <= MAX_BYTES ? bytes : undefined;
}

/** Returns undefined if the data is corrupt. */
export function unpackSummary(bytes: Uint8Array): SummaryTotals | undefined {
  const packed = undefinedIfNotPacked(() => unpackBytes(bytes, Packed));
  if (!packed) return undefined;
  const histograms = unpackHistograms(Uint32Array.from(packed.expiries));
  const types = ASSET_TYPES.length;
  if (histograms?.length !== packed.subscriptions.length * types + packed.largest.length) return undefined;
  return {
    ...packed,
    owners: packed.owners,
    subscriptions: packed.subscriptions.map(([id, vaults, unreadable, isOutOfScope], index) => ({
      id,
      vaults,
      unreadable,
      isOutOfScope,
      expiries: forEachType((type) => histograms[index * types + ASSET_TYPES.indexOf(type)]!),
    })),
    largest: packed.largest.map(([name, subscriptionId, assets], index) => ({
      name,
      subscriptionId,
      assets,
      expiries: histograms[packed.subscriptions.length * types + index]!,
    })),
  };
}

/** The order of vaults and subscriptions in a summary: most assets first. */
export const bySize = (a: { name: string; assets: number }, b: { name: string; assets: number }): number =>
  b.assets - a.assets || (a.name < b.name ? -1 : 1);

const assetsOf = (vault: CountedState): number => sum(ASSET_TYPES, (type) => countExpiries(expiriesOf(vault, type)));

const bySubscription = (vaults: readonly CountedState[]): [string, CountedState[]][] =>
  [...Map.groupBy(vaults, ({ subscriptionId }) => subscriptionId.toLowerCase())].sort(([a], [b]) => (a < b ? -1 : 1));

const countByWindow = (vaults: readonly CountedState[], types: readonly AssetType[], windows: Window[]): Histogram => {
  const packed = vaults.flatMap((vault) => types.map((type) => unpackExpiries(expiriesOf(vault, type))));
  return histogramOf(packed, UNSET, windows, (instant) => gapStart(windows, instant));
};

function countOwnersByTag(vaults: readonly CountedState[]): OwnersOfTag[] {
  const byTag = new Map<string, { counts: Map<string, number>; others: number; assets: number }>();
  for (const vault of vaults)
    for (const type of ASSET_TYPES) {
      const ownerCounts = vault.owners?.[type];
      if (!ownerCounts) continue;
      const tagCounts = byTag.get(ownerCounts.tag) ?? { counts: new Map<string, number>(), others: 0, assets: 0 };
      byTag.set(ownerCounts.tag, tagCounts);
      for (const [owner, count] of ownerCounts.owners)
        tagCounts.counts.set(owner, (tagCounts.counts.get(owner) ?? 0) + count);
      tagCounts.others += ownerCounts.others;
      tagCounts.assets += countExpiries(expiriesOf(vault, type));
    }
  return [...byTag]
    .map(([tag, { counts, others, assets }]) => ({ tag, owners: [...counts].sort(byCount), others, assets }))
    .sort((a, b) => (a.tag < b.tag ? -1 : 1));
}
