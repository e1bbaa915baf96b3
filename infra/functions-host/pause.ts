import { setTimeout as sleep } from "node:timers/promises";

/** Waits, or returns early when the signal is aborted. The caller checks the signal afterwards. */
export async function pause(ms: number, stop: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, { signal: stop });
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}
