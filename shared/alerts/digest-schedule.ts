import { DAY_MS } from "../platform/time.ts";
import type { DigestFrequency, RuleRecord } from "./rule.ts";

/** Hour in UTC at which digests are created. Weekly digests are created on Mondays. */
export const DIGEST_HOUR = 6;

/** Returns the last digest time at or before `now`. */
export function lastDigest(frequency: DigestFrequency, now: Date): Date {
  const today = new Date(now);
  today.setUTCHours(DIGEST_HOUR, 0, 0, 0);
  let last = today.getTime() > now.getTime() ? today.getTime() - DAY_MS : today.getTime();
  if (frequency === "weekly") last -= ((new Date(last).getUTCDay() + 6) % 7) * DAY_MS;
  return new Date(last);
}

/** Returns the first digest time after `now`. */
export function nextDigest(frequency: DigestFrequency, now: Date): Date {
  return new Date(lastDigest(frequency, now).getTime() + (frequency === "weekly" ? 7 : 1) * DAY_MS);
}

/** Returns whether a rule with its last evaluation at `at` is due. */
export const isDue = (rule: RuleRecord, at: Date, now: Date): boolean =>
  rule.enabled && (rule.deliveryMode === "immediate" || lastDigest(rule.digestFrequency, now) > at);
