// Runs invocations with their timeout, log entries and trace context.

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
 * Channel that publishes every invocation as an InvocationRequest. A store bound to the channel is active during the whole
 * invocation.
 */
const invocations = channel("local-host.invocation");

export type Outcome = { succeeded: true; response: InvocationResponse } | { succeeded: false; error: unknown };

export interface Executor {
  /** Runs an invocation. Never rejects: an error of the function is logged and is the outcome. */
  run(invocation: Invocation): Promise<Outcome>;
  /** Resolves when no invocation is running. */
  idle(): Promise<void>;
}

/**
 * Creates the executor.
 * @param timeout Milliseconds. If an invocation runs longer, the platform restarts the worker process, which also aborts its
 * other invocations. This host fails only the one invocation and ignores its later results.
 */
export function createExecutor(core: Core, timeout: number, log: Log): Executor {
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
    const call = invocations.runStores(request, () => core.invoke(request));
    running.add(call);
    const finished = `(Id=${id}, Duration=`;
    const duration = () => `${Math.round(performance.now() - start)}ms)`;
    try {
      const response = await withTimeout(call, timeout);
      for (const { name: output } of response.outputData ?? []) {
        log("warning", source, `The output binding '${output}' is not supported by the local host; its value is lost`);
      }
      log("information", source, `Executed 'Functions.${name}' (Succeeded) ${finished}${duration()}`);
      return { succeeded: true, response };
    } catch (error) {
      log("error", source, `Executed 'Functions.${name}' (Failed) ${finished}${duration()} ${describeError(error)}`);
      return { succeeded: false, error };
    } finally {
      running.delete(call);
    }
  };

  const idle = async () => {
    while (running.size > 0) await Promise.allSettled(running);
  };
  return { run, idle };
}

async function withTimeout<T>(call: Promise<T>, timeout: number): Promise<T> {
  if (timeout === Number.POSITIVE_INFINITY) return call;
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Timeout value of ${timeout / 1000} s was exceeded`)), timeout);
  });
  try {
    return await Promise.race([call, expired]);
  } finally {
    clearTimeout(timer);
  }
}

/** Continues the caller's trace with a new span, or starts a new trace: https://www.w3.org/TR/trace-context/ */
function traceContext(traceParent: string | undefined, traceState: string | undefined): TraceContext {
  const incoming = /^00-([\da-f]{32})-[\da-f]{16}-([\da-f]{2})$/.exec(traceParent ?? "");
  const trace = incoming?.[1] ?? randomBytes(16).toString("hex");
  return {
    traceParent: `00-${trace}-${randomBytes(8).toString("hex")}-${incoming?.[2] ?? "00"}`,
    ...(incoming !== null && traceState !== undefined && { traceState }),
  };
}
