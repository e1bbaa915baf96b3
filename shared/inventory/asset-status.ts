import { DAY_MS } from "../platform/time.ts";

/**
 * The status of an asset (healthy, warning, critical or expired), computed from its expiry at request time, and the
 * range of expiries of each status.
 */

export const STATUSES = ["healthy", "warning", "critical", "expired"] as const;
export type Status = (typeof STATUSES)[number];

/**
 * The time and thresholds by which statuses are decided. Cursors contain them, so that all pages of a list use the same ones.
 */
export interface Moment {
  /** Milliseconds since 1970. */
  now: number;
  criticalDays: number;
  warningDays: number;
}

/**
 * Returns the status of an asset by the time until its expiry. `expiresOn` is in unix seconds. The status of a certificate with a
 * renewal plan follows from the plan instead (renewal.ts).
 */
export function statusOf(expiresOn: number | undefined, moment: Moment): Status {
  if (expiresOn === undefined) return "healthy";
  const remainingMs = expiresOn * 1000 - moment.now;
  if (remainingMs < 0) return "expired";
  if (remainingMs <= moment.criticalDays * DAY_MS) return "critical";
  return remainingMs <= moment.warningDays * DAY_MS ? "warning" : "healthy";
}

/** Returns whole days until the expiry, rounded down; negative after it. */
export const daysUntil = (expiresOn: number, moment: Moment): number =>
  Math.floor((expiresOn * 1000 - moment.now) / DAY_MS);

/**
 * A range of expiries in unix seconds: from <= expiresOn < before. `unset` says whether assets without an expiry belong to it.
 */
export interface ExpiryRange {
  from: number;
  before: number;
  unset: boolean;
}

/** Later than every expiry a key can contain (ten digits). "No expiry" sorts after it. */
export const END_OF_TIME = 9_999_999_999;

/** Returns the range of expiries that has the status at that time. */
export function rangeOf(status: Status, moment: Moment): ExpiryRange {
  const firstUnexpired = Math.ceil(moment.now / 1000);
  const afterCritical = Math.floor((moment.now + moment.criticalDays * DAY_MS) / 1000) + 1;
  const afterWarning = Math.floor((moment.now + moment.warningDays * DAY_MS) / 1000) + 1;
  switch (status) {
    case "expired":
      return { from: 0, before: firstUnexpired, unset: false };
    case "critical":
      return { from: firstUnexpired, before: afterCritical, unset: false };
    case "warning":
      return { from: afterCritical, before: afterWarning, unset: false };
    case "healthy":
      return { from: afterWarning, before: END_OF_TIME, unset: true };
  }
}

/** Returns the intersection of both ranges. */
export const intersect = (a: ExpiryRange, b: ExpiryRange): ExpiryRange => ({
  from: Math.max(a.from, b.from),
  before: Math.min(a.before, b.before),
  unset: a.unset && b.unset,
});
