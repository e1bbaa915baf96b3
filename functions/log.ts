import type { InvocationContext } from "@azure/functions";
import type { Logger } from "../shared/runtime.ts";
import type { Services } from "./services.ts";

const RANK = { DEBUG: 0, INFO: 1, WARNING: 2, ERROR: 3 } as const;

/**
 * Writes to the platform's log: the message, then its fields as JSON. The level is the setting `logLevel`, as last read,
 * so that a change takes effect without a restart.
 */
export function loggerFor(
  context: Pick<InvocationContext, "debug" | "info" | "warn" | "error">,
  services: Pick<Services, "settings" | "config">,
  always: Record<string, unknown>,
): Logger {
  const write = (level: keyof typeof RANK, to: (line: string) => void) => {
    return (message: string, fields?: Record<string, unknown>) => {
      const least = services.settings.current()?.logLevel ?? services.config.LOG_LEVEL ?? "INFO";
      if (RANK[level] >= RANK[least]) to(`${message} ${JSON.stringify({ ...always, ...fields })}`);
    };
  };
  return {
    debug: write("DEBUG", (line) => context.debug(line)),
    info: write("INFO", (line) => context.info(line)),
    warn: write("WARNING", (line) => context.warn(line)),
    error: write("ERROR", (line) => context.error(line)),
  };
}
