import { AsyncLocalStorage } from "node:async_hooks";
import type { InvocationContext } from "@azure/functions";
import { escapeToSingleLine } from "../shared/platform/http/single-line.ts";
import type { Logger } from "../shared/platform/runtime.ts";
import { traceId } from "../shared/platform/telemetry.ts";

/** Log levels by severity: a line is written if its level is at least the current one. */
const RANK = { DEBUG: 0, INFO: 1, WARNING: 2, ERROR: 3 } as const;
type Level = keyof typeof RANK;

/** Destination of log lines: the platform's log of an invocation, or the console. */
type Target = Pick<InvocationContext | Console, "debug" | "info" | "warn" | "error">;

const invocation = new AsyncLocalStorage<{ target: Target; requestId: string }>();

/** Runs `work` with a log context: log lines go to the log of this invocation and contain its request ID. */
export const withLogContext = <T>(target: Target, requestId: string, work: () => Promise<T>): Promise<T> =>
  invocation.run({ target, requestId }, work);

/**
 * Creates a logger. It writes lines of at least the current level, and events at every level. A line contains the message, then
 * its fields as JSON: first the request ID, then the trace ID if tracing is enabled. Lines outside of an invocation go to the
 * console, which the platform also collects. Line breaks and invisible characters in names become `\uXXXX`, so that no name
 * adds a line or hides a part of one.
 */
export function createLogger(level: () => Level): Logger {
  const write = (lineLevel: Level, writeLine: (target: Target, line: string) => void) => {
    return (message: string, fields?: Record<string, unknown>, kind?: "event") => {
      if (kind !== "event" && RANK[lineLevel] < RANK[level()]) return;
      const current = invocation.getStore();
      const trace = traceId();
      const lineFields = {
        ...(current && { requestId: current.requestId }),
        ...(trace && { traceId: trace }),
        ...fields,
      };
      const line = Object.keys(lineFields).length > 0 ? `${message} ${JSON.stringify(lineFields)}` : message;
      writeLine(current?.target ?? console, escapeToSingleLine(line));
    };
  };
  return {
    debug: write("DEBUG", (target, line) => target.debug(line)),
    info: write("INFO", (target, line) => target.info(line)),
    warn: write("WARNING", (target, line) => target.warn(line)),
    error: write("ERROR", (target, line) => target.error(line)),
  };
}
