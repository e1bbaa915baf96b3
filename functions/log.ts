import type { InvocationContext } from "@azure/functions";
import type { Logger } from "../shared/runtime.ts";

/** In rising order of what must be heard. */
const RANK = { DEBUG: 0, INFO: 1, WARNING: 2, ERROR: 3 } as const;

/** Writes to the platform's log what is at least of the level asked at that moment: the message, then its fields as JSON. */
export function loggerFor(
  context: Pick<InvocationContext | Console, "debug" | "info" | "warn" | "error">,
  level: () => keyof typeof RANK,
  always: Record<string, unknown>,
): Logger {
  const write = (rank: keyof typeof RANK, to: (line: string) => void) => {
    return (message: string, fields?: Record<string, unknown>) => {
      if (RANK[rank] < RANK[level()]) return;
      const all = { ...always, ...fields };
      to(Object.keys(all).length > 0 ? `${message} ${JSON.stringify(all)}` : message);
    };
  };
  return {
    debug: write("DEBUG", (line) => context.debug(line)),
    info: write("INFO", (line) => context.info(line)),
    warn: write("WARNING", (line) => context.warn(line)),
    error: write("ERROR", (line) => context.error(line)),
  };
}
