import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** Interval at which the processes are checked. */
const POLL_MS = 1000;

/**
 * Calls `callback` once after the npm process that started this process has ended. npm starts scripts through a shell, so a
 * signal to npm may not reach this process. Does nothing if npm did not start this process.
 */
export function onNpmExit(callback: () => void): void {
  if (process.env.npm_lifecycle_event === undefined) return;
  const shellPid = process.ppid;
  const npmPid = parentOf(shellPid);
  const timer = setInterval(() => {
    if (process.ppid === shellPid && (npmPid === undefined || isRunning(npmPid))) return;
    clearInterval(timer);
    callback();
  }, POLL_MS).unref();
}

/** Returns the parent's process ID. Returns undefined if the ID can't be read, as on Windows. */
function parentOf(pid: number): number | undefined {
  try {
    const parent = process.platform === "linux" ? parentInProc(pid) : parentByPs(pid);
    return parent > 1 ? parent : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Reads the parent from /proc, because not every Linux has `ps`. In proc_pid_stat(5), the state and the parent follow the name,
 * which ends with the last parenthesis.
 */
function parentInProc(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")")).split(" ")[2]);
}

const parentByPs = (pid: number): number =>
  Number(execFileSync("ps", ["-o", "ppid=", "-p", String(pid)], { encoding: "utf8" }));

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
