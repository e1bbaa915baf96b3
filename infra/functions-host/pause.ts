import { setTimeout as sleep } from "node:timers/promises";

/** Waits, or less when stopped: whoever waits asks the signal afterwards. */
export async function pause(ms: number, stop: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal: stop });
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}
