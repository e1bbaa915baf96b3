import type { MailSender } from "../azure/mail.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { repeatOnConflict } from "../storage/conflict.ts";
import type { Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../time.ts";
import type { Attempts, Outcome } from "./attempt.ts";
import { type DeliveryRecord, isFinal, itemsIn, type Part } from "./delivery.ts";
import type { DeliveryWriter } from "./delivery-writer.ts";
import { mailOf } from "./email.ts";
import type { History } from "./history.ts";
import type { Links } from "./links.ts";
import { createMailboxes, type MailboxQueue } from "./mailboxes.ts";
import { messageOf } from "./message.ts";
import type { Owners } from "./owners.ts";
import type { PaceLimits } from "./pace.ts";
import { insteadOf, planOf } from "./plan.ts";
import type { AlertRules } from "./rules.ts";
import { createMailDelivery } from "./send-mail.ts";

/** Seconds before a delivery whose mails another worker has in hand is looked at again. */
export const BUSY_SECONDS = 15;
/** Milliseconds in which a worker begins mails: a function has some minutes. A test has as long as somebody waits for it. */
const MAILS_MS = MINUTE_MS;
const TEST_MAILS_MS = 8 * SECOND_MS;
/** A wait that is shown is written anew when it differs by this much. */
const WAIT_DIFFERS_MS = MINUTE_MS;

/** Sends deliveries by mail, through the mailboxes of their recipients. */
export interface MailDeliveries {
  /**
   * Puts a delivery's mails into the mailboxes of their recipients, and sends whatever may be sent now, also of others.
   *
   * @returns Seconds until there is more to do; undefined when it is over.
   * @throws RowChanged
   */
  work(row: Row<DeliveryRecord>): Promise<number | undefined>;
  /** Removes mailboxes that have long been empty. */
  cleanUp(): Promise<void>;
}

export function createMailDeliveries(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  rules: Pick<AlertRules, "find">;
  history: History;
  mail: MailSender | undefined;
  attempts: Attempts;
  writer: DeliveryWriter;
  owners: Pick<Owners, "resolver">;
  limits: PaceLimits;
  ownerMailsPerDay: number;
  /** With the subscriptions' names as they are now. */
  links: () => Promise<Links>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): MailDeliveries {
  const { history } = deps;
  const { write, writeParts, settled, begin, conclude, secondsUntil } = deps.writer;
  const mailboxes = createMailboxes({
    ...deps,
    mails: createMailDelivery(deps),
    compose: async (tellings) => mailOf(messageOf(tellings, await deps.links())),
    tell,
  });

  async function work(given: Row<DeliveryRecord>): Promise<number | undefined> {
    const { deliveryId, test } = given;
    if (given.fallback === undefined) await plan(given);
    const keys = await mailboxes.add(deliveryId);
    await mailboxes.run(test ? TEST_MAILS_MS : MAILS_MS);
    let row = await history.get(deliveryId);
    if (row?.status === "pending") row = await conclude(await waitTold(row, keys));
    if (row?.status !== "pending") return undefined;
    const waits = row.parts.filter((part) => !isFinal(part)).map(({ notBefore }) => secondsUntil(notBefore ?? ""));
    return Math.max(1, Math.min(...waits.map((seconds) => (seconds > 0 ? seconds : BUSY_SECONDS))));
  }

  /** Divides a delivery's items among their owners and the rule's recipients, before any of it is sent. */
  async function plan(row: Row<DeliveryRecord>): Promise<Row<DeliveryRecord>> {
    const fallback = row.parts.flatMap(({ recipients }) => recipients);
    const untouched = row.parts.every(({ status, attempts }) => status === "waiting" && attempts === 0);
    if (!untouched) {
      // An earlier version has begun it.
      const begun = ({ status }: Part) => status === "sending" || status === "accepted";
      return await write(row, {
        fallback,
        parts: row.parts.map((part) => (begun(part) ? { ...part, alone: true } : part)),
      });
    }
    await begin(row);
    const resolve = row.test ? undefined : await deps.owners.resolver();
    return await write(row, { fallback, parts: planOf({ recipients: fallback }, itemsIn(row), resolve) });
  }

  /** The delivery with what its mails wait for, where that is nothing but their turn. */
  async function waitTold(row: Row<DeliveryRecord>, keys: Map<number, string>): Promise<Row<DeliveryRecord>> {
    if (!row.parts.some(({ status }) => status === "waiting")) return row;
    const turns = await mailboxes.turns();
    let differs = false;
    const parts = row.parts.map((part, index) => {
      const turn = part.status === "waiting" ? turns.get(keys.get(index) ?? "") : undefined;
      if (!turn) return part;
      const shownAt = Date.parse(part.notBefore ?? "");
      if (Math.abs(shownAt - turn.at.getTime()) < WAIT_DIFFERS_MS) return part;
      differs = true;
      return { ...part, notBefore: turn.at.toISOString(), waits: waitText(mailboxes, turn.before) };
    });
    return differs ? await writeParts(row, parts) : row;
  }

  /** Writes into a delivery what its mailbox says of one of its parts. What does not reach an owner goes to the others. */
  async function tell(entry: { deliveryId: string; part: number }, mail: Outcome & Pick<Part, "attempts" | "looks">) {
    const replaced = await repeatOnConflict(async () => {
      const row = await history.get(entry.deliveryId);
      const part = row?.parts[entry.part];
      if (!row || !part || row.status !== "pending" || isFinal(part)) return false;
      const { status, attempts, looks, error, notBefore } = mail;
      const outcome = {
        status,
        attempts,
        looks,
        ...(error !== undefined && { error }),
        ...(notBefore && { notBefore }),
      };
      let next = settled(part, outcome);
      const lost = next.status === "failed" && next.owner !== undefined && (row.fallback ?? []).length > 0;
      if (lost) next = { ...next, replaced: true };
      const parts = row.parts.map((one, index) => (index === entry.part ? next : one));
      if (lost) parts.push(...insteadOf(next, { recipients: row.fallback! }, itemsIn(row)));
      await conclude(await writeParts(row, parts));
      return lost;
    });
    if (replaced) await mailboxes.add(entry.deliveryId);
  }

  return { work, cleanUp: () => mailboxes.cleanUp() };
}

const waitText = ({ pace }: MailboxQueue, before: number): string =>
  before < 0
    ? "A mail before it to the same recipients is not over yet."
    : `At most ${pace} are sent, the most urgent first.${before === 0 ? "" : ` ${before} go before this one.`}`;
