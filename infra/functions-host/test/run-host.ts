import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { COMPILE_CACHE, HOST } from "../../../test/support/test-app.ts";

// Starts the local Functions host as a child process, for the tests in this folder. The default app is `fixture-app`, whose
// functions report what they receive as JSON lines on standard output (`{"saw":"<name>","what":<value>}`).

const FIXTURE_APP = fileURLToPath(new URL("./fixture-app", import.meta.url));

export interface RunningHost {
  url: string;
  pid: number;
  functions: { name: string; trigger: string; route?: string }[];
  /** All lines of standard output and error so far. */
  lines: string[];
  /** Resolves with the first past or future line for which `accept` returns true. */
  waitForLine(accept: (line: string) => boolean): Promise<string>;
  /** Waits until the fixture app has reported at least `count` values under this name. Resolves with all of them. */
  waitForReports<T>(name: string, count: number): Promise<T[]>;
  /**
   * Sends a signal (default SIGTERM) and waits for the exit.
   * @returns the exit code, null if killed
   */
  stop(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts the host in a process of its own, because a process can load only one app. */
export async function runHost(
  options: { app?: string; args?: string[]; env?: Record<string, string> } = {},
): Promise<RunningHost> {
  const { child, lines, waitForLine } = spawnHost(options);
  // "close" and not "exit": after "exit" some lines of the output may still be unread.
  const exited = once(child, "close").then(([code]) => code as number | null);
  const ready = await Promise.race([
    waitForLine((text) => text.startsWith('{"port":')),
    exited.then((code) => Promise.reject(new Error(`The host ended with ${code}:\n${lines.join("\n")}`))),
  ]);
  const { port, functions } = JSON.parse(ready) as { port: number; functions: RunningHost["functions"] };
  const reportsOf = (name: string) =>
    lines
      .filter((text) => text.startsWith('{"saw":'))
      .map((text) => JSON.parse(text) as { saw: string; what: unknown })
      .filter((each) => each.saw === name)
      .map(({ what }) => what);
  return {
    url: `http://127.0.0.1:${port}`,
    pid: child.pid!,
    functions,
    lines,
    waitForLine,
    waitForReports: async <T>(name: string, count: number) => {
      await waitForLine(() => reportsOf(name).length >= count);
      return reportsOf(name) as T[];
    },
    stop: async (signal = "SIGTERM") => {
      child.kill(signal);
      return exited;
    },
  };
}

/** Runs a host until it exits by itself, for an app that cannot run. Returns the exit code and the output. */
export async function runUntilExit(app: string): Promise<{ code: number | null; output: string }> {
  const { child, lines } = spawnHost({ app });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, output: lines.join("\n") };
}

/** Starts a host and returns at once, without waiting until the app is loaded. */
export function startLoadingHost(app: string, port: number): { waitForLine: RunningHost["waitForLine"]; kill(): void } {
  const { child, waitForLine } = spawnHost({ app, args: ["--port", String(port)] });
  return { waitForLine, kill: () => child.kill("SIGKILL") };
}

/**
 * Returns a free port. It is below the ephemeral ports (from 32768 on Linux, 49152 elsewhere), which another connection could
 * take before the test uses it.
 */
export async function freePort(): Promise<number> {
  const port = randomInt(20_000, 32_768);
  const server = createServer().listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EADDRINUSE") return freePort();
    throw error;
  }
  server.close();
  await once(server, "close");
  return port;
}

function spawnHost({ app = FIXTURE_APP, args = [], env = {} }: Parameters<typeof runHost>[0] & object): {
  child: ChildProcess;
  lines: string[];
  waitForLine: RunningHost["waitForLine"];
} {
  // An option in `args` overrides the same option here, because the last one wins.
  const defaults = ["--app", app, "--port", "0", "--data", mkdtempSync(join(tmpdir(), "host-data-"))];
  const child = spawn(process.execPath, [HOST, ...defaults, "--ready-json", ...args], {
    env: { PATH: process.env.PATH, TMPDIR: tmpdir(), NODE_COMPILE_CACHE: COMPILE_CACHE, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: string[] = [];
  const watchers = new Set<() => void>();
  for (const stream of [child.stdout!, child.stderr!]) {
    createInterface({ input: stream }).on("line", (text) => {
      lines.push(text);
      for (const watch of watchers) watch();
    });
  }
  const waitForLine = (accept: (text: string) => boolean) =>
    new Promise<string>((resolve) => {
      const watch = () => {
        const line = lines.find(accept);
        if (line === undefined) return;
        watchers.delete(watch);
        resolve(line);
      };
      watchers.add(watch);
      watch();
    });
  return { child, lines, waitForLine };
}
