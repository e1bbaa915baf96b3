import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Schedule } from "./schedule.ts";

/**
 * Status of a timer with the platform's field names and ISO 8601 times: its last run, and the next run that follows from it.
 * With it, a host notices at its start that a run was missed. `Last` is `NEVER` until the first run.
 */
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
 * Returns the status of a timer when its host starts, as the platform's `ScheduleMonitor.CheckPastDueAsync` does. A run is past
 * due if the stored next time is in the past. If the stored next time does not follow from the schedule, the schedule has
 * changed: the status then starts from now and is not past due.
 * @returns `changed`: whether the status must be stored
 */
export function startStatus(
  recorded: TimerStatus | undefined,
  schedule: Schedule,
  now: Date,
): { status: TimerStatus; pastDue: boolean; changed: boolean } {
  const statusFromNow = (last: string): TimerStatus => ({
    Last: last,
    Next: iso(schedule.next(now)),
    LastUpdated: now.toISOString(),
  });
  if (recorded === undefined) return { status: statusFromNow(NEVER), pastDue: false, changed: true };
  const base = recorded.Last === NEVER ? recorded.LastUpdated : recorded.Last;
  if (iso(schedule.next(new Date(base))) !== recorded.Next) {
    return { status: statusFromNow(recorded.Last), pastDue: false, changed: true };
  }
  return { status: recorded, pastDue: now > new Date(recorded.Next), changed: false };
}

/**
 * Returns the status after a run. The next time is computed from the start of the run, so it can be in the past after a long
 * run.
 */
export function statusAfter(started: Date, schedule: Schedule): TimerStatus {
  return { Last: started.toISOString(), Next: iso(schedule.next(started)), LastUpdated: started.toISOString() };
}

/**
 * Formats a next time. Undefined (the schedule has no further occurrence) becomes a date far in the future, the year 275760.
 */
function iso(date: Date | undefined): string {
  return (date ?? new Date(8.64e15 - 1)).toISOString();
}
