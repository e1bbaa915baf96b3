import type { Clock, Logger } from "../runtime.ts";
import type { Settings } from "../settings/settings.ts";
import { isConflict, repeatOnConflict } from "../storage/conflict.ts";
import { keyEnd } from "../storage/keys.ts";
import { insert, type Operation, replace, type Tables } from "../storage/tables.ts";
import { DAY_MS } from "../time.ts";
import { LEASE_MS, type Outcome } from "./attempt.ts";
import { isFinal, itemsIn, itemsOf, operationIdOf } from "./delivery.ts";
import type { MailContent } from "./email.ts";
import type { History } from "./history.ts";
import { URGENCIES } from "./items.ts";
import {
  byRank,
  type Entry,
  holds,
  hurried,
  MAILBOX_PREFIX,
  MAILBOXES,
  type Mailbox,
  Mailboxes,
  type MailboxRecord,
  type MailInHand,
  mailboxKey,
  nextStep,
  sentLastDay,
  toSend,
} from "./mailbox.ts";
import { type Telling, urgencyIn } from "./message.ts";
import { freeAt, isLimited, nextSlots, PACE_ROW, Pace, type PaceLimits, paceText, withSent } from "./pace.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { MailDelivery } from "./send-mail.ts";

/** Operations of one transaction. */
const TRANSACTION = 100;
/** An empty mailbox is kept for so long: a worker may be about to put something in. */
const UNUSED_MS = 2 * DAY_MS;
const CRITICAL = URGENCIES.indexOf("critical");
/** Of a test, for whose mail somebody waits. */
const TEST_URGENCY = CRITICAL;

/** What an entry of a mailbox tells, and the rule as it is now. */
type EntryTelling = Telling & { entry: Entry; rule: RuleRecord | undefined };

/** When a mailbox's next mail may go, and how many go first; -1: it is behind a mail that is not over. */
export interface Turn {
  at: Date;
  before: number;
}

/**
 * The mailboxes of those who get mails. What becomes due for the same recipients while they wait goes out as one mail, and no
 * more mails go out than the limits allow, the most urgent first. All instances work on the same rows; each step of a mail is
 * one transaction, so that whoever finds a mailbox can go on with it, wherever another one died.
 */
export interface MailboxQueue {
  /**
   * Puts the parts of a delivery that wait into their recipients' mailboxes. It may be done again, also by several at once.
   *
   * @returns The mailbox's key of each part that waits, by the part's place.
   */
  add(deliveryId: string): Promise<Map<number, string>>;
  /**
   * Settles what can be settled, and sends what may be sent now.
   *
   * @param budgetMs - No further mail is begun after this.
   */
  run(budgetMs: number): Promise<void>;
  /** When the next mails of mailboxes that only the pace holds up may go, by their keys. At most 3 requests. */
  turns(): Promise<Map<string, Turn>>;
  /** What they wait for, in words. */
  readonly pace: string;
  /** Removes mailboxes that have long been empty. */
  cleanUp(): Promise<void>;
}

export function createMailboxes(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  rules: Pick<AlertRules, "find">;
  history: Pick<History, "get">;
  mails: MailDelivery;
  limits: PaceLimits;
  /** Mails to an owner's address in 24 hours. */
  ownerMailsPerDay: number;
  /** What a mail says. */
  compose(tellings: readonly Telling[]): Promise<MailContent>;
  /** Writes into a delivery what became of its part; nothing happens when that is known already. */
  tell(entry: Entry, mail: Outcome & Pick<MailInHand, "attempts" | "looks">): Promise<void>;
  clock: Clock;
  log: Logger;
}): MailboxQueue {
  const { tables, history, mails, limits, clock, log } = deps;
  const limited = isLimited(limits);

  async function readAll(): Promise<Mailbox[]> {
    const boxes: Mailbox[] = [];
    const range = { partitionKey: MAILBOXES, from: MAILBOX_PREFIX, before: keyEnd(MAILBOX_PREFIX) };
    for await (const rows of tables.pages(Mailboxes, range)) boxes.push(...rows);
    return boxes;
  }

  const readPace = async () => (limited ? await tables.get(Pace, MAILBOXES, PACE_ROW) : undefined);

  const write = (box: Mailbox, change: Partial<MailboxRecord>): Promise<Mailbox> =>
    tables.replace(Mailboxes, { ...box, ...change });

  async function add(deliveryId: string): Promise<Map<number, string>> {
    return await repeatOnConflict(async () => {
      // In this order: a part that was put in, sent and cleared away meanwhile is over by the time it is read here.
      const boxes = new Map((await readAll()).map((box) => [box.rowKey, box]));
      const row = await history.get(deliveryId);
      const all = row ? itemsIn(row) : [];
      const added = new Map<number, string>();
      const changed = new Map<string, MailboxRecord>();
      for (const [index, part] of (row?.parts ?? []).entries()) {
        if (isFinal(part) || (part.status !== "waiting" && !part.alone)) continue;
        const alone = row!.test || part.alone ? `${deliveryId}/${index}` : "";
        const ofOwner = part.owner !== undefined;
        const key = mailboxKey(part.recipients, ofOwner, alone);
        const urgency = row!.test ? TEST_URGENCY : urgencyIn(itemsOf(part, all), new Date(row!.createdAt));
        const entry = { deliveryId, part: index, urgency };
        const box = changed.get(key) ?? boxes.get(key) ?? empty(part.recipients, ofOwner);
        added.set(index, key);
        if (holds(box, entry)) continue;
        if (part.alone) changed.set(key, { ...box, mail: { ...part, entries: [entry] } });
        else {
          const mail = urgency <= CRITICAL ? hurried(box.mail, clock.now()) : box.mail;
          changed.set(key, { ...box, waiting: [...box.waiting, entry], ...(mail && { mail }) });
        }
      }
      const operations = [...changed].map(([key, box]): Operation => {
        const stored = boxes.get(key);
        return stored ? replace(Mailboxes, key, box, stored.etag) : insert(Mailboxes, key, box);
      });
      for (let start = 0; start < operations.length; start += TRANSACTION)
        await tables.transaction(Mailboxes.table, MAILBOXES, operations.slice(start, start + TRANSACTION));
      return added;
    });
  }

  async function run(budgetMs: number): Promise<void> {
    const end = performance.now() + budgetMs;
    const passed = new Set<string>();
    const failures: unknown[] = [];
    while (performance.now() < end) {
      const now = clock.now();
      const boxes = (await readAll()).filter(({ rowKey }) => !passed.has(rowKey)).sort(byRank);
      const step = (box: Mailbox) => nextStep(box, now);
      const box = boxes.find((one) => step(one) === "settle") ?? boxes.find((one) => step(one) === "send");
      if (!box) break;
      try {
        if (step(box) === "settle") await settle(box);
        else {
          const outcome = await send(box, now);
          if (outcome === "paced") break;
          if (outcome === "switchedOff") passed.add(box.rowKey);
        }
      } catch (error) {
        if (isConflict(error)) log.debug("A mailbox is in another worker's hands", { mailbox: box.rowKey });
        else {
          // One mailbox's failure is not the others'.
          passed.add(box.rowKey);
          failures.push(error);
        }
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** What the next mail of a mailbox tells. */
  async function tellingsOf(box: MailboxRecord): Promise<EntryTelling[]> {
    const found: EntryTelling[] = [];
    for (const entry of toSend(box)) {
      const row = await history.get(entry.deliveryId);
      const part = row?.parts[entry.part];
      if (!row || !part || isFinal(part)) continue;
      const { news: _, ...delivery } = row;
      const rule = await deps.rules.find(row.ruleId);
      const { reason, owner } = part;
      found.push({ delivery, items: itemsOf(part, itemsIn(row)), reason, owner, entry, rule });
    }
    return found;
  }

  /** Takes the mail in hand, counted against the pace, and then sends it. */
  async function send(box: Mailbox, now: Date): Promise<"sent" | "leftOut" | "paced" | "switchedOff"> {
    const pace = await readPace();
    const at = now.getTime();
    if (freeAt(pace?.sent ?? [], at, limits) > at) return "paced";
    const tellings = await tellingsOf(box);
    const test = tellings.some(({ delivery }) => delivery.test);
    if (!test && !(await deps.settings.values()).enableNotifications) return "switchedOff";
    const gone = tellings.filter(({ delivery, rule }) => !rule || (!rule.enabled && !delivery.test));
    if (gone.length > 0 || tellings.length < toSend(box).length) {
      await leaveOut(box, tellings, gone);
      return "leftOut";
    }

    const entries = tellings.map(({ entry }) => entry);
    const before = box.mail;
    const mail: MailInHand = {
      ...before,
      recipients: box.recipients,
      operationId: before?.operationId ?? operationIdOf(entries[0]!.deliveryId, entries[0]!.part),
      entries,
      status: "sending",
      attempts: (before?.attempts ?? 0) + 1,
      looks: before?.looks ?? 0,
      leasedUntil: new Date(now.getTime() + LEASE_MS).toISOString(),
    };
    const sent = sentLastDay(box, now);
    if (box.ofOwner && before === undefined && sent.length >= deps.ownerMailsPerDay) {
      const error = `${box.recipients[0]} has had ${sent.length} mails as an owner in 24 hours, and OWNER_MAIL_PER_DAY allows no more.`;
      await finish(await write(box, { waiting: [], mail: { ...mail, status: "failed", error } }));
      return "sent";
    }
    const claim = { ...box, waiting: [], mail, sent: box.ofOwner ? [...sent, at] : [] };
    const operations: Operation[] = [replace(Mailboxes, box.rowKey, claim, box.etag)];
    if (limited) {
      const next = { sent: withSent(pace?.sent ?? [], at) };
      operations.push(pace ? replace(Pace, PACE_ROW, next, pace.etag) : insert(Pace, PACE_ROW, next));
    }
    const content = await deps.compose(tellings);
    const etags = await tables.transaction(Mailboxes.table, MAILBOXES, operations);
    await goOn({ ...claim, etag: etags.get(box.rowKey)! }, await mails.send(mail, content, test));
    return "sent";
  }

  /** Entries whose rule is gone or switched off are told so; those whose delivery is gone, or over, just leave. */
  async function leaveOut(
    box: Mailbox,
    tellings: readonly { entry: Entry }[],
    gone: readonly Pick<EntryTelling, "entry" | "rule">[],
  ): Promise<void> {
    for (const { entry, rule } of gone) {
      const error = rule ? "The rule was disabled before this was sent." : "The rule was deleted before this was sent.";
      await deps.tell(entry, { status: "cancelled", error, attempts: box.mail?.attempts ?? 0, looks: 0 });
    }
    const kept = new Set(
      tellings.filter((one) => !gone.some(({ entry }) => entry === one.entry)).map((one) => one.entry),
    );
    const { mail, ...rest } = box;
    const entries = mail?.entries.filter((entry) => kept.has(entry)) ?? [];
    const waiting = box.waiting.filter((entry) => kept.has(entry));
    await write({ ...rest, waiting, ...(mail && entries.length > 0 && { mail: { ...mail, entries } }) }, {});
  }

  /** Goes on with a mail in hand: what became of it is asked for where that is not known. */
  async function settle(box: Mailbox): Promise<void> {
    const mail = box.mail!;
    if (isFinal(mail)) return await finish(box);
    if (mail.status === "accepted") return await goOn(box, await mails.look(mail));
    const outcome = await mails.settle(mail);
    // The provider knows nothing of it: it may be sent.
    await goOn(box, outcome ?? { status: "waiting" });
  }

  async function goOn(box: Mailbox, outcome: Outcome): Promise<void> {
    const { leasedUntil: _l, notBefore: _n, error: _e, throttled: _t, ...mail } = box.mail!;
    const next = await write(box, { mail: { ...mail, ...outcome } });
    if (isFinal(next.mail!)) return await finish(next);
    for (const entry of next.mail!.entries) await deps.tell(entry, next.mail!);
  }

  /** The deliveries are told first: what a mailbox no longer holds is over. */
  async function finish({ mail, ...box }: Mailbox): Promise<void> {
    for (const entry of mail!.entries) await deps.tell(entry, mail!);
    await write(box, {});
  }

  return {
    add,
    run,
    pace: paceText(limits),

    async turns() {
      const now = clock.now();
      const boxes = await readAll();
      const waiting = boxes.filter((box) => nextStep(box, now) === "send").sort(byRank);
      const held = boxes.flatMap(({ rowKey, mail, waiting: behind }): [string, Turn][] => {
        const until = [mail?.notBefore ?? "", mail?.leasedUntil ?? ""].sort()[1]!;
        return behind.length > 0 && until > now.toISOString() ? [[rowKey, { at: new Date(until), before: -1 }]] : [];
      });
      if (waiting.length === 0) return new Map(held);
      const slots = nextSlots((await readPace())?.sent ?? [], now.getTime(), limits, waiting.length);
      const turnOf = (before: number): Turn => ({ at: new Date(slots[before]!), before });
      return new Map([...held, ...waiting.map(({ rowKey }, at): [string, Turn] => [rowKey, turnOf(at)])]);
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for (const box of await readAll()) {
        if (box.mail || box.waiting.length > 0) continue;
        const aged = await tables.aged(Mailboxes, MAILBOXES, box.rowKey);
        if (
          aged &&
          aged.row.etag === box.etag &&
          aged.ageMs > UNUSED_MS &&
          sentLastDay(box, new Date(now)).length === 0
        )
          await tables.remove(Mailboxes, MAILBOXES, box.rowKey, box.etag);
      }
    },
  };
}

const empty = (recipients: readonly string[], ofOwner: boolean): MailboxRecord => ({
  recipients: [...recipients],
  ofOwner,
  waiting: [],
  sent: [],
});
