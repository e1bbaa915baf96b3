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

const FIXTURE_APP = fileURLToPath(new URL("./fixture-app", import.meta.url));

export interface RunningHost {
  url: string;
  pid: number;
  functions: { name: string; trigger: string; route?: string }[];
  /** All lines of standard output and error so far. */
  lines: string[];
  /** Resolves with the first past or future line that the test accepts. */
  line(accept: (line: string) => boolean): Promise<string>;
  /** Resolves with the values that the fixture app reported under this name, when there are at least `count`. */
  saw<T>(name: string, count: number): Promise<T[]>;
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
  const { child, lines, line } = spawnHost(options);
  // With the complete output: a process can exit before its last line is read.
  const exited = once(child, "close").then(([code]) => code as number | null);
  const ready = await Promise.race([
    line((text) => text.startsWith('{"port":')),
    exited.then((code) => Promise.reject(new Error(`The host ended with ${code}:\n${lines.join("\n")}`))),
  ]);
  const { port, functions } = JSON.parse(ready) as { port: number; functions: RunningHost["functions"] };
  const seen = (name: string) =>
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
    line,
    saw: async <T>(name: string, count: number) => {
      await line(() => seen(name).length >= count);
      return seen(name) as T[];
    },
    stop: async (signal = "SIGTERM") => {
      child.kill(signal);
      return exited;
    },
  };
}

/** Runs an app that does not start. Returns its exit code and output. */
export async function runFailingHost(app: string): Promise<{ code: number | null; output: string }> {
  const { child, lines } = spawnHost({ app });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, output: lines.join("\n") };
}

/** Starts a host without waiting until it is ready. */
export function loadingHost(app: string, port: number): { line: RunningHost["line"]; kill(): void } {
  const { child, line } = spawnHost({ app, args: ["--port", String(port)] });
  return { line, kill: () => child.kill("SIGKILL") };
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
  line: RunningHost["line"];
} {
  // Later arguments override these.
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
  const line = (accept: (text: string) => boolean) =>
    new Promise<string>((resolve) => {
      const watch = () => {
        const found = lines.find(accept);
        if (found === undefined) return;
        watchers.delete(watch);
        resolve(found);
      };
      watchers.add(watch);
      watch();
    });
  return { child, lines, line };
}
