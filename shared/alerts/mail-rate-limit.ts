import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { HOUR_MS, MINUTE_MS } from "../platform/time.ts";
import { TABLE } from "./mailbox.ts";

/** The rate limit of mails, which all instances share. */

/** Maximum number of mails per minute and per hour. 0: no limit. */
export interface MailRateLimits {
  perMinute: number;
  perHour: number;
}

/**
 * Times of the mails in the last hour, unix milliseconds, oldest first. Stored in the partition of the mailboxes (rows that
 * combine the alerts for the same recipients), so that the transaction that starts a mail also counts it. One row for all
 * instances, with times of their own clocks.
 */
export const SentMailTimes = entity(TABLE, z.object({ sent: z.array(z.int()) }));
export const SENT_MAIL_TIMES_ROW = "pace";

/** Returns the limits that apply, each as a maximum number of mails in a sliding window. */
const windows = ({ perMinute, perHour }: MailRateLimits): [count: number, lengthMs: number][] =>
  [[perMinute, MINUTE_MS] as [number, number], [perHour, HOUR_MS] as [number, number]].filter(([count]) => count > 0);

export const isLimited = (limits: MailRateLimits): boolean => windows(limits).length > 0;

/** Returns the earliest time at or after `now` at which one more mail can be sent, unix milliseconds. */
export function nextFreeTime(sent: readonly number[], now: number, limits: MailRateLimits): number {
  return windows(limits).reduce((free, [count, lengthMs]) => {
    // The window has `count` mails until the oldest of the last `count` mails leaves it.
    const oldestInWindow = sent.at(-count);
    return oldestInWindow === undefined ? free : Math.max(free, oldestInWindow + lengthMs);
  }, now);
}

/** Returns the times with another mail, without times that no longer count. */
export const withSent = (sent: readonly number[], sentAt: number): number[] => [
  ...sent.filter((earlier) => earlier > sentAt - HOUR_MS),
  // The times stay in order if this instance's clock is behind that of the instance that sent the previous mail.
  Math.max(sentAt, sent.at(-1) ?? sentAt),
];

/** Returns when the next `count` mails can be sent, if no other mail is sent in between. */
export function nextSlots(sent: readonly number[], now: number, limits: MailRateLimits, count: number): number[] {
  const slots: number[] = [];
  let sentTimes = [...sent];
  let time = now;
  for (let slot = 0; slot < count; slot++) {
    time = nextFreeTime(sentTimes, time, limits);
    slots.push(time);
    sentTimes = withSent(sentTimes, time);
  }
  return slots;
}

/** Returns the limits as text, such as `5 mails per minute and 10 per hour`. */
export function rateLimitText({ perMinute, perHour }: MailRateLimits): string {
  const minute = perMinute > 0 ? [`${perMinute} mails per minute`] : [];
  const hour = perHour > 0 ? [perMinute > 0 ? `${perHour} per hour` : `${perHour} mails per hour`] : [];
  return [...minute, ...hour].join(" and ");
}
