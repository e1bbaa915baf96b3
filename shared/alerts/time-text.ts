import { DAY_MS, HOUR_MS } from "../platform/time.ts";

/** Times in alert messages. All messages show a time as the date in UTC with the time left: `Nov 26, 2026, 10:00 UTC (in 5 days)`. */

/** Days up to which a time left is in days, as on the page. A longer one is in months of 30 days, or in years. */
const MAX_DAYS = 60;
const [MONTH_DAYS, YEAR_DAYS] = [30, 365];

/** The style of the page, with the time of day of UTC: `Nov 26, 2026, 10:00 UTC`. The month's name avoids ambiguity. */
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

/** Returns a date and time in UTC. */
export const dateText = (date: Date): string => UTC.format(date);

/** Returns a date and time in UTC, and how long before or after `now` it is: `Nov 26, 2026, 10:00 UTC (in 5 days)`. */
export function timeText(date: Date, now: Date): string {
  const remainingMs = date.getTime() - now.getTime();
  return `${dateText(date)} (${remainingMs > 0 ? within(remainingMs) : ago(-remainingMs)})`;
}

/** Returns whether something expires or expired, and when: `expires in 5 days`. @param remainingMs - Milliseconds until the expiry. */
export const expiryText = (remainingMs: number): string =>
  remainingMs < 0 ? `expired ${ago(-remainingMs)}` : `expires ${within(remainingMs)}`;

/** Returns a number of days as text. */
export const dayCount = (days: number): string => count(days, "day");

const count = (number: number, unit: string): string => `${number} ${unit}${number === 1 ? "" : "s"}`;

/** Returns a time until a point in time as text, rounded down: `in 6 days`. */
const within = (milliseconds: number): string =>
  milliseconds < HOUR_MS ? "within the hour" : `in ${lengthOf(milliseconds)}`;

/** Returns a time since a point in time as text, rounded down: `2 days ago`. */
const ago = (milliseconds: number): string =>
  milliseconds < HOUR_MS ? "within the last hour" : `${lengthOf(milliseconds)} ago`;

function lengthOf(milliseconds: number): string {
  const days = Math.floor(milliseconds / DAY_MS);
  if (days >= YEAR_DAYS) return count(Math.floor(days / YEAR_DAYS), "year");
  if (days > MAX_DAYS) return count(Math.floor(days / MONTH_DAYS), "month");
  return days >= 1 ? dayCount(days) : count(Math.floor(milliseconds / HOUR_MS), "hour");
}
