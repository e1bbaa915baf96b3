import { createHash } from "node:crypto";
import { decodeTime } from "ulid";
import * as z from "zod";
import { entity, type Row } from "../storage/entity.ts";
import { DAY_MS } from "../time.ts";
import { isFinal, Part } from "./delivery.ts";

/** A part of a delivery that goes out with the next mail to its recipients. */
const Entry = z.object({
  deliveryId: z.string(),
  /** The part's place in the delivery. */
  part: z.int(),
  /** Of its most urgent item, as a place in `URGENCIES`. */
  urgency: z.int(),
});
export type Entry = z.infer<typeof Entry>;

/**
 * What waits for the same recipients, and the mail that is in hand. Whatever waits goes into one mail, of whichever deliveries it
 * is: taking it in hand is one write of this row. An entry stays here until its part in the delivery says what became of it, so
 * that one that is neither here nor over was never put in.
 */
const MailboxRecord = z.object({
  recipients: z.array(z.string()),
  /** A tag named the address: its mails are counted by the day. */
  ofOwner: z.boolean(),
  waiting: z.array(Entry),
  mail: Part.extend({ entries: z.array(Entry) }).optional(),
  /** When mails were sent to an owner's address in the last 24 hours, unix milliseconds. */
  sent: z.array(z.int()),
});
export type MailboxRecord = z.infer<typeof MailboxRecord>;
export type Mailbox = Row<MailboxRecord>;
export type MailInHand = NonNullable<MailboxRecord["mail"]>;

/** One partition, so that one request reads all and one transaction changes several. */
export const TABLE = "AlertMailboxes";
export const Mailboxes = entity(TABLE, MailboxRecord);
export const MAILBOXES = "mailboxes";
export const MAILBOX_PREFIX = "m|";

/**
 * The mailbox of these recipients. An owner's address has one beside that of the same address among a rule's recipients, since
 * its mails are counted.
 *
 * @param alone - Of what is never merged with anything: what it is.
 */
export function mailboxKey(recipients: readonly string[], ofOwner: boolean, alone = ""): string {
  const addresses = recipients.map((address) => address.toLowerCase()).sort();
  const hash = createHash("sha256").update(JSON.stringify([addresses, ofOwner, alone]));
  return MAILBOX_PREFIX + hash.digest("hex").slice(0, 40);
}

const sameEntry = (a: Entry, b: Entry): boolean => a.deliveryId === b.deliveryId && a.part === b.part;
export const holds = ({ waiting, mail }: MailboxRecord, entry: Entry): boolean =>
  [...waiting, ...(mail?.entries ?? [])].some((one) => sameEntry(one, entry));

/** What can be done about a mailbox now. `settle`: what became of the mail in hand is known, or can be asked for. */
export function nextStep(box: MailboxRecord, now: Date): "settle" | "send" | undefined {
  const { mail } = box;
  if (!mail) return box.waiting.length > 0 ? "send" : undefined;
  if (isFinal(mail)) return "settle";
  const at = now.toISOString();
  if ((mail.notBefore ?? "") > at || (mail.status === "sending" && (mail.leasedUntil ?? "") > at)) return undefined;
  return mail.status === "waiting" ? "send" : "settle";
}

/**
 * The mail in hand, where something critical is to join it: it need not wait out a pause that grew while the provider could not
 * be reached. One that nobody has got for a day goes on counting its attempts, so that it is given up however often
 * something joins it.
 */
export function hurried(mail: MailboxRecord["mail"], now: Date): MailboxRecord["mail"] {
  const isPaused = mail?.status === "waiting" || (mail?.status === "sending" && mail.leasedUntil === undefined);
  if (!isPaused || mail.throttled) return mail;
  const [oldest] = mail.entries.map(({ deliveryId }) => deliveryId).sort();
  const isOld = oldest !== undefined && now.getTime() - decodeTime(oldest) >= DAY_MS;
  return { ...mail, notBefore: undefined, looks: 0, ...(isOld ? {} : { attemptsBefore: mail.attempts }) };
}

/** Everything that the next mail of a mailbox would hold. */
export const toSend = ({ waiting, mail }: MailboxRecord): Entry[] => [...(mail?.entries ?? []), ...waiting];

/** The most urgent first; of these a rule's recipients, since whoever writes tags can name any number of owners; then what has waited the longest. */
export function byRank(a: MailboxRecord, b: MailboxRecord): number {
  const [first, second] = [rankOf(a), rankOf(b)];
  return first < second ? -1 : first > second ? 1 : 0;
}

function rankOf(box: MailboxRecord): string {
  const entries = toSend(box);
  const urgency = Math.min(...entries.map((entry) => entry.urgency));
  const oldest = entries.map(({ deliveryId }) => deliveryId).sort()[0] ?? "";
  return `${urgency}|${box.ofOwner ? 1 : 0}|${oldest}|${box.recipients[0]}`;
}

/** The mails to an owner's address that still count, unix milliseconds. */
export const sentLastDay = ({ sent }: MailboxRecord, now: Date): number[] =>
  sent.filter((at) => at > now.getTime() - DAY_MS);
