/** The heartbeat of a lease. */
export interface Heartbeat {
  /** Stops the heartbeat. Waits for a renewal that is in progress. */
  stop(): Promise<void>;
}

/**
 * Calls `renew` every `everyMs` milliseconds, one call after the other. A failed renewal is ignored, because the next renewal
 * makes up for it. In the worst case another worker takes over.
 */
export function startHeartbeat(everyMs: number, renew: () => Promise<unknown>): Heartbeat {
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
