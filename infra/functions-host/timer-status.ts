import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Schedule } from "./schedule.ts";

/** As the platform stores it, with instants in ISO 8601. `Last` is `NEVER` until the timer ran. */
export interface TimerStatus {
  Last: string;
  Next: string;
  LastUpdated: string;
}

const NEVER = "0001-01-01T00:00:00+00:00";

/**
 * One file per timer. The platform keeps a blob, `azure-webjobs-hosts/timers/<host id>/<name>/status`; hosts that share
 * a storage account share that, so give them one data folder.
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
      // Renamed into place, so that a host killed here leaves a whole file.
      const file = join(folder, `${timer}.json`);
      await writeFile(`${file}.${process.pid}.tmp`, JSON.stringify(status));
      await rename(`${file}.${process.pid}.tmp`, file);
    },
  };
}

/**
 * `ScheduleMonitor.CheckPastDueAsync`: a run is past due when the recorded next one lies behind us. A schedule that
 * changed since (its own next run is another one than recorded) starts over from now and is not.
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

/** After a run: counted from the moment it began, so the next one may already be due. */
export function statusAfter(begun: Date, schedule: Schedule): TimerStatus {
  return { Last: begun.toISOString(), Next: iso(schedule.next(begun)), LastUpdated: begun.toISOString() };
}

/** Undefined stands for a schedule that never fires again; .NET has its largest date for it. */
function iso(date: Date | undefined): string {
  return (date ?? new Date(8.64e15 - 1)).toISOString();
}
