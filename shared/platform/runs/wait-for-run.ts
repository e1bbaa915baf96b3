import type { Logger } from "../runtime.ts";

/**
 * Has a request wait for the work on its run, until it is late. What goes on after the answer, or fails, is finished by the
 * queue's messages.
 *
 * @param late - Not aborted yet.
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
