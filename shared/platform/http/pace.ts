import { setTimeout as delay } from "node:timers/promises";

/** Lets whoever asks go on at an even pace. */
export interface Pace {
  /**
   * Resolves when it is the caller's turn: at once, or when the turns before are over, or at once when too many wait.
   *
   * @param turns - How many it takes up, 1 when left out.
   */
  turn(turns?: number): Promise<void>;
}

/**
 * Spaces answers that cost a caller nothing to ask for again, so that callers who repeat them without a pause wait for
 * each other and leave the processor to everybody else. Waiting costs nothing but the open request.
 *
 * @param options.everyMs - Milliseconds that one turn takes up.
 * @param options.maxWaiting - Beyond so many nobody waits: the platform gives an instance few requests at a time.
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
    async turn(turns = 1) {
      const waits = Math.max(0, next - now());
      if (waits > maxWaiting * everyMs) return;
      next = now() + waits + turns * everyMs;
      if (waits > 0) await wait(waits);
    },
  };
}
