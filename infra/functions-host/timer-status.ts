import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Schedule } from "./schedule.ts";

/** Status of a timer as the platform stores it, with ISO 8601 times. `Last` is `NEVER` until the first run. */
export interface TimerStatus {
  Last: string;
  Next: string;
  LastUpdated: string;
}

const NEVER = "0001-01-01T00:00:00+00:00";

/**
 * Stores one status file per timer. The platform uses a blob, `azure-webjobs-hosts/timers/<host id>/<name>/status`. Hosts that
 * share a storage account must share the data folder.
 */
export interface TimerStatusStore {
  read(timer: string): Promise<TimerStatus | undefined>;
  write(timer: string, status: TimerStatus): Promise<void>;
}

export function createTimerStatusStore(dataFolder: string, hostId: string): TimerStatusStore {
  const folder = join(dataFolder, "timers", hostId);
  return {
    async read(timer) {
      let content: string;
      try {
        content = await readFile(join(folder, `${timer}.json`), "utf8");
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
        throw error;
      }
      return JSON.parse(content) as TimerStatus;
    },
    async write(timer, status) {
      await mkdir(folder, { recursive: true });
      // Renamed into place, so that a killed host leaves a complete file.
      const file = join(folder, `${timer}.json`);
      await writeFile(`${file}.${process.pid}.tmp`, JSON.stringify(status));
      await rename(`${file}.${process.pid}.tmp`, file);
    },
  };
}

/**
 * Returns whether a run is past due, as `ScheduleMonitor.CheckPastDueAsync`: its stored next time is in the past. A changed
 * schedule, whose own next run differs from the stored one, starts from now and is not past due.
 */
export function startStatus(
  recorded: TimerStatus | undefined,
  schedule: Schedule,
  now: Date,
): { status: TimerStatus; pastDue: boolean; changed: boolean } {
  const fresh = (last: string): TimerStatus => ({
    Last: last,
    Next: iso(schedule.next(now)),
    LastUpdated: now.toISOString(),
  });
  if (recorded === undefined) return { status: fresh(NEVER), pastDue: false, changed: true };
  const base = recorded.Last === NEVER ? recorded.LastUpdated : recorded.Last;
  if (iso(schedule.next(new Date(base))) !== recorded.Next) {
    return { status: fresh(recorded.Last), pastDue: false, changed: true };
  }
  return { status: recorded, pastDue: now > new Date(recorded.Next), changed: false };
}

/** Returns the status after a run. The next time counts from the start of the run, so it may already be due. */
export function statusAfter(started: Date, schedule: Schedule): TimerStatus {
  return { Last: started.toISOString(), Next: iso(schedule.next(started)), LastUpdated: started.toISOString() };
}

/** Formats a next time. Undefined, for a schedule that never fires again, is .NET's largest date. */
function iso(date: Date | undefined): string {
  return (date ?? new Date(8.64e15 - 1)).toISOString();
}
