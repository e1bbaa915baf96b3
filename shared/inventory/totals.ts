import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { deflate, inflate, undefinedIfNotPacked } from "../platform/storage/packed-members.ts";
import { DAY_MS, DAY_SECONDS, HOUR_MS } from "../platform/time.ts";
import { ASSET_TYPES, type AssetType } from "./asset.ts";
import type { Moment } from "./asset-status.ts";
import { type CountedState, MARK_PREFIX } from "./changed-vaults.ts";
import { UNSET, unpackExpiries } from "./expiries.ts";
import { type Histogram, histogramOf, packHistograms, unpackHistograms, type Window } from "./histogram.ts";
import { LastListings } from "./last-listings.ts";
import {
  type PlannedHistograms,
  packPlannedHistograms,
  plannedExpiries,
  plannedHistograms,
  unpackPlannedHistograms,
} from "./planned-certificates.ts";
import { packSummary, type SummaryLayout, unpackSummary } from "./summary-totals.ts";
import { expiriesOf, forEachType, Vaults } from "./vault.ts";

/**
 * Totals of all vaults' rows, so that a query of the whole inventory reads one row instead of all. They are recomputed
 * from the vaults' rows after a scan (renew-totals.ts) and written under their ETag. A vault that changes later gets a
 * row of its own, its *mark* (changed-vaults.ts).
 *
 * Expiries are counted by day. Only within a *window* of a few days they are counted by second, because there an asset's status
 * changes soon, so queries ask for parts of a day.
 */

export const TotalsRecord = z.object({
  /**
   * New with each write. The row after the marks of changed vaults has the same value, which proves that a range read belongs
   * to one write.
   */
  sequence: z.string(),
  /** Periods whose expiries are counted by second: [from, before] in unix seconds, whole days (`exactWindows`). */
  windows: z.array(z.tuple([z.int(), z.int()])),
  subscriptions: z.array(z.object({ id: z.string(), vaults: z.int(), unreadable: z.int() })),
  /** Compressed histograms of each subscription's certificates, keys and secrets. */
  expiries: z.instanceof(Uint8Array),
  /** When each vault was last listed; see `LastListings`. */
  seenAt: z.instanceof(Uint8Array),
  /** Totals for a summary; see summary-totals.ts. Absent if too large, or in rows of earlier versions. */
  summary: z.instanceof(Uint8Array).optional(),
  /**
   * Compressed histograms of certificates with a renewal plan (planned-certificates.ts): of each subscription, then of each of
   * the summary's largest vaults. Absent if there are none.
   */
  renewals: z.instanceof(Uint8Array).optional(),
  /** Compressed histograms of their expiries by day, of each subscription. Absent if there are none. */
  renewalExpiries: z.instanceof(Uint8Array).optional(),
  /**
   * The thresholds in days, critical and warning, under which `renewals` are counted. Absent in rows of earlier versions, which
   * may run side by side with this one and leave `renewals` out of the totals.
   */
  thresholds: z.tuple([z.number(), z.number()]).optional(),
  /** True if the totals are too large for a row, or not complete yet. Then everything is counted from the vaults' rows. */
  unkept: z.boolean().optional(),
});
export type TotalsRecord = z.infer<typeof TotalsRecord>;
export const TotalsRows = entity(Vaults.table, TotalsRecord);
export const TotalsEnd = entity(Vaults.table, TotalsRecord.pick({ sequence: true }));

/**
 * Keys of the two rows of the totals: one sorts before the marks of changed vaults (`l!…`), the other after them. One range
 * therefore reads both rows and all marks, and can also include the next row, the scope (`m!scope`).
 */
export const TOTALS_KEY = "k!totals";
export const TOTALS_END_KEY = `${MARK_PREFIX}~`;

/** Totals of all vaults of a subscription. */
export interface SubscriptionTotals {
  id: string;
  vaults: number;
  unreadable: number;
  expiries: Record<AssetType, Histogram>;
}

export interface Totals {
  windows: Window[];
  subscriptions: SubscriptionTotals[];
  seenAt: LastListings;
}

/** The days before expiry in which assets are critical and warning. */
export type Thresholds = Pick<Moment, "criticalDays" | "warningDays">;

/**
 * The windows cover this time after a renewal of the totals. Later, queries whose ranges start or end within a day count the
 * vaults' rows.
 */
const EXACT_FOR_MS = 36 * HOUR_MS;

/**
 * Returns the windows of the totals: the days in which a status starts or ends, from an hour before the given time until 36
 * hours after it.
 */
export function exactWindows({ now, criticalDays, warningDays }: Moment): Window[] {
  return [0, criticalDays, warningDays].map((days) => {
    const boundary = now + days * DAY_MS;
    const firstDay = Math.floor((boundary - HOUR_MS) / DAY_MS);
    const endDay = Math.floor((boundary + EXACT_FOR_MS) / DAY_MS) + 1;
    return [firstDay * DAY_SECONDS, endDay * DAY_SECONDS];
  });
}

/** Maximum size of the totals in bytes, because an entity has at most 1 MiB. */
const MAX_BYTES = 900_000;

/**
 * Returns the totals of these vaults.
 *
 * @param summary - Layout in which the summary is exact.
 */
export function computeTotals(
  vaults: Iterable<CountedState>,
  windows: Window[],
  sequence: string,
  summary: SummaryLayout | undefined,
  thresholds: Thresholds,
): TotalsRecord {
  const vaultList = [...vaults];
  const bySubscription = [...Map.groupBy(vaultList, ({ subscriptionId }) => subscriptionId.toLowerCase())].sort(byId);
  const histograms = bySubscription.flatMap(([, ownVaults]) =>
    ASSET_TYPES.map((type) => {
      const packed = ownVaults.map((vault) => unpackExpiries(expiriesOf(vault, type)));
      // `UNSET` is the packed value of an asset without an expiry.
      return histogramOf(packed, UNSET, windows);
    }),
  );
  const record: TotalsRecord = {
    sequence,
    windows,
    subscriptions: bySubscription.map(([id, ownVaults]) => ({
      id,
      vaults: ownVaults.length,
      unreadable: ownVaults.filter(({ failedScans }) => failedScans > 0).length,
    })),
    expiries: deflate(new Uint8Array(packHistograms(histograms).buffer)),
    seenAt: deflate(LastListings.pack(vaultList)),
  };
  const renewals = packRenewals(vaultList, bySubscription, windows, undefined, thresholds);
  const bytes =
    record.expiries.length +
    record.seenAt.length +
    // Table Storage stores text with two bytes per character.
    2 * JSON.stringify(record.subscriptions).length +
    (renewals.renewals?.length ?? 0) +
    (renewals.renewalExpiries?.length ?? 0);
  if (bytes > MAX_BYTES) return unusableTotals(sequence);
  // The summary is left out if the totals would become too large with it. Then summaries are counted from the vaults' rows.
  const packed = summary && packSummary(vaultList, summary);
  const withLargest = packed && packRenewals(vaultList, bySubscription, windows, packed, thresholds);
  const allBytes = bytes + (packed?.length ?? 0) + (withLargest?.renewals?.length ?? 0);
  return packed && allBytes <= MAX_BYTES ? { ...record, summary: packed, ...withLargest } : { ...record, ...renewals };
}

/**
 * Returns the counts of certificates with a renewal plan, without `renewals` if there are none.
 *
 * @param summary - The packed summary, whose largest vaults are also counted one by one.
 */
function packRenewals(
  vaults: readonly CountedState[],
  bySubscription: readonly [string, CountedState[]][],
  windows: readonly Window[],
  summary: Uint8Array | undefined,
  thresholds: Thresholds,
): Pick<TotalsRecord, "renewals" | "renewalExpiries" | "thresholds"> {
  const days: [number, number] = [thresholds.criticalDays, thresholds.warningDays];
  if (!vaults.some(({ certificateRenewals }) => (certificateRenewals?.length ?? 0) > 0)) return { thresholds: days };
  const byName = new Map(vaults.map((vault) => [vault.name.toLowerCase(), vault]));
  const largest = (summary && unpackSummary(summary))?.largest ?? [];
  const groups = [
    ...bySubscription.map(([, ownVaults]) => ownVaults),
    ...largest.map(({ name }) => [byName.get(name.toLowerCase())!]),
  ];
  const histograms = groups.map((group) => plannedHistograms(group, windows, thresholds));
  const expiries = bySubscription.map(([, ownVaults]) => plannedExpiries(ownVaults, windows));
  return {
    renewals: deflate(new Uint8Array(packPlannedHistograms(histograms).buffer)),
    renewalExpiries: deflate(new Uint8Array(packHistograms(expiries).buffer)),
    thresholds: days,
  };
}

/** Counts of certificates with a renewal plan, by the positions of subscriptions and of the summary's largest vaults. */
export interface StoredRenewals {
  histograms: PlannedHistograms[];
  /** Expiries by day, by the positions of subscriptions. Undefined if they were not read. */
  expiries: Histogram[] | undefined;
  windows: Window[];
  thresholds: Thresholds;
}

/**
 * Returns the counts of certificates with a renewal plan. Null if there are no such certificates. Undefined if an earlier version
 * wrote the row, if it is corrupt, or if `windows` was not read.
 */
export function readRenewals({
  renewals,
  renewalExpiries,
  thresholds,
  windows,
}: Partial<TotalsRecord>): StoredRenewals | null | undefined {
  if (!thresholds) return undefined;
  if (renewals === undefined) return null;
  const words = inflateToWords(renewals);
  const histograms = words && unpackPlannedHistograms(words);
  const expiryWords = renewalExpiries && inflateToWords(renewalExpiries);
  const expiries = expiryWords && unpackHistograms(expiryWords);
  if (!histograms || !windows || (renewalExpiries && !expiries)) return undefined;
  return { histograms, expiries, windows, thresholds: { criticalDays: thresholds[0], warningDays: thresholds[1] } };
}

/** Returns empty totals that readers ignore. */
export const unusableTotals = (sequence: string): TotalsRecord => ({
  sequence,
  windows: [],
  subscriptions: [],
  expiries: new Uint8Array(),
  seenAt: new Uint8Array(),
  unkept: true,
});

/** Returns undefined if the data is corrupt. */
export function readTotals(record: TotalsRecord): Totals | undefined {
  const expiries = inflateToWords(record.expiries);
  const histograms = expiries && unpackHistograms(expiries);
  const seenAt = readLastListings(record.seenAt);
  if (!seenAt || histograms?.length !== record.subscriptions.length * ASSET_TYPES.length) return undefined;
  return {
    windows: record.windows,
    subscriptions: record.subscriptions.map((subscription, index) => ({
      ...subscription,
      expiries: forEachType((type) => histograms[index * ASSET_TYPES.length + ASSET_TYPES.indexOf(type)]!),
    })),
    seenAt,
  };
}

/** Returns undefined if the data is corrupt. */
export function readLastListings(packed: Uint8Array): LastListings | undefined {
  const words = inflateToWords(packed);
  return words && LastListings.unpack(words);
}

/** Returns undefined if the data is not compressed words. */
function inflateToWords(packed: Uint8Array): Uint32Array | undefined {
  // A copy, since decompressed bytes may be unaligned in a larger buffer.
  const bytes = undefinedIfNotPacked(() => new Uint8Array(inflate(packed)));
  return bytes && bytes.length % Uint32Array.BYTES_PER_ELEMENT === 0 ? new Uint32Array(bytes.buffer) : undefined;
}

const byId = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : 1);
