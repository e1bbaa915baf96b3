import type { Clock, Randomness } from "../runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import type { Part } from "./delivery.ts";

/**
 * Seconds before each further attempt: the first steps of the schedule that Standard Webhooks recommends, 17 hours in all.
 * https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#deliverability-and-reliability
 */
export const BACK_OFF_SECONDS = [5, 300, 1800, 7200, 18_000, 36_000];
/** Seconds a receiver may ask to be left alone; longer ones are asked again after this. */
export const MAX_RETRY_AFTER_SECONDS = 3600;

/** Longer than any attempt takes: until then nobody else may go on with it. */
export const LEASE_MS = 2 * MINUTE_MS;

/** What an attempt changes in a part. */
export type Outcome = Partial<Part> & Pick<Part, "status">;

/** When a part is gone on with. */
export interface Attempts {
  /** The instant so many seconds from now, ISO 8601. */
  after(seconds: number): string;
  /**
   * Another attempt later, or the end of it. A test has one attempt only, since somebody waits for what comes of it.
   *
   * @param more - What else the attempt changes in the part.
   * @param seconds - How long the receiver asks to be left alone.
   */
  retry(part: Part, test: boolean, error: string, more?: Partial<Part>, seconds?: number): Outcome;
}

export function createAttempts({ clock, randomness }: { clock: Clock; randomness: Randomness }): Attempts {
  const after = (seconds: number): string => new Date(clock.now().getTime() + seconds * SECOND_MS).toISOString();
  return {
    after,
    retry(part, test, error, more = {}, seconds = 0) {
      const pause = BACK_OFF_SECONDS[part.attempts - (part.attemptsBefore ?? 0) - 1];
      if (test || pause === undefined) return { ...more, status: "failed", error };
      const jittered = Math.ceil(pause * (1 + randomness.number() / 5));
      const wait = Math.max(jittered, Math.min(seconds, MAX_RETRY_AFTER_SECONDS));
      return { status: "waiting", ...more, error, notBefore: after(wait) };
    },
  };
}
