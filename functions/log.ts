import { AsyncLocalStorage } from "node:async_hooks";
import type { InvocationContext } from "@azure/functions";
import type { Logger } from "../shared/platform/runtime.ts";
import { traceId } from "../shared/platform/telemetry.ts";

/** In rising order of what must be heard. */
const RANK = { DEBUG: 0, INFO: 1, WARNING: 2, ERROR: 3 } as const;
type Level = keyof typeof RANK;

/** Where lines go: the platform's log of one invocation, or the process's output. */
type Target = Pick<InvocationContext | Console, "debug" | "info" | "warn" | "error">;

const invocation = new AsyncLocalStorage<{ target: Target; requestId: string }>();

/** Does `work` so that all it logs, whoever logs it, goes to this invocation's log and carries its request id. */
export const withinInvocation = <T>(target: Target, requestId: string, work: () => Promise<T>): Promise<T> =>
  invocation.run({ target, requestId }, work);

/**
 * Logs what is at least of the level asked at that moment, and events at every level. A line has the message, then its fields as
 * JSON: the request id of its invocation first, then its trace while traces are recorded. What belongs to no invocation goes to the
 * process's output, which the platform collects too.
 */
export function createLogger(level: () => Level): Logger {
  const write = (rank: Level, to: (target: Target, line: string) => void) => {
    return (message: string, fields?: Record<string, unknown>, kind?: "event") => {
      if (kind !== "event" && RANK[rank] < RANK[level()]) return;
      const current = invocation.getStore();
      const trace = traceId();
      const all = { ...(current && { requestId: current.requestId }), ...(trace && { traceId: trace }), ...fields };
      to(current?.target ?? console, Object.keys(all).length > 0 ? `${message} ${JSON.stringify(all)}` : message);
    };
  };
  return {
    debug: write("DEBUG", (target, line) => target.debug(line)),
    info: write("INFO", (target, line) => target.info(line)),
    warn: write("WARNING", (target, line) => target.warn(line)),
    error: write("ERROR", (target, line) => target.error(line)),
  };
}
