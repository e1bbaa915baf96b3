import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";

/** The cloud that a local start uses: Azure, or the simulated cloud (`stand-in`). Also the name of its data folder. */
export type LocalCloud = "azure" | "stand-in";

/** Files and folders that earlier versions stored directly in the base folder, before each cloud had a folder of its own. */
const OLD_ENTRIES = ["azurite", "cloud", "host", "host.log", "secrets.json", "certificates.pem"];
/** File with the ID of the process that uses the folder. */
const PID_FILE = "start.pid";

/**
 * Prepares the data folder of one cloud under `base` for this process, and returns its path. Each cloud has a folder of its
 * own, so that data of the simulated cloud does not mix with data of Azure. Only the owner can read the files, because they
 * contain password hashes and keys. Data that an earlier version stored directly in `base` moves to the folder of its cloud.
 *
 * @throws {Error} If another process uses the folder.
 */
export function openDataFolder(base: string, cloud: LocalCloud): string {
  // New files are readable only by the owner. The processes that this process starts inherit the mask.
  process.umask(0o077);
  mkdirSync(base, { recursive: true });
  const folder = path.join(base, cloud);
  for (const usedFolder of [base, folder]) assertNotInUse(usedFolder);
  mkdirSync(folder, { recursive: true });
  // In earlier versions, only a start with the simulated cloud created a folder `cloud`.
  const cloudOfOldData: LocalCloud = existsSync(path.join(base, "cloud")) ? "stand-in" : "azure";
  if (cloudOfOldData === cloud) {
    for (const entry of OLD_ENTRIES) {
      const [from, to] = [path.join(base, entry), path.join(folder, entry)];
      if (existsSync(from) && !existsSync(to)) renameSync(from, to);
    }
  }
  chmodSync(base, 0o700);
  restrictToOwner(folder);
  writeFileSync(path.join(folder, PID_FILE), `${process.pid}`);
  return folder;
}

/** Throws if another process uses the folder. Two processes in one folder would write the same storage files. */
function assertNotInUse(folder: string): void {
  const file = path.join(folder, PID_FILE);
  const otherPid = existsSync(file) ? Number(readFileSync(file, "utf8")) : 0;
  if (otherPid && otherPid !== process.pid && isAlive(otherPid))
    throw new Error(
      `The service is already running with the data folder ${folder} (process ${otherPid}). Stop it, or use another folder with --data.`,
    );
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/**
 * Removes the permissions of other users from the existing files. Earlier versions created files that other users could read.
 */
function restrictToOwner(folder: string): void {
  chmodSync(folder, 0o700);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const entryPath = path.join(folder, entry.name);
    if (entry.isDirectory()) restrictToOwner(entryPath);
    else if (entry.isFile()) chmodSync(entryPath, 0o600);
  }
}
