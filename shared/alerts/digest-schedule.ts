import { DAY_MS } from "../platform/time.ts";
import type { DigestFrequency, RuleRecord } from "./rule.ts";

/** The times of digests: messages that combine the items of a day or a week. */

/** Hour in UTC at which digests are created. Weekly digests are created on Mondays. */
export const DIGEST_HOUR = 6;

/** Returns the last digest time at or before `now`. */
export function lastDigest(frequency: DigestFrequency, now: Date): Date {
  const today = new Date(now);
  today.setUTCHours(DIGEST_HOUR, 0, 0, 0);
  let digestMs = today.getTime() > now.getTime() ? today.getTime() - DAY_MS : today.getTime();
  // `getUTCDay` is 0 on Sunday, so this subtracts the days since Monday.
  if (frequency === "weekly") digestMs -= ((new Date(digestMs).getUTCDay() + 6) % 7) * DAY_MS;
  return new Date(digestMs);
}

/** Returns the first digest time after `now`. */
export function nextDigest(frequency: DigestFrequency, now: Date): Date {
  return new Date(lastDigest(frequency, now).getTime() + (frequency === "weekly" ? 7 : 1) * DAY_MS);
}

/**
 * Returns whether a rule is due. An enabled rule that notifies at once is always due. A digest is due if a digest time has passed
 * since the rule's last evaluation.
 */
export const isDue = (rule: RuleRecord, evaluatedAt: Date, now: Date): boolean =>
  rule.enabled && (rule.deliveryMode === "immediate" || lastDigest(rule.digestFrequency, now) > evaluatedAt);
