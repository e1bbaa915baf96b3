import { setTimeout as delay } from "node:timers/promises";

/** Spaces out calls at an even rate. */
export interface Pace {
  /**
   * Resolves when the caller's slot starts: at once if no caller waits, or if too many wait.
   *
   * @param slots - Number of slots to take, default 1.
   */
  waitForSlot(slots?: number): Promise<void>;
}

/**
 * Creates a pace for answers that are cheap to request repeatedly. Callers that repeat them without a pause wait for each other
 * and leave processor time to others. Waiting costs only the open request.
 *
 * @param options.everyMs - Milliseconds per slot.
 * @param options.maxWaiting - Maximum number of waiting slots. Further callers don't wait, because the platform limits the
 * concurrent requests of an instance.
 */
export function createPace(options: {
  everyMs: number;
  maxWaiting: number;
  /** Milliseconds of a monotonic clock. */
  now?: () => number;
  wait?: (milliseconds: number) => Promise<void>;
}): Pace {
  const { everyMs, maxWaiting, now = () => performance.now(), wait = delay } = options;
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
