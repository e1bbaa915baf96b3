import { setTimeout as delay } from "node:timers/promises";

/** Delays calls so that they start at an even rate, one per time slot. */
export interface Pace {
  /**
   * Resolves when the caller's slot starts: at once if no caller waits, or if too many wait.
   *
   * @param slots - Number of slots to take, default 1.
   */
  waitForSlot(slots?: number): Promise<void>;
}

/**
 * Creates a pace for responses, such as 429, that clients may request again without a pause. Such clients then wait for each
 * other and leave processor time to other requests. A waiting request costs only its open connection.
 *
 * @param options.everyMs - Milliseconds per slot.
 * @param options.maxWaiting - Maximum number of waiting slots. Further callers don't wait, because the Functions host limits
 * the number of concurrent requests.
 */
export function createPace(options: {
  everyMs: number;
  maxWaiting: number;
  /** Milliseconds of a monotonic clock. */
  now?: () => number;
  wait?: (milliseconds: number) => Promise<void>;
}): Pace {
  const { everyMs, maxWaiting, now = () => performance.now(), wait = delay } = options;
  /** Time at which the next free slot starts. */
  let next = 0;
  return {
    async waitForSlot(slots = 1) {
      const waits = Math.max(0, next - now());
      if (waits > maxWaiting * everyMs) return;
      next = now() + waits + slots * everyMs;
      if (waits > 0) await wait(waits);
    },
  };
}
