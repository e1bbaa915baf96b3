import { isFinal, type Part } from "./delivery.ts";
import { LEASE_MS, type Outcome } from "./retry-schedule.ts";

/**
 * States of the part of a delivery that is sent to a webhook, chat or incident service: pure functions of the part, for
 * deliver-by-webhook.ts. (A mail waits in a mailbox, a row for the alerts to the same recipients: mailbox-states.ts.)
 *
 * A worker writes `sending` before the request and the outcome after it. An event is rejected in any state for which this table
 * has no row, before `notBefore`, and while another worker has the lease.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `waiting` | due | `sending` | the attempt is counted; the lease |
 * | `waiting` | due, the rule was disabled or deleted | `cancelled` | the reason |
 * | `sending`, the lease has expired | due | `sending` | as for `waiting`, and `mayBeRepeated`: the receiver may have the message |
 * | `sending`, the lease has expired | due, the rule was disabled or deleted | `cancelled` | the reason |
 * | `sending` | answered: accepted | `delivered` | the response |
 * | `sending` | answered: to be retried | `waiting` | `notBefore` |
 * | `sending` | answered: rejected, or the last attempt failed | `failed` | the error |
 */
export type PartEvent =
  | {
      type: "due";
      /** Whether the rule still sends. A test is sent by a disabled rule too. */
      rule: "active" | "disabled" | "deleted";
    }
  | { type: "answered"; outcome: Outcome };

/** Returns the part after an event, or undefined if the event is rejected. */
export function nextPart(part: Part, event: PartEvent, now: Date): Part | undefined {
  if (event.type === "answered") return part.status === "sending" ? withOutcome(part, event.outcome, now) : undefined;
  const nowText = now.toISOString();
  if ((part.status !== "waiting" && part.status !== "sending") || (part.notBefore ?? "") > nowText) return undefined;
  if (part.status === "sending" && (part.leasedUntil ?? "") > nowText) return undefined;
  if (event.rule !== "active") {
    const error = `The rule was ${event.rule} before this was sent.`;
    return withOutcome(part, { status: "cancelled", error }, now);
  }
  const leasedUntil = new Date(now.getTime() + LEASE_MS).toISOString();
  // The earlier attempt may have arrived. The receiver recognizes the duplicate by its id.
  const repeated = part.status === "sending" && { mayBeRepeated: true };
  return { ...part, ...repeated, status: "sending", attempts: part.attempts + 1, leasedUntil };
}

/** Returns the part with an outcome, without the members that apply only during an attempt. */
export function withOutcome(
  { leasedUntil: _l, notBefore: _n, error: _e, waits: _w, ...part }: Part,
  outcome: Outcome,
  now: Date,
): Part {
  const next = { ...part, ...outcome };
  return isFinal(next) ? { ...next, finishedAt: now.toISOString() } : next;
}
