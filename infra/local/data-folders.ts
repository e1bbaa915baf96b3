import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";

export type LocalCloud = "azure" | "stand-in";

/** What a start wrote into the folder itself before each cloud had its own. */
const OLD_ENTRIES = ["azurite", "cloud", "host", "host.log", "secrets.json", "certificates.pem"];
const PID_FILE = "start.pid";

/**
 * The folder under `base` of one cloud's data, taken for this process: what was found in the stand-in cloud never shows
 * as the real one's. Data of an earlier version, which lies in `base` itself, moves to the cloud it is of: only where the
 * stand-in cloud ran there is a folder `cloud`. All is for its owner only, since password hashes and keys lie in it.
 * @throws {Error} when another process runs on it.
 */
export function takeDataFolder(base: string, cloud: LocalCloud): string {
  // Also for what the processes we start write.
  process.umask(0o077);
  mkdirSync(base, { recursive: true });
  const folder = path.join(base, cloud);
  for (const place of [base, folder]) refuseWhereItRuns(place);
  mkdirSync(folder, { recursive: true });
  const isOf: LocalCloud = existsSync(path.join(base, "cloud")) ? "stand-in" : "azure";
  if (isOf === cloud) {
    for (const entry of OLD_ENTRIES) {
      const [from, to] = [path.join(base, entry), path.join(folder, entry)];
      if (existsSync(from) && !existsSync(to)) renameSync(from, to);
    }
  }
  chmodSync(base, 0o700);
  forOwnerOnly(folder);
  writeFileSync(path.join(folder, PID_FILE), `${process.pid}`);
  return folder;
}

/** Two starts on one folder would write the same storage files. */
function refuseWhereItRuns(folder: string): void {
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

/** An earlier version's files could be read by others. */
function forOwnerOnly(folder: string): void {
  chmodSync(folder, 0o700);
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const place = path.join(folder, entry.name);
    if (entry.isDirectory()) forOwnerOnly(place);
    else if (entry.isFile()) chmodSync(place, 0o600);
  }
}
