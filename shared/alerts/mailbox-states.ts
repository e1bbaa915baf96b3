import { decodeTime } from "ulid";
import { DAY_MS } from "../platform/time.ts";
import { type DeliveryRecord, isFinal, itemsIn, operationIdOf, type Part } from "./delivery.ts";
import { URGENCIES } from "./items.ts";
import {
  containsEntry,
  type Entry,
  entriesToSend,
  type MailboxRecord,
  type MailInProgress,
  sentLastDay,
} from "./mailbox.ts";
import { replacementsOf } from "./owner-routing.ts";
import { withOutcome } from "./part-states.ts";
import { LEASE_MS, type Outcome } from "./retry-schedule.ts";

/**
 * States of mails: pure functions of a mailbox and of a delivery, for mailboxes.ts, fill-mailboxes.ts, deliver-by-mail.ts and
 * held-deliveries.ts.
 *
 * States of a mailbox (`mailboxState`): the status of its mail in progress, `ended` if that status is final, `queued` if entries
 * wait without a mail, or `empty`. An event is rejected in any state for which this table has no row, and before `notBefore`. An
 * attempt is overdue if its worker has no lease: the lease has expired, or the attempt has ended without a response.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | any, without the entry | added | the same; `empty`: `queued` | the entry; if it is critical, the mail does not wait for its next attempt |
 * | `empty` | added, an earlier version started the mail | status of that mail | the mail |
 * | any, with waiting entries of the delivery | held | the same; `queued`: `queued` or `empty` | without these entries |
 * | `queued`, `waiting` | withdrawn | the same, or `queued` or `empty` if the mail has no entries left | without entries that are not sent anymore; without the operation ID if its entry, the first one, is removed |
 * | `queued`, `waiting` | started | `sending` | all waiting entries; one more attempt; the lease; operation ID |
 * | `queued`, the owner received the maximum number of mails | started | `ended` | `failed`, error |
 * | `sending`, leased | answered | `waiting`, `sending`, `accepted` or `ended` | without lease; the time of the next step |
 * | `sending`, overdue | lookedUp | `sending`, `accepted` or `ended` | as for answered |
 * | `sending`, overdue | notFound | `waiting` | the provider does not know the mail, so it can be sent |
 * | `accepted` | lookedUp | `accepted` or `ended` | as for answered |
 * | `ended` | reported | `queued` or `empty` | without the mail: the deliveries have its outcome |
 *
 * States of a part of a delivery by mail (`status`), as its mail is reported. An event is rejected in any other state, and in a
 * delivery that has ended.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `waiting`, `sending`, `accepted` | reported, the mail is in progress | the mail's status | attempts, time of the next step |
 * | `waiting`, `sending`, `accepted` | reported, the mail has ended | `delivered`, `failed` or `cancelled` | the error |
 * | the same, of an owner | reported, the mail failed | `failed` | `replaced`, and new parts for the rule's recipients |
 */
export type MailboxEvent =
  | { type: "added"; entry: Entry; startedMail?: Part }
  | { type: "held"; deliveryId: string }
  /** `remaining`: the entries that are still sent. */
  | { type: "withdrawn"; remaining: readonly Entry[] }
  | { type: "started"; ownerMailsPerDay: number }
  | { type: "answered"; outcome: Outcome }
  | { type: "lookedUp"; outcome: Outcome }
  | { type: "notFound" }
  | { type: "reported" };

type MailboxState = "empty" | "queued" | "waiting" | "sending" | "accepted" | "ended";

export function mailboxState({ mail, waiting }: MailboxRecord): MailboxState {
  if (!mail) return waiting.length > 0 ? "queued" : "empty";
  const { status } = mail;
  return status === "waiting" || status === "sending" || status === "accepted" ? status : "ended";
}

/**
 * Returns the next step of a mailbox that is due. `complete`: the outcome of the mail in progress is known or can be requested
 * from the provider. `send`: a mail can be sent, new or again. Undefined if nothing is due.
 */
export function nextStep(box: MailboxRecord, now: Date): "complete" | "send" | undefined {
  const state = mailboxState(box);
  if (state === "empty") return undefined;
  if (state === "queued") return "send";
  if (state === "ended") return "complete";
  const { notBefore = "", leasedUntil = "" } = box.mail!;
  const nowText = now.toISOString();
  if (notBefore > nowText || (state === "sending" && leasedUntil > nowText)) return undefined;
  return state === "waiting" ? "send" : "complete";
}

/** Returns the mailbox after an event; undefined if the event is rejected. */
export function nextMailbox<Box extends MailboxRecord>(box: Box, event: MailboxEvent, now: Date): Box | undefined {
  const { mail } = box;
  switch (event.type) {
    case "added":
      return containsEntry(box, event.entry) ? undefined : withEntry(box, event, now);
    case "held": {
      const waiting = box.waiting.filter(({ deliveryId }) => deliveryId !== event.deliveryId);
      return waiting.length < box.waiting.length ? { ...box, waiting } : undefined;
    }
    case "withdrawn":
      return nextStep(box, now) === "send" ? withOnlyEntries(box, event.remaining) : undefined;
    case "started":
      return nextStep(box, now) === "send" ? withAttempt(box, event.ownerMailsPerDay, now) : undefined;
    case "answered":
      return mail?.status === "sending" && mail.leasedUntil ? withMailOutcome(box, event.outcome) : undefined;
    case "lookedUp":
      return nextStep(box, now) === "complete" && !isFinal(mail!) ? withMailOutcome(box, event.outcome) : undefined;
    case "notFound":
      return nextStep(box, now) === "complete" && mail!.status === "sending"
        ? withMailOutcome(box, { status: "waiting" })
        : undefined;
    case "reported":
      return mailboxState(box) === "ended" ? { ...box, mail: undefined } : undefined;
  }
}

const CRITICAL = URGENCIES.indexOf("critical");

function withEntry<Box extends MailboxRecord>(
  box: Box,
  { entry, startedMail }: MailboxEvent & { type: "added" },
  now: Date,
): Box | undefined {
  if (startedMail) return box.mail ? undefined : { ...box, mail: { ...startedMail, entries: [entry] } };
  // Lower numbers are more urgent: critical or expired.
  const mail = entry.urgency <= CRITICAL ? withoutRetryDelay(box.mail, now) : box.mail;
  return { ...box, waiting: [...box.waiting, entry], mail };
}

/**
 * Returns the mail in progress for adding a critical item: the mail is retried without waiting for the current delay. After a
 * day, the attempts are no longer reset, so that the mail fails eventually.
 */
function withoutRetryDelay(mail: MailboxRecord["mail"], now: Date): MailboxRecord["mail"] {
  // `sending` without a lease: the outcome of the last attempt is unknown and is requested from the provider later.
  const isPaused = mail?.status === "waiting" || (mail?.status === "sending" && mail.leasedUntil === undefined);
  if (!isPaused || mail.throttled) return mail;
  const [oldest] = mail.entries.map(({ deliveryId }) => deliveryId).sort();
  const isOld = oldest !== undefined && now.getTime() - decodeTime(oldest) >= DAY_MS;
  return { ...mail, notBefore: undefined, looks: 0, ...(isOld ? {} : { attemptsBefore: mail.attempts }) };
}

function withOnlyEntries<Box extends MailboxRecord>(box: Box, remaining: readonly Entry[]): Box {
  const waiting = box.waiting.filter((entry) => remaining.includes(entry));
  const entries = box.mail?.entries.filter((entry) => remaining.includes(entry)) ?? [];
  if (!box.mail || entries.length === 0) return { ...box, waiting, mail: undefined };
  // The operation ID belongs to the first entry, which may be sent later by itself. The provider does not know the mail yet.
  const operationId = entries[0] === box.mail.entries[0] ? box.mail.operationId : undefined;
  return { ...box, waiting, mail: { ...box.mail, entries, operationId } };
}

function withAttempt<Box extends MailboxRecord>(box: Box, ownerMailsPerDay: number, now: Date): Box {
  const entries = entriesToSend(box);
  const [first] = entries;
  const { mail: previous, recipients, ofOwner } = box;
  const mail: MailInProgress = {
    ...previous,
    recipients,
    operationId: previous?.operationId ?? operationIdOf(first!.deliveryId, first!.part),
    entries,
    status: "sending",
    attempts: (previous?.attempts ?? 0) + 1,
    looks: previous?.looks ?? 0,
    leasedUntil: new Date(now.getTime() + LEASE_MS).toISOString(),
  };
  const sent = sentLastDay(box, now);
  if (ofOwner && previous === undefined && sent.length >= ownerMailsPerDay) {
    const error = `${recipients[0]} already received ${sent.length} mails as an owner in 24 hours, the limit of OWNER_MAIL_PER_DAY.`;
    return { ...box, waiting: [], mail: { ...mail, status: "failed", error } };
  }
  // A retry is the same mail, which its first attempt counted.
  const isCounted = ofOwner && previous === undefined;
  return { ...box, waiting: [], mail, sent: isCounted ? [...sent, now.getTime()] : sent };
}

function withMailOutcome<Box extends MailboxRecord>(box: Box, outcome: Outcome): Box {
  const { leasedUntil: _l, notBefore: _n, error: _e, throttled: _t, ...mail } = box.mail!;
  return { ...box, mail: { ...mail, ...outcome } };
}

/** The state of a mail, as a delivery shows it. */
export type MailProgress = Outcome & Pick<Part, "attempts" | "looks">;

/**
 * Returns the parts of a delivery after its mail is reported; undefined if the event is rejected. The parts that replace a
 * failed mail to an owner come after the others.
 */
export function partsAfterReport(
  delivery: DeliveryRecord,
  index: number,
  mail: MailProgress,
  now: Date,
): Part[] | undefined {
  const part = delivery.parts[index];
  // The outcome of a mail whose delivery is held is known after all.
  const isOpen = delivery.status === "pending" || delivery.status === "inDoubt";
  if (!part || !isOpen || isFinal(part)) return undefined;
  const { status, attempts, looks, error, notBefore } = mail;
  const next = withOutcome(
    part,
    { status, attempts, looks, ...(error !== undefined && { error }), ...(notBefore && { notBefore }) },
    now,
  );
  const { fallback: recipients = [] } = delivery;
  const isReplaced = next.status === "failed" && next.owner !== undefined && recipients.length > 0;
  const written = isReplaced ? { ...next, replaced: true } : next;
  const parts = delivery.parts.map((existing, position) => (position === index ? written : existing));
  return isReplaced ? [...parts, ...replacementsOf(next, { recipients }, itemsIn(delivery))] : parts;
}
