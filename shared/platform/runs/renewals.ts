/** What keeps a worker's hold alive beside its work. */
export interface Renewals {
  /** No further one; waits for the one that is under way. */
  stop(): Promise<void>;
}

/**
 * Calls `renew` every so many milliseconds, one call after the other. One that fails needs no answer: the next makes up for
 * it, and at the worst another worker takes over.
 */
export function startRenewals(everyMs: number, renew: () => Promise<unknown>): Renewals {
  let renewed: Promise<unknown> = Promise.resolve();
  const timer = setInterval(() => {
    renewed = renewed.then(renew).catch(() => {});
  }, everyMs);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      await renewed;
    },
  };
}
