import { parseCrontab } from "./ncrontab.ts";

const MINUTE_MS = 60_000;

/**
 * The schedule of a timer: an NCRONTAB expression (`0 30 * * * *`), or a TimeSpan (`00:05:00`), which is a constant interval.
 */
export interface Schedule {
  /** Returns the first occurrence strictly after `base`. Undefined if there is none. */
  next(base: Date): Date | undefined;
  /** True if two occurrences can be less than a minute apart. The platform then stores no status (`TimerSchedule.Create`). */
  frequent: boolean;
}

/**
 * Parses a schedule. The time zone is always UTC, as on Linux plans, which do not support `WEBSITE_TIME_ZONE`.
 * @throws Error if the text is neither NCRONTAB nor a TimeSpan above zero.
 */
export function parseSchedule(text: string, now: Date): Schedule {
  const interval = parseTimeSpan(text);
  if (interval !== undefined && interval > 0) {
    return { next: (base) => new Date(base.getTime() + interval), frequent: interval < MINUTE_MS };
  }
  const crontab = parseCrontab(text);
  // The second occurrence from now. It is within a minute only if occurrences follow each other faster than once a minute.
  const secondOccurrence = crontab.next(crontab.next(now) ?? now);
  return {
    next: crontab.next,
    frequent: secondOccurrence !== undefined && secondOccurrence.getTime() < now.getTime() + MINUTE_MS,
  };
}

/** Returns the milliseconds of `[-][d.]hh:mm[:ss[.fffffff]]`. Undefined if the text has another form. */
export function parseTimeSpan(text: string): number | undefined {
  const match = /^(-)?(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d{1,7})?)?$/.exec(text.trim());
  if (match === null) return undefined;
  const [, sign, days = "0", hours, minutes, seconds = "0", fraction = "0"] = match;
  if (Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  const total =
    ((Number(days) * 24 + Number(hours)) * 60 + Number(minutes)) * MINUTE_MS +
    (Number(seconds) + Number(fraction)) * 1000;
  return sign === undefined ? total : -total;
}
