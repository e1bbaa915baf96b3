import { createHash } from "node:crypto";
import * as z from "zod";
import { entity, type Row } from "../platform/storage/entity.ts";
import { DAY_MS } from "../platform/time.ts";
import { Part } from "./delivery.ts";

/**
 * Mailboxes: rows that combine the alerts for one group of recipients into mails. A delivery (one message of a rule) has parts
 * for groups of recipients; an entry of a mailbox refers to such a part. mailbox-states.ts has their states.
 */

/** A part of a delivery that is sent with the next mail to its recipients. */
const Entry = z.object({
  deliveryId: z.string(),
  /** Index of the part in the delivery. */
  part: z.int(),
  /** Urgency of the most urgent item, as an index into `URGENCIES`. */
  urgency: z.int(),
});
export type Entry = z.infer<typeof Entry>;

/**
 * The waiting entries for one group of recipients, and the mail in progress. All waiting entries, of any delivery, go into one
 * mail; starting a mail is one write of this row. An entry stays until the outcome is stored in its part of the delivery. So an
 * unfinished part without an entry was not added to a mailbox yet.
 */
const MailboxRecord = z.object({
  recipients: z.array(z.string()),
  /** Whether the address comes from an owner tag. Mails to such an address are limited per day. */
  ofOwner: z.boolean(),
  waiting: z.array(Entry),
  /** The mail in progress, with the entries that it contains. */
  mail: Part.extend({ entries: z.array(Entry) }).optional(),
  /** Times of mails to an owner's address in the last 24 hours, unix milliseconds. */
  sent: z.array(z.int()),
});
export type MailboxRecord = z.infer<typeof MailboxRecord>;
export type Mailbox = Row<MailboxRecord>;
export type MailInProgress = NonNullable<MailboxRecord["mail"]>;

/** One partition, so that one request reads all mailboxes and one transaction changes several. */
export const TABLE = "AlertMailboxes";
export const Mailboxes = entity(TABLE, MailboxRecord);
export const MAILBOXES = "mailboxes";
export const MAILBOX_PREFIX = "m|";

/**
 * Returns the key of the mailbox of these recipients. An address as an owner has another mailbox than as a rule's recipient,
 * because mails to owners are limited.
 *
 * @param alone - A unique text for a mail that must not be merged with others.
 */
export function mailboxKey(recipients: readonly string[], ofOwner: boolean, alone = ""): string {
  const addresses = recipients.map((address) => address.toLowerCase()).sort();
  const hash = createHash("sha256").update(JSON.stringify([addresses, ofOwner, alone]));
  return MAILBOX_PREFIX + hash.digest("hex").slice(0, 40);
}

const isSameEntry = (a: Entry, b: Entry): boolean => a.deliveryId === b.deliveryId && a.part === b.part;
export const containsEntry = ({ waiting, mail }: MailboxRecord, entry: Entry): boolean =>
  [...waiting, ...(mail?.entries ?? [])].some((existing) => isSameEntry(existing, entry));

/** Returns all entries without a stored outcome: those of the mail in progress, then the waiting ones. */
export const entriesToSend = ({ waiting, mail }: MailboxRecord): Entry[] => [...(mail?.entries ?? []), ...waiting];

/**
 * Compares mailboxes by priority: the most urgent first, then rule recipients before owners, then the oldest. Owners are later
 * because anyone who can edit tags can name any number of owners.
 */
export function byPriority(a: MailboxRecord, b: MailboxRecord): number {
  const [first, second] = [priorityOf(a), priorityOf(b)];
  return first < second ? -1 : first > second ? 1 : 0;
}

function priorityOf(box: MailboxRecord): string {
  const entries = entriesToSend(box);
  const urgency = Math.min(...entries.map((entry) => entry.urgency));
  // The id of a delivery is a ULID, which sorts by the time of creation.
  const oldest = entries.map(({ deliveryId }) => deliveryId).sort()[0] ?? "";
  return `${urgency}|${box.ofOwner ? 1 : 0}|${oldest}|${box.recipients[0]}`;
}

/** Returns the times of mails to an owner's address in the last 24 hours, unix milliseconds. */
export const sentLastDay = ({ sent }: MailboxRecord, now: Date): number[] =>
  sent.filter((at) => at > now.getTime() - DAY_MS);
