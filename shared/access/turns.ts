import { retryLater } from "../http/problem.ts";

/** Work that is done one at a time within this instance, in the order it came. */
export interface Turns {
  /** @throws {Problem} rateLimited, with nothing done, when too many are waiting already. */
  take<T>(work: () => Promise<T>): Promise<T>;
}

/** Seconds after which a caller who found the queue full should come back: about what it takes to work it off. */
const RETRY_AFTER_SECONDS = 5;

/** @param maxWaiting - How many may wait behind the one whose turn it is. */
export function createTurns(maxWaiting: number): Turns {
  let last: Promise<unknown> = Promise.resolve();
  let present = 0;
  return {
    async take(work) {
      if (present > maxWaiting) {
        throw retryLater("rateLimited", "Too many sign-ins are being checked. Wait a moment.", RETRY_AFTER_SECONDS);
      }
      present += 1;
      const turn = last.then(work);
      // Whoever comes next waits for the end of this turn, however it ends; its own caller hears how.
      last = turn.catch(() => undefined);
      try {
        return await turn;
      } finally {
        present -= 1;
      }
    },
  };
}
