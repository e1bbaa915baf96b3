import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

/** Time limits for a process to become ready, and to end after SIGTERM. */
const READY_MS = 60_000;
const END_MS = 15_000;

export interface Running {
  process: ChildProcess;
  /** The parsed line with which the process reported that it is ready. */
  ready: Record<string, unknown>;
  /** Sends SIGTERM and waits. Kills the process after 15 seconds. */
  stop(): Promise<void>;
  /** Resolves with a description when the process ends, or with an empty text after `stop`. */
  ended: Promise<string>;
}

/**
 * Starts a process in its own process group. Ctrl-C then reaches only this process, which stops the others in the right order.
 * The process is ready when it prints a line that `isReady` accepts. Its other lines of standard output go to `onLine`.
 *
 * @throws {Error} If the process ends, or is not ready within a minute.
 */
export async function start(
  name: string,
  command: string[],
  options: {
    environment: Record<string, string | undefined>;
    isReady: (line: string) => Record<string, unknown> | undefined;
    onLine?: (line: string) => void;
  },
): Promise<Running> {
  const child = spawn(command[0]!, command.slice(1), {
    detached: true,
    env: options.environment as NodeJS.ProcessEnv,
    stdio: ["ignore", "pipe", "pipe"],
  });
  // Leaves no process behind, also if this process ends before the other one is ready.
  process.once("exit", () => child.kill("SIGKILL"));
  const errors: string[] = [];
  createInterface({ input: child.stderr! }).on("line", (line) => {
    errors.push(line);
    if (errors.length > 40) errors.shift();
  });
  let asked = false;
  const ended = once(child, "exit").then(([code, signal]) => {
    if (asked) return "";
    return `${name} ended (${signal ?? `code ${code}`})${errors.length > 0 ? `:\n${errors.join("\n")}` : ""}`;
  });
  const ready = new Promise<Record<string, unknown>>((resolve) => {
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const value = options.isReady(line);
      if (value) resolve(value);
      else options.onLine?.(line);
    });
  });
  const stop = async () => {
    asked = true;
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await Promise.race([ended, delay(END_MS, undefined, { ref: false })]);
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  };
  const value = await Promise.race([
    ready,
    ended,
    delay(READY_MS, `${name} was not ready within ${READY_MS / 1000} s`, { ref: false }),
  ]);
  if (typeof value === "string") {
    await stop();
    throw new Error(value || `${name} ended`);
  }
  return { process: child, ready: value, stop, ended };
}

/** Parses a line that contains a JSON object. The project's processes report in this form that they are ready. */
export function jsonLine(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
