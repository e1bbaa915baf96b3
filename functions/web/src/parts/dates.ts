/**
 * The only place that turns dates and times into text. Language and order follow the browser; the style is the same everywhere,
 * such as "Nov 26, 2026, 1:14 PM UTC", "Nov 26, 2026", "Nov 26 – Dec 2", "in 31 days".
 */
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from "./time.ts";
import { LOCAL_ZONE } from "./time-zone.ts";

const DAY = { year: "numeric", month: "short", day: "numeric" } as const;
const TIME = { ...DAY, hour: "numeric", minute: "2-digit", timeZoneName: "short" } as const;
const LOCAL = new Intl.DateTimeFormat(undefined, { ...TIME, timeZone: LOCAL_ZONE });
const UTC = new Intl.DateTimeFormat(undefined, { ...TIME, timeZone: "UTC" });
const EXACT = new Intl.DateTimeFormat(undefined, { ...TIME, second: "2-digit", timeZone: "UTC" });
const UTC_DAY = new Intl.DateTimeFormat(undefined, { ...DAY, timeZone: "UTC" });
const UTC_DAY_OF_YEAR = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
const UTC_MONTH = new Intl.DateTimeFormat(undefined, { month: "long", year: "numeric", timeZone: "UTC" });
const UTC_WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short", timeZone: "UTC" });
const CLOCK_STYLE = { hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" } as const;
const LOCAL_CLOCK = new Intl.DateTimeFormat(undefined, { ...CLOCK_STYLE, timeZone: LOCAL_ZONE });
const UTC_CLOCK = new Intl.DateTimeFormat(undefined, { ...CLOCK_STYLE, timeZone: "UTC" });
/** "in 1 day" instead of "tomorrow": less than two whole days can end the day after tomorrow. */
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: "always" });
const NOW = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(0, "second");

/** Returns a point in time with its zone, such as "Nov 26, 2026, 1:14 PM UTC". */
export const timeText = (date: Date, zone: string): string => (zone === "UTC" ? UTC : LOCAL).format(date);

/** Returns a point in time in UTC with its seconds, for tooltips, such as "Nov 26, 2026, 1:14:05 PM UTC". */
export const exactText = (date: Date): string => EXACT.format(date);

/** Returns a UTC day, such as "Nov 26, 2026". */
export const dayText = (time: number): string => UTC_DAY.format(time);

/** Returns the UTC days from `first` to `last`, such as "Nov 26 – Dec 2". */
export const daysText = (first: number, last: number): string => UTC_DAY_OF_YEAR.formatRange(first, last);

/** Returns the UTC month of a day, such as "November 2026". */
export const monthText = (time: number): string => UTC_MONTH.format(time);

/** Returns the UTC weekday of a day, such as "Thu". */
export const weekdayText = (time: number): string => UTC_WEEKDAY.format(time);

/** Returns the time of day with its zone, such as "1:14:05 PM UTC", for something that happens within minutes. */
export const clockText = (date: Date, zone: string): string => (zone === "UTC" ? UTC_CLOCK : LOCAL_CLOCK).format(date);

/** Up to this number of days, relative times are in days, because "in 1 month" hides whether 31 or 59 days remain. */
const MAX_DAYS = 60;
/** Units of relative times, and the difference from which each is used. */
const UNITS = [
  { unit: "year", length: 365 * DAY_MS, from: 365 * DAY_MS },
  { unit: "month", length: 30 * DAY_MS, from: (MAX_DAYS + 1) * DAY_MS },
  { unit: "day", length: DAY_MS, from: DAY_MS },
  { unit: "hour", length: HOUR_MS, from: HOUR_MS },
  { unit: "minute", length: MINUTE_MS, from: MINUTE_MS },
  { unit: "second", length: SECOND_MS, from: SECOND_MS },
] as const;

/** Returns a time relative to now in whole units, rounded down like the days of the API, such as "in 31 days" or "2 hours ago". */
export function relativeText(date: Date): string {
  const differenceMs = date.getTime() - Date.now();
  const largest = UNITS.find(({ from }) => Math.abs(differenceMs) >= from);
  return largest ? RELATIVE.format(Math.trunc(differenceMs / largest.length), largest.unit) : NOW;
}
