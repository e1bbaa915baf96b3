import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";

export type LocalCloud = "azure" | "stand-in";

/** Files and folders that earlier versions stored directly in the base folder, before each cloud had a folder of its own. */
const OLD_ENTRIES = ["azurite", "cloud", "host", "host.log", "secrets.json", "certificates.pem"];
const PID_FILE = "start.pid";

/**
 * Returns the data folder of one cloud under `base`, and locks it for this process. Each cloud has a folder of its own, so that
 * data of the simulated cloud never mixes with data of Azure. Moves the data of an earlier version from `base` to the folder of
 * its cloud: only a start with the simulated cloud created a folder `cloud`. Only the owner can read the files, because they
 * contain password hashes and keys.
 *
 * @throws {Error} If another process uses the folder.
 */
export function takeDataFolder(base: string, cloud: LocalCloud): string {
  // The processes that this process starts inherit the mask.
  process.umask(0o077);
  mkdirSync(base, { recursive: true });
  const folder = path.join(base, cloud);
  for (const place of [base, folder]) assertNotInUse(place);
  mkdirSync(folder, { recursive: true });
  const isOf: LocalCloud = existsSync(path.join(base, "cloud")) ? "stand-in" : "azure";
  if (isOf === cloud) {
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

/** Two processes in one folder would write the same storage files. */
function assertNotInUse(folder: string): void {
  const file = path.join(folder, PID_FILE);
  const other = existsSync(file) ? Number(readFileSync(file, "utf8")) : 0;
  if (other && other !== process.pid && isAlive(other))
    throw new Error(`It is already running here (process ${other}). End it first, or give another folder with --data.`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Earlier versions created files that other users could read. */
function restrictToOwner(folder: string): void {
  chmodSync(folder, 0o700);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const place = path.join(folder, entry.name);
    if (entry.isDirectory()) restrictToOwner(place);
    else if (entry.isFile()) chmodSync(place, 0o600);
  }
}
