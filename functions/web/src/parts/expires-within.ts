import { DAY_MS, HOUR_MS } from "./time.ts";

/**
 * Name of the filter in the inventory's address for assets that expire within a number of days, such as `within=7`. The address
 * contains no date, so that a saved or shared link counts from the day on which it is opened.
 */
export const WITHIN = "within";
/** Larger numbers in an address are ignored. Ten years is longer than anything should be valid. */
const MAX_DAYS = 3650;

/** Returns the number of days in the address. Undefined if there is none, or no usable one, such as `within=1e20`. */
export function daysWithin(params: URLSearchParams, name = WITHIN): number | undefined {
  const days = Number(params.get(name));
  return Number.isInteger(days) && days > 0 && days <= MAX_DAYS ? days : undefined;
}

/** Returns the filters of the API for assets that expire within this number of days. */
export function expiresWithin(days: number): { expiresAfter: string; expiresBefore: string } {
  // The full hour: the filters stay the same for an hour, so that Back can restore the list with its cursors.
  const now = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
  return { expiresAfter: new Date(now).toISOString(), expiresBefore: new Date(now + days * DAY_MS).toISOString() };
}
