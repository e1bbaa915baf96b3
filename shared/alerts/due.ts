import { DAY_MS } from "../time.ts";
import type { DigestFrequency, RuleRecord } from "./rule.ts";

/** Digests are made at this hour in UTC, weekly ones on Mondays. */
export const DIGEST_HOUR = 6;

/** The last instant at or before `now` at which a digest was to be made. */
export function lastDigest(frequency: DigestFrequency, now: Date): Date {
  const today = new Date(now);
  today.setUTCHours(DIGEST_HOUR, 0, 0, 0);
  let last = today.getTime() > now.getTime() ? today.getTime() - DAY_MS : today.getTime();
  if (frequency === "weekly") last -= ((new Date(last).getUTCDay() + 6) % 7) * DAY_MS;
  return new Date(last);
}

/** The first instant after `now` at which a digest is to be made. */
export function nextDigest(frequency: DigestFrequency, now: Date): Date {
  return new Date(lastDigest(frequency, now).getTime() + (frequency === "weekly" ? 7 : 1) * DAY_MS);
}

/** Whether a rule that was last evaluated at `at` is to be evaluated now. */
export const isDue = (rule: RuleRecord, at: Date, now: Date): boolean =>
  rule.enabled && (rule.deliveryMode === "immediate" || lastDigest(rule.digestFrequency, now) > at);
