import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";

export const root = path.resolve(import.meta.dirname, "../..");
const children: ChildProcess[] = [];
/** Ends all processes that `npmStart` started. */
export async function endStartedProcesses(): Promise<void> {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null) continue;
    child.kill("SIGTERM");
    await once(child, "exit");
  }
}

/**
 * Runs the command behind `npm start`.
 *
 * @param data - The folder for its data.
 * @returns The lines of output so far, a promise of the exit code, and a promise that resolves when the service is ready.
 */
export function npmStart(data: string, args: string[], environment: Record<string, string>) {
  const child = spawn(process.execPath, [path.join(root, "infra/local/start.ts"), "--data", data, ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.push(child);
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on("line", (line) => lines.push(line));
  // `close` follows the last line of output. `exit` can precede it.
  const exited = once(child, "close").then(([code]) => code as number | null);
  const ready = new Promise<void>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (line.includes("Press Ctrl-C to stop")) resolve();
    });
    exited.then(() => reject(new Error(`It ended:\n${lines.join("\n")}`)), reject);
  });
  ready.catch(() => {});
  return { lines, exited, ready };
}
