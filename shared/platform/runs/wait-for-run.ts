import type { Logger } from "../runtime.ts";

/**
 * Waits for the work on a run, but at most until the time limit of the HTTP request that started it. If the work takes longer
 * or fails, the run's queue message completes it.
 *
 * @param timeLimit - Aborted at the time limit. Must not be aborted yet.
 */
export async function waitForRun(
  work: Promise<unknown>,
  { runId, timeLimit, log }: { runId: string; timeLimit: AbortSignal; log: Logger },
): Promise<void> {
  const done = work.catch((error: unknown) => {
    log.warn("A run continues with its queue message", { runId, reason: error instanceof Error ? error.name : "" });
  });
  const waited = new Promise<void>((resolve) => timeLimit.addEventListener("abort", () => resolve(), { once: true }));
  await Promise.race([done, waited]);
}
