// Creates the host's log: one line per entry, in the platform's format.

import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";
import type { LogLevel } from "./worker-protocol.ts";

const LEVELS_BY_SEVERITY: readonly LogLevel[] = [
  "trace",
  "debug",
  "information",
  "warning",
  "error",
  "critical",
  "none",
];

/** Writes one entry. `source` is `Host`, `Function.<name>` or `Function.<name>.User`, as in the platform's categories. */
export type Log = (level: LogLevel, source: string, message: string) => void;

export interface LogOptions {
  /** `logging.logLevel` of host.json. The longest key that is a prefix of the source applies, otherwise `default`. */
  levels?: Record<string, string>;
  /** Writes only warnings and more severe entries. */
  quiet?: boolean;
  /** Entries go to this file instead of standard output. */
  file?: string;
}

/**
 * Writes one line per entry: `[2026-01-31T12:00:00.000Z] [Warning] [Host] message`. A line break in a message is written as a
 * backslash and an `n`.
 */
export function createLog(options: LogOptions): { log: Log; close(): Promise<void> } {
  const file = options.file === undefined ? undefined : createWriteStream(options.file, { flags: "a" });
  const lowestLevel = levelFilter(options.levels ?? {}, options.quiet ?? false);

  const log: Log = (level, source, message) => {
    if (LEVELS_BY_SEVERITY.indexOf(level) < lowestLevel(source)) return;
    const name = level.charAt(0).toUpperCase() + level.slice(1);
    (file ?? process.stdout).write(
      `[${new Date().toISOString()}] [${name}] [${source}] ${message.trimEnd().replaceAll(/\r?\n/g, "\\n")}\n`,
    );
  };

  const close = async () => {
    if (file === undefined) return;
    file.end();
    await finished(file);
  };
  return { log, close };
}

function levelFilter(levels: Record<string, string>, quiet: boolean): (source: string) => number {
  const rules = Object.entries(levels)
    .filter(([source]) => source !== "default")
    .sort(([a], [b]) => b.length - a.length);
  const minimum = quiet ? LEVELS_BY_SEVERITY.indexOf("warning") : 0;
  return (source) => {
    const rule = rules.find(([prefix]) => source === prefix || source.startsWith(`${prefix}.`))?.[1] ?? levels.default;
    const lowestLevel = LEVELS_BY_SEVERITY.indexOf((rule ?? "information").toLowerCase() as LogLevel);
    return Math.max(minimum, lowestLevel === -1 ? LEVELS_BY_SEVERITY.indexOf("information") : lowestLevel);
  };
}
