import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Milliseconds after which the other process has read the file with the offset again. */
const OFFSET_READ_MS = 120;

/**
 * The clock of a process that the test starts, ahead of the real time by the added time. The process loads a module
 * (infra/local/moved-clock.mjs) that replaces its clock and reads the offset from a file.
 */
export interface MovedClock {
  /** Environment variables for the process. */
  readonly environment: { NODE_OPTIONS: string; MOVED_CLOCK_FILE: string };
  /** Moves the clock ahead, and resolves when the process uses the new time. */
  add(milliseconds: number): Promise<void>;
  /** Deletes the file with the offset. */
  remove(): void;
}

/** Creates a clock that is not ahead yet. */
export function movedClock(): MovedClock {
  const folder = mkdtempSync(join(tmpdir(), "moved-clock-"));
  const file = join(folder, "offset");
  const preload = fileURLToPath(new URL("../../infra/local/moved-clock.mjs", import.meta.url));
  let offset = 0;
  return {
    environment: { NODE_OPTIONS: `--import=${pathToFileURL(preload)}`, MOVED_CLOCK_FILE: file },
    async add(milliseconds) {
      offset += milliseconds;
      writeFileSync(`${file}.new`, String(offset));
      renameSync(`${file}.new`, file);
      await delay(OFFSET_READ_MS);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
