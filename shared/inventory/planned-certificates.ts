import type { AssetRecord } from "./asset.ts";
import { type ExpiryRange, type Moment, STATUSES, type Status } from "./asset-status.ts";
import { UNSET } from "./expiries.ts";
import {
  countBetween,
  countIn,
  gapStart,
  type Histogram,
  histogramOf,
  packHistograms,
  unpackHistograms,
  type Window,
} from "./histogram.ts";
import { type PlannedCertificate, renewalInstantsOf, statusByPlan } from "./renewal.ts";

/**
 * Counts of certificates with a renewal plan (renewal.ts), whose status does not follow from their expiry alone.
 *
 * The stored expiries contain all certificates, with and without a plan. So a count by status has three steps: count all
 * certificates by expiry, subtract the certificates with a plan by expiry, and add them by their plans.
 */

/**
 * A certificate is stored as three 32-bit numbers: its expiry and `attentionAt` in unix seconds, and 1 if its renewal window is
 * known.
 */
const WORDS_PER_CERTIFICATE = 3;

/** Counts of the certificates with a plan in some vaults. */
export interface PlannedCounts {
  /** Returns the number of certificates that expire in the range; without a range, of all. Undefined if it is not exact. */
  countIn(range?: ExpiryRange): number | undefined;
  /**
   * Returns the number of certificates with a status.
   *
   * @param range - Counts only certificates that expire in the range.
   * @returns undefined if it is not exact.
   */
  countByStatus(status: Status, moment: Moment, range?: ExpiryRange): number | undefined;
}

/**
 * Returns the first of `exactWindows`, which surrounds the time of the count. Statuses are counted only at times in this window.
 */
const nearNow = (windows: readonly Window[]): readonly Window[] => windows.slice(0, 1);

/** Packs the certificates with a plan of one vault, for the vault's row. */
export function packPlanned(assets: Iterable<Pick<AssetRecord, "expiresOn" | "renewal">>): Uint8Array<ArrayBuffer> {
  const certificates: [number, number, number][] = [];
  for (const { expiresOn, renewal } of assets) {
    if (!renewal || expiresOn === undefined) continue;
    // Within 32 bits, and below `UNSET`, which stands for no expiry.
    const instants = [expiresOn, renewal.attentionAt].map((one) => Math.min(Math.max(one, 0), UNSET - 1));
    certificates.push([instants[0]!, instants[1]!, renewal.windowEnd === undefined ? 0 : 1]);
  }
  certificates.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
  return new Uint8Array(Uint32Array.from(certificates.flat()).buffer);
}

/** Returns the certificates with a plan of one vault, by expiry. */
export function unpackPlanned(packed: Uint8Array | undefined): PlannedCertificate[] {
  const words = new Uint32Array(new Uint8Array(packed ?? []).buffer);
  const certificates: PlannedCertificate[] = [];
  for (let index = 0; index + WORDS_PER_CERTIFICATE <= words.length; index += WORDS_PER_CERTIFICATE)
    certificates.push({
      expiresOn: words[index]!,
      attentionAt: words[index + 1]!,
      hasWindow: words[index + 2] === 1,
    });
  return certificates;
}

const isIn = (range: ExpiryRange | undefined, expiresOn: number): boolean =>
  !range || (expiresOn >= range.from && expiresOn < range.before);

/**
 * Returns exact counts of one vault. Undefined if it has no certificate with a plan.
 *
 * @param sign - -1 for the earlier state of a changed vault, which is subtracted from totals.
 */
export function plannedOfVault(packed: Uint8Array | undefined, sign: 1 | -1): PlannedCounts | undefined {
  if (!packed || packed.length === 0) return undefined;
  const certificates = unpackPlanned(packed);
  return {
    countIn: (range) => sign * certificates.filter(({ expiresOn }) => isIn(range, expiresOn)).length,
    countByStatus: (status, moment, range) =>
      sign *
      certificates.filter(
        (certificate) => isIn(range, certificate.expiresOn) && statusByPlan(certificate, moment) === status,
      ).length,
  };
}

/**
 * Histograms of certificates with a plan, for the stored totals: when they expire, and when they become `warning` and
 * `critical` under the settings at the time of the count. Times between two windows are one number, so that the size does not
 * grow with the certificates.
 */
export type PlannedHistograms = [expiries: Histogram, warnings: Histogram, criticals: Histogram];

/** Returns the histograms of the certificates with a plan in some vaults. */
export function plannedHistograms(
  vaults: readonly { certificateRenewals?: Uint8Array | undefined }[],
  windows: readonly Window[],
  thresholds: Pick<Moment, "criticalDays" | "warningDays">,
): PlannedHistograms {
  const certificates = vaults.flatMap(({ certificateRenewals }) => unpackPlanned(certificateRenewals));
  const instants = certificates.map((one) => renewalInstantsOf(one, thresholds));
  const histogram = (times: number[], exactIn = windows) =>
    histogramOf([Uint32Array.from(times, (time) => Math.max(time, 0))], UNSET, exactIn, (time) =>
      gapStart(exactIn, time),
    );
  return [
    histogram(certificates.map(({ expiresOn }) => expiresOn)),
    histogram(
      instants.map(({ warningAt }) => warningAt),
      nearNow(windows),
    ),
    histogram(
      instants.map(({ criticalAt }) => criticalAt),
      nearNow(windows),
    ),
  ];
}

/** Returns when certificates with a plan expire, by day outside of the windows. */
export function plannedExpiries(
  vaults: readonly { certificateRenewals?: Uint8Array | undefined }[],
  windows: readonly Window[],
): Histogram {
  const expiries = vaults.map(({ certificateRenewals }) =>
    Uint32Array.from(unpackPlanned(certificateRenewals), ({ expiresOn }) => expiresOn),
  );
  return histogramOf(expiries, UNSET, windows);
}

/**
 * Returns the counts of stored totals. Counts by status are exact only under the settings at the time of the count, and only
 * without a range of expiries.
 *
 * @param byDay - Result of `plannedExpiries`, for exact counts of ranges of whole days.
 */
export function plannedOfTotals(
  [expiries, warnings, criticals]: PlannedHistograms,
  windows: readonly Window[],
  thresholds: Pick<Moment, "criticalDays" | "warningDays">,
  byDay?: Histogram,
): PlannedCounts | undefined {
  if (expiries.at.length === 0) return undefined;
  const countUntil = (histogram: Histogram, before: number) =>
    countBetween(histogram, nearNow(windows), { from: 0, before, unset: false });
  return {
    countIn: (range) => (byDay ? countIn(byDay, windows, range) : countBetween(expiries, windows, range)),
    countByStatus: (status, moment, range) => {
      if (range || moment.criticalDays !== thresholds.criticalDays || moment.warningDays !== thresholds.warningDays)
        return undefined;
      // A warning starts in its second, but a certificate expires after its second (`statusByPlan`). So the bounds differ.
      const afterNow = Math.floor(moment.now / 1000) + 1;
      const counts = [
        countBetween(expiries, windows),
        countUntil(warnings, afterNow),
        countUntil(criticals, afterNow),
        countUntil(expiries, Math.ceil(moment.now / 1000)),
      ];
      if (counts.includes(undefined)) return undefined;
      // Statuses follow each other: healthy, warning, critical, expired. `counts` has the number of certificates that reached
      // each status. The number with a status now is the number that reached it, minus the number that reached the next status.
      const index = STATUSES.indexOf(status);
      return counts[index]! - (counts[index + 1] ?? 0);
    },
  };
}

/** Returns the histograms of several groups as 32-bit words. */
export const packPlannedHistograms = (groups: readonly PlannedHistograms[]): Uint32Array =>
  packHistograms(groups.flat());

/** Returns undefined if the data is corrupt. */
export function unpackPlannedHistograms(words: Uint32Array): PlannedHistograms[] | undefined {
  const histograms = unpackHistograms(words);
  if (!histograms || histograms.length % 3 !== 0) return undefined;
  return Array.from(
    { length: histograms.length / 3 },
    (_, index) => histograms.slice(3 * index, 3 * index + 3) as PlannedHistograms,
  );
}
