// Runs invocations: calls of one function with one input, for the HTTP handler and the timer and queue listeners. Adds a
// timeout, log entries and a trace context to each.

import { randomBytes, randomUUID } from "node:crypto";
import { channel } from "node:diagnostics_channel";
import type { Core } from "./functions-core.ts";
import { describeError } from "./load-app.ts";
import type { Log } from "./log.ts";
import type { InvocationResponse, ParameterBinding, RetryContext, TraceContext, TypedData } from "./worker-protocol.ts";

interface Invocation {
  name: string;
  /** Reason for the invocation, for the log. */
  reason: string;
  input: ParameterBinding;
  triggerMetadata?: Record<string, TypedData>;
  /** W3C trace context of the caller, which the invocation continues. */
  traceParent?: string | undefined;
  traceState?: string | undefined;
  retryContext?: RetryContext | undefined;
}

/**
 * Diagnostics channel that publishes each InvocationRequest. Instrumentation can bind an AsyncLocalStorage to the channel,
 * which then holds the request during the whole invocation.
 */
const invocations = channel("local-host.invocation");

export type Outcome = { succeeded: true; response: InvocationResponse } | { succeeded: false; error: unknown };

export interface Executor {
  /** Runs an invocation. Never rejects: an error of the function is logged and is the outcome. */
  run(invocation: Invocation): Promise<Outcome>;
  /** Resolves when no invocation is running. */
  waitUntilIdle(): Promise<void>;
}

/**
 * Creates the executor.
 * @param timeoutMs Maximum duration of an invocation. If an invocation runs longer, the platform restarts the worker process,
 * which also aborts its other invocations. This host fails only the one invocation and ignores its later results.
 */
export function createExecutor(core: Core, timeoutMs: number, log: Log): Executor {
  const running = new Set<Promise<unknown>>();

  const run = async ({ name, reason, ...invocation }: Invocation): Promise<Outcome> => {
    const id = randomUUID();
    const source = `Function.${name}`;
    const start = performance.now();
    log("information", source, `Executing 'Functions.${name}' (Reason='${reason}', Id=${id})`);
    const request = {
      invocationId: id,
      functionId: name,
      inputData: [invocation.input],
      triggerMetadata: invocation.triggerMetadata ?? {},
      traceContext: traceContext(invocation.traceParent, invocation.traceState),
      ...(invocation.retryContext && { retryContext: invocation.retryContext }),
    };
    const invocationResult = invocations.runStores(request, () => core.invoke(request));
    running.add(invocationResult);
    // Text up to "Duration=", which the result of `duration` completes.
    const logSuffix = `(Id=${id}, Duration=`;
    const duration = () => `${Math.round(performance.now() - start)}ms)`;
    try {
      const response = await withTimeout(invocationResult, timeoutMs);
      for (const { name: output } of response.outputData ?? []) {
        log("warning", source, `The output binding '${output}' is not supported by the local host; its value is lost`);
      }
      log("information", source, `Executed 'Functions.${name}' (Succeeded) ${logSuffix}${duration()}`);
      return { succeeded: true, response };
    } catch (error) {
      log("error", source, `Executed 'Functions.${name}' (Failed) ${logSuffix}${duration()} ${describeError(error)}`);
      return { succeeded: false, error };
    } finally {
      running.delete(invocationResult);
    }
  };

  const waitUntilIdle = async () => {
    while (running.size > 0) await Promise.allSettled(running);
  };
  return { run, waitUntilIdle };
}

async function withTimeout<T>(invocationResult: Promise<T>, timeoutMs: number): Promise<T> {
  if (timeoutMs === Number.POSITIVE_INFINITY) return invocationResult;
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Timeout value of ${timeoutMs / 1000} s was exceeded`)), timeoutMs);
  });
  try {
    return await Promise.race([invocationResult, expired]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Returns a trace context with a new span in the caller's trace, or in a new trace if the caller sent none:
 * https://www.w3.org/TR/trace-context/
 */
function traceContext(traceParent: string | undefined, traceState: string | undefined): TraceContext {
  const incoming = /^00-([\da-f]{32})-[\da-f]{16}-([\da-f]{2})$/.exec(traceParent ?? "");
  const trace = incoming?.[1] ?? randomBytes(16).toString("hex");
  return {
    traceParent: `00-${trace}-${randomBytes(8).toString("hex")}-${incoming?.[2] ?? "00"}`,
    ...(incoming !== null && traceState !== undefined && { traceState }),
  };
}
