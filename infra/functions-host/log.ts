// Writes the host's log in the platform's format.

import { createWriteStream } from "node:fs";
import { finished } from "node:stream/promises";
import type { LogLevel } from "./worker-protocol.ts";

const ORDER: readonly LogLevel[] = ["trace", "debug", "information", "warning", "error", "critical", "none"];

/** Writes one entry. `source` is `Host`, `Function.<name>` or `Function.<name>.User`, as in the platform's categories. */
export type Log = (level: LogLevel, source: string, message: string) => void;

export interface LogOptions {
  /** `logging.logLevel` of host.json. The longest key that is a prefix of the source applies, otherwise `default`. */
  levels?: Record<string, string>;
  /** Only warnings and worse. */
  quiet?: boolean;
  /** Entries go to this file instead of standard output. */
  file?: string;
}

/**
 * Writes one line per entry: `[iso] [Level] [Source] message`. Line breaks in a message are written as `
 * `.
 */
export function createLog(options: LogOptions): { log: Log; close(): Promise<void> } {
  const file = options.file === undefined ? undefined : createWriteStream(options.file, { flags: "a" });
  const lowest = levelFilter(options.levels ?? {}, options.quiet ?? false);

  const log: Log = (level, source, message) => {
    if (ORDER.indexOf(level) < lowest(source)) return;
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
  const floor = quiet ? ORDER.indexOf("warning") : 0;
  return (source) => {
    const rule = rules.find(([prefix]) => source === prefix || source.startsWith(`${prefix}.`))?.[1] ?? levels.default;
    const named = ORDER.indexOf((rule ?? "information").toLowerCase() as LogLevel);
    return Math.max(floor, named === -1 ? ORDER.indexOf("information") : named);
  };
}
