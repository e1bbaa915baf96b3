import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { HOUR_MS, MINUTE_MS } from "../time.ts";
import { TABLE } from "./mailbox.ts";

/** How many mails may be sent in any minute and any hour; 0 is without limit. */
export interface PaceLimits {
  perMinute: number;
  perHour: number;
}

/**
 * When mails were sent in the last hour, unix milliseconds, the oldest first. It stands beside the mailboxes, so that a mail is
 * counted by the transaction that takes it in hand. One row for all instances; the instants are of the store's clock.
 */
export const Pace = entity(TABLE, z.object({ sent: z.array(z.int()) }));
export const PACE_ROW = "pace";

const windows = ({ perMinute, perHour }: PaceLimits): [count: number, lengthMs: number][] =>
  [[perMinute, MINUTE_MS] as [number, number], [perHour, HOUR_MS] as [number, number]].filter(([count]) => count > 0);

export const isLimited = (limits: PaceLimits): boolean => windows(limits).length > 0;

/** The earliest instant, not before `now`, at which one more mail may be sent. Unix milliseconds. */
export function freeAt(sent: readonly number[], now: number, limits: PaceLimits): number {
  return windows(limits).reduce((free, [count, lengthMs]) => {
    const before = sent.at(-count);
    return before === undefined ? free : Math.max(free, before + lengthMs);
  }, now);
}

/** The instants with another mail, without those that no limit looks at any more. */
export const withSent = (sent: readonly number[], at: number): number[] => [
  ...sent.filter((one) => one > at - HOUR_MS),
  // A clock that stands back a little must not let the order go.
  Math.max(at, sent.at(-1) ?? at),
];

/** When the next `count` mails may be sent, if no other comes between. */
export function nextSlots(sent: readonly number[], now: number, limits: PaceLimits, count: number): number[] {
  const slots: number[] = [];
  let taken = [...sent];
  let at = now;
  for (let slot = 0; slot < count; slot++) {
    at = freeAt(taken, at, limits);
    slots.push(at);
    taken = withSent(taken, at);
  }
  return slots;
}

/** `5 mails a minute and 10 an hour` */
export function paceText({ perMinute, perHour }: PaceLimits): string {
  const minute = perMinute > 0 ? [`${perMinute} mails a minute`] : [];
  const hour = perHour > 0 ? [perMinute > 0 ? `${perHour} an hour` : `${perHour} mails an hour`] : [];
  return [...minute, ...hour].join(" and ");
}
