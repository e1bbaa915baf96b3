import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, replace, type Tables } from "../platform/storage/tables.ts";
import { isFinal, itemsIn, itemsOf } from "./delivery.ts";
import type { History } from "./history.ts";
import { URGENCIES } from "./items.ts";
import {
  containsEntry,
  MAILBOX_PREFIX,
  MAILBOXES,
  type Mailbox,
  Mailboxes,
  type MailboxRecord,
  mailboxKey,
} from "./mailbox.ts";
import { nextMailbox } from "./mailbox-states.ts";
import { urgencyIn } from "./message.ts";

/** Maximum number of operations of one transaction: https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions */
const OPERATIONS_PER_TRANSACTION = 100;
/** Urgency of a test, because a user waits for the mail. */
const TEST_URGENCY = URGENCIES.indexOf("critical");

/**
 * Adds the waiting parts of a delivery to their recipients' mailboxes. Idempotent and safe to call concurrently.
 *
 * @returns The key of each part's mailbox, by the part's index, for all parts that are waiting, held or `alone`. A held part that was
 * added to a shared mailbox before it was held stays there, but has the key of a private mailbox in the result.
 */
export async function addToMailboxes(
  { tables, history, clock }: { tables: Tables; history: Pick<History, "get">; clock: Clock },
  deliveryId: string,
): Promise<Map<number, string>> {
  return await repeatOnConflict(async () => {
    // The mailboxes are read first. So a part that is sent between the two reads is final when the delivery is read.
    const boxes = new Map((await readMailboxes(tables)).map((box) => [box.rowKey, box]));
    const row = await history.get(deliveryId);
    const items = row ? itemsIn(row) : [];
    const keysByPart = new Map<number, string>();
    const changedBoxes = new Map<string, MailboxRecord>();
    for (const [index, part] of (row?.parts ?? []).entries()) {
      const wasHeld = row!.heldAt !== undefined;
      // A held part can lose its mailbox in any status, because a mail is not sent with entries of held deliveries.
      if (isFinal(part) || (part.status !== "waiting" && !part.alone && !wasHeld)) continue;
      // A test, and a part whose mail an earlier version started, get a private mailbox. So does a delivery that was held after
      // a restore: a mail's operation id at the provider is derived from the mail's first part. In a private mailbox that is
      // this part, so the provider can tell whether this mail was already sent.
      const alone = row!.test || part.alone || wasHeld ? `${deliveryId}/${index}` : "";
      const ofOwner = part.owner !== undefined;
      const key = mailboxKey(part.recipients, ofOwner, alone);
      const urgency = row!.test ? TEST_URGENCY : urgencyIn(itemsOf(part, items), new Date(row!.createdAt));
      const entry = { deliveryId, part: index, urgency };
      const box = changedBoxes.get(key) ?? boxes.get(key) ?? emptyMailbox(part.recipients, ofOwner);
      keysByPart.set(index, key);
      // Only holding changes a part's key: it may already be in a shared mailbox, to which it was added before it was held.
      const isInAnotherMailbox = wasHeld && [...boxes.values()].some((other) => containsEntry(other, entry));
      if (isInAnotherMailbox) continue;
      // The mail of a part that is `alone` was started by an earlier version, without mailboxes.
      const next = nextMailbox(box, { type: "added", entry, ...(part.alone && { startedMail: part }) }, clock.now());
      if (next) changedBoxes.set(key, next);
    }
    const operations = [...changedBoxes].map(([key, box]): Operation => {
      const stored = boxes.get(key);
      return stored ? replace(Mailboxes, key, box, stored.etag) : insert(Mailboxes, key, box);
    });
    for (let start = 0; start < operations.length; start += OPERATIONS_PER_TRANSACTION)
      await tables.transaction(Mailboxes.table, MAILBOXES, operations.slice(start, start + OPERATIONS_PER_TRANSACTION));
    return keysByPart;
  });
}

const emptyMailbox = (recipients: readonly string[], ofOwner: boolean): MailboxRecord => ({
  recipients: [...recipients],
  ofOwner,
  waiting: [],
  sent: [],
});

/** Returns all mailboxes that can be read. */
export async function readMailboxes(tables: Tables): Promise<Mailbox[]> {
  const boxes: Mailbox[] = [];
  const range = {
    partitionKey: MAILBOXES,
    from: MAILBOX_PREFIX,
    before: keyEnd(MAILBOX_PREFIX),
    onCorrupt: "leaveOut" as const,
  };
  for await (const rows of tables.pages(Mailboxes, range)) boxes.push(...rows);
  return boxes;
}
