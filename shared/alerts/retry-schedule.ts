import type { Clock, Randomness } from "../platform/runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { Part } from "./delivery.ts";

/** Seconds before each retry: the first steps of the schedule that Standard Webhooks recommends, 17 hours in total.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#deliverability-and-reliability
 */
export const BACK_OFF_SECONDS = [5, 300, 1800, 7200, 18_000, 36_000];
/** Maximum Retry-After in seconds that is respected. A longer one is capped. */
export const MAX_RETRY_AFTER_SECONDS = 3600;

/** Lease of an attempt, longer than any attempt takes. Other workers leave the part alone until the lease expires. */
export const LEASE_MS = 2 * MINUTE_MS;

/** The changes that an attempt makes to a part. */
export type Outcome = Partial<Part> & Pick<Part, "status">;

/** The schedule of retries. */
export interface Attempts {
  /** Returns the time that many seconds from now, ISO 8601. */
  timeAfter(seconds: number): string;
  /**
   * Returns the outcome of a failed attempt: a retry later, or a final failure after the last attempt. A test has one attempt,
   * because a user waits for its result.
   *
   * @param more - Further changes to the part.
   * @param retryAfterSeconds - The receiver's Retry-After.
   */
  retry(part: Part, test: boolean, error: string, more?: Partial<Part>, retryAfterSeconds?: number): Outcome;
}

/** Creates the schedule of retries. */
export function createAttempts({ clock, randomness }: { clock: Clock; randomness: Randomness }): Attempts {
  const timeAfter = (seconds: number): string => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();
  return {
    timeAfter,
    retry(part, test, error, more = {}, retryAfterSeconds = 0) {
      // `attemptsBefore`: the attempts before a critical item restarted the schedule.
      const pause = BACK_OFF_SECONDS[part.attempts - (part.attemptsBefore ?? 0) - 1];
      if (test || pause === undefined) return { ...more, status: "failed", error };
      // Up to 20% longer at random, so that deliveries that failed together are not all retried at the same time.
      const jittered = Math.ceil(pause * (1 + randomness.number() / 5));
      const wait = Math.max(jittered, Math.min(retryAfterSeconds, MAX_RETRY_AFTER_SECONDS));
      return { status: "waiting", ...more, error, notBefore: timeAfter(wait) };
    },
  };
}
