import type { Outcome } from "./executor.ts";
import { pause } from "./pause.ts";
import type { RetryContext, RetryOptions } from "./worker-protocol.ts";

/** Default delays of the platform's `ExponentialBackoffRetryAttribute`, in seconds. */
const DEFAULT_BACKOFF_SECONDS = { minimum: 4, maximum: 900 };

/**
 * Runs a function, and again after each failure as its retry policy says. The retries are in memory: a restart of the host ends
 * them. https://learn.microsoft.com/azure/azure-functions/functions-bindings-error-pages
 */
export async function runWithRetry(
  policy: RetryOptions | undefined,
  stop: AbortSignal,
  attempt: (context: RetryContext | undefined) => Promise<Outcome>,
): Promise<Outcome> {
  let outcome = await attempt(undefined);
  if (policy === undefined) return outcome;
  const { maxRetryCount } = policy;
  for (let count = 1; !outcome.succeeded && (maxRetryCount === -1 || count <= maxRetryCount); count += 1) {
    await pause(1000 * delaySeconds(policy, count), stop);
    if (stop.aborted) break;
    const { error } = outcome;
    const { message, stack = "" } = error instanceof Error ? error : { message: String(error) };
    outcome = await attempt({
      retryCount: count,
      maxRetryCount,
      exception: { message, source: "", stackTrace: stack },
    });
  }
  return outcome;
}

function delaySeconds(policy: RetryOptions, count: number): number {
  if (policy.retryStrategy === "fixedDelay") return policy.delayInterval?.seconds ?? 0;
  const { minimum, maximum } = DEFAULT_BACKOFF_SECONDS;
  const low = policy.minimumInterval?.seconds ?? minimum;
  return Math.min(policy.maximumInterval?.seconds ?? maximum, low * 2 ** (count - 1));
}
