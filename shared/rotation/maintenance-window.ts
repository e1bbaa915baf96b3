import * as z from "zod";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../platform/time.ts";

/** Days of the week, as `Intl` names them in English, in lower case. */
export const WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] as const;

/**
 * Weekly times at which automatic rotations may change consumers, by the clocks of a time zone. If the clocks are set back, an
 * hour that occurs twice is in the window both times. If they are set forward, the hour that does not exist is missing.
 */
export const MaintenanceWindow = z.object({
  /** Days on which the window opens. */
  days: z.array(z.enum(WEEKDAYS)),
  /** Time of day at which the window opens, `HH:MM`. */
  from: z.string(),
  /** Time of day at which the window closes. Not after `from`: on the following day. */
  to: z.string(),
  /** IANA name of the time zone. */
  timeZone: z.string(),
});
export type MaintenanceWindow = z.infer<typeof MaintenanceWindow>;

/**
 * Shortest window in minutes. The timer continues a waiting rotation up to 25 minutes after the window opens, if it runs every 10
 * minutes as by default.
 */
export const MIN_WINDOW_MINUTES = 60;
/**
 * A credential that expires within this time after the window opens is replaced earlier: a rotation needs time to publish the new
 * value, and slow consumers need half an hour to read it.
 */
const MIN_TIME_LEFT_MS = HOUR_MS;

/** A window is open at least every second week: every week, except for an hour that one night in the year does not have. */
const MAX_SEARCH_MS = 15 * DAY_MS;
const DAY_MINUTES = 24 * 60;

/** Returns the minutes since midnight of a time `HH:MM`. */
const minutesOf = (time: string): number => {
  const [hours, minutes] = time.split(":").map(Number);
  return hours! * 60 + minutes!;
};

/** Returns the length of a window in minutes, in a week without a change of the clocks. */
export const windowMinutes = ({ from, to }: Pick<MaintenanceWindow, "from" | "to">): number =>
  ((minutesOf(to) - minutesOf(from) + DAY_MINUTES - 1) % DAY_MINUTES) + 1;

/** Returns whether `Intl` knows a time zone by this name. It also accepts offsets such as `+01:00`, which are no names. */
export function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    new Intl.DateTimeFormat("en-US", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** Note of a rotation that starts or publishes outside of its window. */
export const OUTSIDE_WINDOW =
  "This rotation did not wait for the maintenance window, because the old secret expires before a rotation in the next window could replace it.";

/** Returns whether a credential expires before a rotation that starts when its window opens could replace it. */
export const isTooLate = (opensAt: Date, expiresAt: Date): boolean =>
  expiresAt.getTime() < opensAt.getTime() + MIN_TIME_LEFT_MS;

/** Returns when a maintenance window opens. Undefined if it is open, or there is no window. */
export function closedUntil(window: MaintenanceWindow | undefined, at: Date): Date | undefined {
  if (window === undefined) return undefined;
  const readClock = clockOf(window.timeZone);
  const from = minutesOf(window.from);
  let time = at.getTime();
  while (time < at.getTime() + MAX_SEARCH_MS) {
    const local = readClock(time);
    if (isInside(window, local)) break;
    const untilFrom = ((from - local.minutes + DAY_MINUTES - 1) % DAY_MINUTES) + 1;
    const minute = Math.floor(time / MINUTE_MS);
    // Clocks are changed at full or half hours of UTC, so each change is seen.
    time = (minute + Math.min(untilFrom, 30 - (minute % 30))) * MINUTE_MS;
  }
  return time > at.getTime() ? new Date(time) : undefined;
}

/** The day of the week as an index of `WEEKDAYS`, and the minutes since midnight. */
interface LocalTime {
  day: number;
  minutes: number;
}

function isInside({ days, from, to }: MaintenanceWindow, { day, minutes }: LocalTime): boolean {
  const opensOn = (index: number) => days.includes(WEEKDAYS[(index + 7) % 7]!);
  const [start, end] = [minutesOf(from), minutesOf(to)];
  if (start < end) return opensOn(day) && start <= minutes && minutes < end;
  return (opensOn(day) && minutes >= start) || (opensOn(day - 1) && minutes < end);
}

/** Returns a function that converts a time to the time on the clocks of a time zone. */
function clockOf(timeZone: string): (time: number) => LocalTime {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    weekday: "long",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });
  return (time) => {
    const parts = format.formatToParts(time);
    const textOf = (type: string) => parts.find((part) => part.type === type)!.value;
    const names: readonly string[] = WEEKDAYS;
    return {
      day: names.indexOf(textOf("weekday").toLowerCase()),
      minutes: Number(textOf("hour")) * 60 + Number(textOf("minute")),
    };
  };
}
