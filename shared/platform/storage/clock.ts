import type { Clock } from "../runtime.ts";

/** The `Date` header of an answer counts whole seconds, so the instant it was made lies up to this much later. */
const DATE_RESOLUTION_MS = 1000;

/** The time as the table service has it: the same for every instance, whatever its own clock says. */
export interface StoreClock extends Clock {
  /**
   * Takes in what an answer of the service says of the time.
   *
   * @param date - The answer's `Date` header in milliseconds since 1970.
   * @param sentAt - When the request was sent and
   * @param receivedAt - when its answer came, both in milliseconds of the monotonic clock (`performance.now()`).
   */
  saw(date: number, sentAt: number, receivedAt: number): void;
}

/**
 * The store's time, kept between answers by the process's monotonic clock, which no correction of the system's time moves.
 * Until the first answer it is the system's time.
 *
 * Each answer bounds the offset: it was made after the request was sent and before the answer came, at its `Date` or up to
 * a second later. An offset within the bounds stays as it is; another one moves to the nearer bound.
 */
export function createStoreClock(monotonic: () => number = () => performance.now()): StoreClock {
  let offset = Date.now() - monotonic();
  return {
    now: () => new Date(monotonic() + offset),
    saw(date, sentAt, receivedAt) {
      if (!Number.isFinite(date)) return;
      offset = Math.min(Math.max(offset, date - receivedAt), date + DATE_RESOLUTION_MS - sentAt);
    },
  };
}
