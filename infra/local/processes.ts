import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

/** Time limit for a process to become ready. */
const READY_TIMEOUT_MS = 60_000;
/** Time limit for a process to end after SIGTERM. */
const STOP_TIMEOUT_MS = 15_000;
/** Number of lines of standard error in the description of a crash. */
const LAST_ERROR_LINES = 40;

/** A started process that is ready. */
export interface RunningProcess {
  process: ChildProcess;
  /** Result of `isReady` for the line with which the process reported that it is ready. */
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
export async function startProcess(
  name: string,
  command: string[],
  options: {
    environment: Record<string, string | undefined>;
    isReady: (line: string) => Record<string, unknown> | undefined;
    onLine?: (line: string) => void;
  },
): Promise<RunningProcess> {
  const child = spawn(command[0]!, command.slice(1), {
    detached: true,
    env: options.environment as NodeJS.ProcessEnv,
    stdio: ["ignore", "pipe", "pipe"],
  });
  // If this process exits, the child is killed, also before it is ready.
  process.once("exit", () => child.kill("SIGKILL"));
  const errorLines: string[] = [];
  createInterface({ input: child.stderr! }).on("line", (line) => {
    errorLines.push(line);
    if (errorLines.length > LAST_ERROR_LINES) errorLines.shift();
  });
  let stopRequested = false;
  const ended = once(child, "exit").then(([code, signal]) => {
    if (stopRequested) return "";
    return `${name} ended (${signal ?? `code ${code}`})${errorLines.length > 0 ? `:\n${errorLines.join("\n")}` : ""}`;
  });
  const ready = new Promise<Record<string, unknown>>((resolve) => {
    createInterface({ input: child.stdout! }).on("line", (line) => {
      const value = options.isReady(line);
      if (value) resolve(value);
      else options.onLine?.(line);
    });
  });
  const stop = async () => {
    stopRequested = true;
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await Promise.race([ended, delay(STOP_TIMEOUT_MS, undefined, { ref: false })]);
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  };
  const outcome = await Promise.race([
    ready,
    ended,
    delay(READY_TIMEOUT_MS, `${name} was not ready within ${READY_TIMEOUT_MS / 1000} s`, { ref: false }),
  ]);
  if (typeof outcome === "string") {
    await stop();
    throw new Error(outcome || `${name} ended`);
  }
  return { process: child, ready: outcome, stop, ended };
}

/**
 * Parses a line that is a JSON object: the form in which the project's processes report that they are ready. Undefined for
 * others.
 */
export function parseJsonLine(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
