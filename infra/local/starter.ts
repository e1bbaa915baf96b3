import { execFileSync } from "node:child_process";

const LOOK_MS = 1000;

/**
 * Calls `work` once when npm has ended that started us. npm starts a script by way of a shell: a signal that ends npm may
 * reach that shell or nobody, and never us. Without npm nothing is watched.
 */
export function whenNpmEnds(work: () => void): void {
  if (process.env.npm_lifecycle_event === undefined) return;
  const shell = process.ppid;
  const npm = parentOf(shell);
  const timer = setInterval(() => {
    if (process.ppid === shell && (npm === undefined || isThere(npm))) return;
    clearInterval(timer);
    work();
  }, LOOK_MS).unref();
}

/** Undefined where that can't be told, as on Windows. */
function parentOf(pid: number): number | undefined {
  try {
    const parent = Number(execFileSync("ps", ["-o", "ppid=", "-p", String(pid)], { encoding: "utf8" }));
    return parent > 1 ? parent : undefined;
  } catch {
    return undefined;
  }
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
