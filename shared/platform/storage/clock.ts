import type { Clock } from "../runtime.ts";

/** The `Date` header has a resolution of one second, so the answer was created up to this much later. */
const DATE_RESOLUTION_MS = 1000;

/** Clock that follows the table service's time, which is the same for every instance, whatever its own clock shows. */
export interface StoreClock extends Clock {
  /**
   * Adjusts the clock by an answer of the service.
   *
   * @param date - The answer's `Date` header in milliseconds since 1970.
   * @param sentAt - Time of the request in milliseconds of the monotonic clock (`performance.now()`).
   * @param receivedAt - Time of the answer, on the same clock.
   */
  adjust(date: number, sentAt: number, receivedAt: number): void;
}

/**
 * Creates a clock with the store's time. Between answers it advances with the process's monotonic clock, which ignores
 * corrections of the system time. Before the first answer it returns the system time.
 *
 * Each response limits the possible offsets, because the service created it between the request and its arrival, at its `Date`
 * or up to a second later. If the current offset is outside of these bounds, it is set to the nearer bound.
 */
export function createStoreClock(monotonic: () => number = () => performance.now()): StoreClock {
  let offset = Date.now() - monotonic();
  return {
    now: () => new Date(monotonic() + offset),
    adjust(date, sentAt, receivedAt) {
      if (!Number.isFinite(date)) return;
      offset = Math.min(Math.max(offset, date - receivedAt), date + DATE_RESOLUTION_MS - sentAt);
    },
  };
}
