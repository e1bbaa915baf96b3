import { parseCrontab } from "./ncrontab.ts";

/** When a timer fires: NCRONTAB first, and what is not NCRONTAB is read as a TimeSpan (a constant interval). */
export interface Schedule {
  /** The first occurrence strictly after `base`, undefined when there is none. */
  next(base: Date): Date | undefined;
  /** More than one occurrence within a minute: the platform then keeps no status (`TimerSchedule.Create`). */
  frequent: boolean;
}

/**
 * Time zone: always UTC, as on the Linux plans, where `WEBSITE_TIME_ZONE` is not supported.
 * @throws Error when the text is neither NCRONTAB nor a TimeSpan above zero.
 */
export function parseSchedule(text: string, now: Date): Schedule {
  const interval = parseTimeSpan(text);
  if (interval !== undefined && interval > 0) {
    return { next: (base) => new Date(base.getTime() + interval), frequent: interval < 60_000 };
  }
  const crontab = parseCrontab(text);
  const following = crontab.next(crontab.next(now) ?? now);
  return { next: crontab.next, frequent: following !== undefined && following.getTime() < now.getTime() + 60_000 };
}

/** Milliseconds of `[-][d.]hh:mm[:ss[.fffffff]]`, or undefined when the text is not a TimeSpan of that form. */
export function parseTimeSpan(text: string): number | undefined {
  const match = /^(-)?(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d{1,7})?)?$/.exec(text.trim());
  if (match === null) return undefined;
  const [, sign, days = "0", hours, minutes, seconds = "0", fraction = "0"] = match;
  if (Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  const total =
    ((Number(days) * 24 + Number(hours)) * 60 + Number(minutes)) * 60_000 + (Number(seconds) + Number(fraction)) * 1000;
  return sign === undefined ? total : -total;
}
