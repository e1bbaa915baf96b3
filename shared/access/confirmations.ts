import { MINUTE_MS } from "../platform/time.ts";
import type { UserRecord } from "./user.ts";

// When a token or session was last confirmed (see `StepUp`).

/** Time for which a second factor, or an authentication at the identity provider, confirms a session or token. */
export const FRESH_MS = 10 * MINUTE_MS;
/** Tolerated difference between the clocks of two instances. */
export const CLOCK_SKEW_MS = MINUTE_MS;
/** Maximum number of stored confirmations of a user, which limits the size of the user's row. */
const MAX_CONFIRMATIONS = 20;

/**
 * Returns the time at which a token or session was last confirmed.
 *
 * @param id - ID of the token or session.
 * @param authenticatedAt - Time at which the identity provider authenticated the user.
 */
export function confirmedAtOf(user: UserRecord, id: string, authenticatedAt?: string): Date | undefined {
  const times = (user.confirmations ?? []).filter((confirmation) => confirmation.id === id).map(({ at }) => at);
  const newest = [...times, ...(authenticatedAt === undefined ? [] : [authenticatedAt])].map(Date.parse);
  return newest.length === 0 ? undefined : new Date(Math.max(...newest));
}

/**
 * Returns the user's recent confirmations with a new one as the last. The new confirmation replaces an earlier one of the same
 * token or session.
 *
 * @param id - ID of the token or session.
 * @param at - Time of the new confirmation, ISO 8601.
 */
export function confirmationsWith(user: UserRecord, id: string, at: string): NonNullable<UserRecord["confirmations"]> {
  const oldest = Date.parse(at) - FRESH_MS - CLOCK_SKEW_MS;
  const recentConfirmations = (user.confirmations ?? []).filter(
    (confirmation) => confirmation.id !== id && Date.parse(confirmation.at) > oldest,
  );
  return [...recentConfirmations.slice(1 - MAX_CONFIRMATIONS), { id, at }];
}
