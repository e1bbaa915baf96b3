import type { Logger } from "../runtime.ts";

/**
 * Lets a request wait for the work on its run until its time limit. The queue's messages finish work that continues after the
 * answer, or that failed.
 *
 * @param late - Aborted at the time limit. Must not be aborted yet.
 */
export async function waitForRun(
  work: Promise<unknown>,
  { runId, late, log }: { runId: string; late: AbortSignal; log: Logger },
): Promise<void> {
  const done = work.catch((error: unknown) => {
    log.warn("A run is left to its message", { runId, reason: error instanceof Error ? error.name : "" });
  });
  const waited = new Promise<void>((resolve) => late.addEventListener("abort", () => resolve(), { once: true }));
  await Promise.race([done, waited]);
}
