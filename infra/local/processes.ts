import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";

/** How long a process may take to say that it is ready, and to end when asked. */
const READY_MS = 60_000;
const END_MS = 15_000;

export interface Running {
  process: ChildProcess;
  /** The line it reported itself ready with, parsed. */
  ready: Record<string, unknown>;
  /** Asks it to end and waits; kills it when it doesn't. */
  stop(): Promise<void>;
  /** Resolves with a description when it ends without being asked. */
  ended: Promise<string>;
}

/**
 * Starts a process of its own group, so that Ctrl-C reaches only us and we end the others in the right order. It is ready
 * when it writes a line that `isReady` accepts. Later lines of its standard output go to `onLine`.
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
  // However we end, also before it is ready: nothing is left running.
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
    delay(READY_MS, `${name} did not get ready in ${READY_MS / 1000} s`, { ref: false }),
  ]);
  if (typeof value === "string") {
    await stop();
    throw new Error(value || `${name} ended`);
  }
  return { process: child, ready: value, stop, ended };
}

/** A JSON object on a line of its own, as our processes report themselves ready. */
export function jsonLine(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
