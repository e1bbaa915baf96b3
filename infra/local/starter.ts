import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

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

/** Returns the id of a process's parent; undefined where it can't be read, as on Windows. */
function parentOf(pid: number): number | undefined {
  try {
    const parent = process.platform === "linux" ? parentInProc(pid) : parentByPs(pid);
    return parent > 1 ? parent : undefined;
  } catch {
    return undefined;
  }
}

/** Not every Linux has `ps`. In proc_pid_stat(5) the state and the parent follow the name, which ends with the last parenthesis. */
function parentInProc(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")")).split(" ")[2]);
}

const parentByPs = (pid: number): number =>
  Number(execFileSync("ps", ["-o", "ppid=", "-p", String(pid)], { encoding: "utf8" }));

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
