import { DAY_MS, HOUR_MS } from "../platform/time.ts";

/** Times in alert messages. All messages show a time as the date in UTC with the time left: `26 November 2026, 10:00 UTC (in 5 days)`. */

/** Days up to which a time left is in days. A longer one is in months of 30 days. */
const MAX_DAYS = 60;
const MONTH_DAYS = 30;

const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];

/** Returns a date and time in UTC, with the month's name to avoid ambiguity. */
export const dateText = (date: Date): string =>
  `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}, ${date.toISOString().slice(11, 16)} UTC`;

/** Returns a date and time in UTC, and how long before or after `now` it is: `26 November 2026, 10:00 UTC (in 5 days)`. */
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
  if (days > MAX_DAYS) return count(Math.floor(days / MONTH_DAYS), "month");
  return days >= 1 ? dayCount(days) : count(Math.floor(milliseconds / HOUR_MS), "hour");
}
