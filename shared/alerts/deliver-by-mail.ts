import type { MailSender } from "../platform/azure/mail.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { type DeliveryRecord, isFinal, itemsIn, type Part } from "./delivery.ts";
import type { DeliveryWriter } from "./delivery-writer.ts";
import { mailOf } from "./email.ts";
import type { History } from "./history.ts";
import type { Item } from "./items.ts";
import type { Links } from "./links.ts";
import type { MailRateLimits } from "./mail-rate-limit.ts";
import { type MailProgress, partsAfterReport } from "./mailbox-states.ts";
import { createMailboxes, type MailboxQueue } from "./mailboxes.ts";
import { messageOf } from "./message.ts";
import { partsByOwner } from "./owner-routing.ts";
import type { Owners } from "./owners.ts";
import type { Attempts } from "./retry-schedule.ts";
import type { AlertRules } from "./rules.ts";
import { createMailDelivery } from "./send-mail.ts";

/**
 * Delivers alerts by mail. A delivery is one message of a rule, in parts: one per group of recipients. A mailbox combines the
 * waiting parts of all deliveries to one group of recipients into one mail, within the rate limit.
 */

/** Seconds before the next check of a delivery whose mails another worker is sending. */
export const BUSY_SECONDS = 15;
/**
 * Milliseconds in which a worker starts sending mails, within the function timeout. Shorter for a test, because a user waits.
 */
const MAILS_MS = MINUTE_MS;
const TEST_MAILS_MS = 8 * SECOND_MS;
/** Minimum change of the expected send time that is written to the delivery. */
const MIN_WAIT_CHANGE_MS = MINUTE_MS;

/** Sends deliveries by mail, through the mailboxes of their recipients. */
export interface MailDeliveries {
  /**
   * Adds a delivery's mails to the mailboxes of their recipients, and sends all mails that can be sent now, including mails of
   * other deliveries.
   *
   * @returns Seconds until the next step. Undefined if the delivery is complete.
   * @throws RowChanged
   */
  work(row: Row<DeliveryRecord>): Promise<number | undefined>;
  /** Removes mailboxes that have been empty for two days. */
  cleanUp(): Promise<void>;
}

/** Creates the part of deliveries that sends mails. */
export function createMailDeliveries(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  rules: Pick<AlertRules, "find">;
  history: History;
  mail: MailSender | undefined;
  attempts: Attempts;
  writer: DeliveryWriter;
  owners: Pick<Owners, "resolver">;
  limits: MailRateLimits;
  ownerMailsPerDay: number;
  /** Returns link data for the items, with the current names of subscriptions. */
  links: (items: readonly Item[]) => Promise<Links>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): MailDeliveries {
  const { history, clock } = deps;
  const { write, writeParts, recordIntent, conclude, secondsUntil } = deps.writer;
  const mailboxes = createMailboxes({
    ...deps,
    mails: createMailDelivery(deps),
    compose: async (sources) => mailOf(messageOf(sources, await deps.links(sources.flatMap(({ items }) => items)))),
    report: reportOutcome,
  });

  async function work(delivery: Row<DeliveryRecord>): Promise<number | undefined> {
    const { deliveryId, test } = delivery;
    // `fallback`, the addresses of the rule's recipients, is set once the items are assigned to recipients.
    if (delivery.fallback === undefined) await plan(delivery);
    const mailboxKeys = await mailboxes.add(deliveryId);
    await mailboxes.run(test ? TEST_MAILS_MS : MAILS_MS);
    let row = await history.get(deliveryId);
    if (row?.status === "pending") row = await conclude(await withExpectedTimes(row, mailboxKeys));
    if (row?.status !== "pending") return undefined;
    const waitSeconds = row.parts
      .filter((part) => !isFinal(part))
      .map(({ notBefore }) => secondsUntil(notBefore ?? ""));
    // A part without a time (NaN), or with a time in the past, is being sent by another worker.
    return Math.max(1, Math.min(...waitSeconds.map((seconds) => (seconds > 0 ? seconds : BUSY_SECONDS))));
  }

  /** Assigns a delivery's items to their owners and the rule's recipients, before any mail is sent. */
  async function plan(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const fallback = row.parts.flatMap(({ recipients }) => recipients);
    const isNotStarted = row.parts.every(({ status, attempts }) => status === "waiting" && attempts === 0);
    if (!isNotStarted) {
      // An earlier version, without mailboxes, started the delivery. `alone` gives the started parts mailboxes of their own.
      const isStarted = ({ status }: Part) => status === "sending" || status === "accepted";
      return await write(row, {
        fallback,
        parts: row.parts.map((part) => (isStarted(part) ? { ...part, alone: true } : part)),
      });
    }
    // Before the delivery gets its parts, without which no mail can start: no mail is sent without this audit entry.
    await recordIntent(row);
    const resolve = row.test ? undefined : await deps.owners.resolver();
    return await write(row, { fallback, parts: partsByOwner({ recipients: fallback }, itemsIn(row), resolve) });
  }

  /** Writes the expected send time into parts that only wait for the rate limit. @param mailboxKeys - By the part's index. */
  async function withExpectedTimes(
    row: Row<DeliveryRecord>,
    mailboxKeys: Map<number, string>,
  ): Promise<Row<DeliveryRecord>> {
    if (!row.parts.some(({ status }) => status === "waiting")) return row;
    const slots = await mailboxes.sendSlots();
    let isChanged = false;
    const parts = row.parts.map((part, index) => {
      const slot = part.status === "waiting" ? slots.get(mailboxKeys.get(index) ?? "") : undefined;
      if (!slot) return part;
      const writtenTime = Date.parse(part.notBefore ?? "");
      // Without a written time, the difference is NaN and the time is written.
      if (Math.abs(writtenTime - slot.at.getTime()) < MIN_WAIT_CHANGE_MS) return part;
      isChanged = true;
      return { ...part, notBefore: slot.at.toISOString(), waits: waitText(mailboxes, slot.mailsBefore) };
    });
    return isChanged ? await writeParts(row, parts) : row;
  }

  /**
   * Writes the outcome of a mail into its delivery. Items that did not reach an owner go to the rule's recipients.
   */
  async function reportOutcome(entry: { deliveryId: string; part: number }, mail: MailProgress): Promise<void> {
    const isReplaced = await repeatOnConflict(async () => {
      const row = await history.get(entry.deliveryId);
      const parts = row && partsAfterReport(row, entry.part, mail, clock.now());
      if (!parts) return false;
      await conclude(await writeParts(row, parts));
      return parts.length > row.parts.length;
    });
    if (isReplaced) await mailboxes.add(entry.deliveryId);
  }

  return { work, cleanUp: () => mailboxes.cleanUp() };
}

/** Explains the delay of a mail. @param mailsBefore - As in `SendSlot`. */
const waitText = ({ limitText }: MailboxQueue, mailsBefore: number): string =>
  mailsBefore < 0
    ? "Waiting for an earlier mail to the same recipients."
    : `Rate limit: ${limitText}, most urgent first.${mailsBefore === 0 ? "" : ` ${mailsBefore} mails are sent before this one.`}`;
