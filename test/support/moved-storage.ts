import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Azurite, startAzurite } from "../../infra/local/azurite.ts";

/** Longer than a moved process takes to notice. */
const NOTICED_MS = 150;

/** Storage whose time a test moves instead of waiting: its `Date`, its rows' Timestamps and its messages' visibility. */
export interface MovedStorage {
  azurite: Azurite;
  /** Moves its time ahead, in milliseconds. */
  move(by: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startMovedStorage(accounts?: readonly string[]): Promise<MovedStorage> {
  const clock = movedClock();
  const azurite = await startAzurite({ environment: clock.environment, ...(accounts ? { accounts } : {}) });
  return {
    azurite,
    move: clock.move,
    async stop() {
      await azurite.stop();
      clock.remove();
    },
  };
}

/** A clock for one process or more, to be started with `environment`. */
export function movedClock() {
  const folder = mkdtempSync(path.join(tmpdir(), "moved-clock-"));
  const file = path.join(folder, "clock");
  let offset = 0;
  return {
    environment: {
      MOVED_CLOCK_FILE: file,
      NODE_OPTIONS: `--import=${new URL("../../infra/local/moved-clock.mjs", import.meta.url).href}`,
    },
    async move(by: number): Promise<void> {
      offset += by;
      writeFileSync(`${file}.new`, String(offset));
      renameSync(`${file}.new`, file);
      await delay(NOTICED_MS);
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
