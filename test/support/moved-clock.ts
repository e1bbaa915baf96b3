import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Milliseconds until the preload has read the file again. */
const NOTICED_MS = 120;

/** The clock of another process, which is ahead of this process's clock by the added time. */
export interface MovedClock {
  /** Environment variables for the process. */
  readonly environment: { NODE_OPTIONS: string; MOVED_CLOCK_FILE: string };
  /** Resolves when the process has noticed the new time. */
  add(milliseconds: number): Promise<void>;
  remove(): void;
}

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
      await delay(NOTICED_MS);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
