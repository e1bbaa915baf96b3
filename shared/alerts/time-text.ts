import { counted } from "../platform/counted.ts";
import { DAY_MS, HOUR_MS } from "../platform/time.ts";

/** Times in alert messages, in the style of the page (functions/web/src/parts/dates.ts) but in English and UTC. */

/** Maximum number of days of a duration that is written in days. A longer one is in months of 30 days, or in years. */
const MAX_DAYS = 60;
const [MONTH_DAYS, YEAR_DAYS] = [30, 365];

/** `Nov 26, 2026, 10:00 UTC`. The month's name avoids ambiguity. */
const UTC = new Intl.DateTimeFormat("en-US", {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
  timeZone: "UTC",
});

/** Returns a date and time in UTC: `Nov 26, 2026, 10:00 UTC`. */
export const instantText = (date: Date): string => UTC.format(date);

/** Returns a date and time in UTC, and how long before or after `now` it is: `Nov 26, 2026, 10:00 UTC (in 5 days)`. */
export function timeText(date: Date, now: Date): string {
  const remainingMs = date.getTime() - now.getTime();
  return `${instantText(date)} (${remainingMs > 0 ? within(remainingMs) : ago(-remainingMs)})`;
}

/** Returns whether something expires or expired, and when: `expires in 5 days`. @param remainingMs - Milliseconds until the expiry. */
export const expiryText = (remainingMs: number): string =>
  remainingMs < 0 ? `expired ${ago(-remainingMs)}` : `expires ${within(remainingMs)}`;

/** Returns a number of days as text. */
export const dayCount = (days: number): string => counted(days, "day");

/** Returns a time until a point in time as text, rounded down: `in 6 days`. */
const within = (milliseconds: number): string =>
  milliseconds < HOUR_MS ? "within the hour" : `in ${lengthOf(milliseconds)}`;

/** Returns a time since a point in time as text, rounded down: `2 days ago`. */
const ago = (milliseconds: number): string =>
  milliseconds < HOUR_MS ? "within the last hour" : `${lengthOf(milliseconds)} ago`;

/** Returns a duration of at least an hour in its largest unit, rounded down. */
function lengthOf(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= YEAR_DAYS) return counted(Math.floor(days / YEAR_DAYS), "year");
  if (days > MAX_DAYS) return counted(Math.floor(days / MONTH_DAYS), "month");
  return days >= 1 ? dayCount(days) : counted(Math.floor(milliseconds / HOUR_MS), "hour");
}
