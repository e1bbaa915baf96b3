import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { isFinal, itemsIn, itemsOf, operationIdOf } from "./delivery.ts";
import type { MailContent } from "./email.ts";
import type { History } from "./history.ts";
import { URGENCIES } from "./items.ts";
import {
  freeAt,
  isLimited,
  type MailRateLimits,
  nextSlots,
  PACE_ROW,
  Pace,
  rateLimitText,
  withSent,
} from "./mail-rate-limit.ts";
import {
  byPriority,
  type Entry,
  holds,
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
  withoutRetryDelay,
} from "./mailbox.ts";
import { type MessageSource, urgencyIn } from "./message.ts";
import { LEASE_MS, type Outcome } from "./retry-schedule.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { MailDelivery } from "./send-mail.ts";

/** Operations of one transaction. */
const TRANSACTION = 100;
/** Minimum age of an empty mailbox before removal, because a worker may be about to add an entry. */
const UNUSED_MS = 2 * DAY_MS;
const CRITICAL = URGENCIES.indexOf("critical");
/** Urgency of a test, because a user waits for the mail. */
const TEST_URGENCY = CRITICAL;

/** The content of a mailbox entry, and the current rule. */
type EntryContent = MessageSource & { entry: Entry; rule: RuleRecord | undefined };

/** When a mailbox's next mail can be sent, and how many mails are sent before. -1: an earlier mail of the mailbox is in progress. */
export interface SendSlot {
  at: Date;
  before: number;
}

/** The mailboxes of mail recipients. Entries for the same recipients are combined into one mail. Mails are sent by priority, within
 * the rate limits. All instances share the rows. Each step is one transaction, so any worker can continue after a crash of another.
 */
export interface MailboxQueue {
  /** Adds the waiting parts of a delivery to their recipients' mailboxes. Idempotent and safe to call concurrently.
   *
   * @returns The mailbox key of each waiting part, by the part's index.
   */
  add(deliveryId: string): Promise<Map<number, string>>;
  /** Completes mails with a known outcome, and sends mails that can be sent now.
   *
   * @param budgetMs - Milliseconds after which no further mail is started.
   */
  run(budgetMs: number): Promise<void>;
  /** Returns when mailboxes that only wait for the rate limit can send, by key. At most 3 requests. */
  sendSlots(): Promise<Map<string, SendSlot>>;
  /** The rate limits as text. */
  readonly pace: string;
  /** Removes mailboxes that have been empty for two days. */
  cleanUp(): Promise<void>;
}

/** Creates the mailboxes: each combines the alerts that wait for the same recipients into mails within the rate limit. */
export function createMailboxes(deps: {
  tables: Tables;
  settings: Pick<Settings, "values">;
  rules: Pick<AlertRules, "find">;
  history: Pick<History, "get">;
  mails: MailDelivery;
  limits: MailRateLimits;
  /** Mails to an owner's address in 24 hours. */
  ownerMailsPerDay: number;
  /** Returns the content of a mail. */
  compose(sources: readonly MessageSource[]): Promise<MailContent>;
  /** Writes the outcome of a part into its delivery. Does nothing if the outcome is already known. */
  report(entry: Entry, mail: Outcome & Pick<MailInHand, "attempts" | "looks">): Promise<void>;
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
      // Read in this order: a part that was added, sent and removed meanwhile is then final when the delivery is read.
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
          const mail = urgency <= CRITICAL ? withoutRetryDelay(box.mail, clock.now()) : box.mail;
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
      const boxes = (await readAll()).filter(({ rowKey }) => !passed.has(rowKey)).sort(byPriority);
      const step = (box: Mailbox) => nextStep(box, now);
      const box = boxes.find((one) => step(one) === "settle") ?? boxes.find((one) => step(one) === "send");
      if (!box) break;
      try {
        if (step(box) === "settle") await settle(box);
        else {
          const outcome = await send(box, now);
          if (outcome === "rateLimited") break;
          if (outcome === "turnedOff") passed.add(box.rowKey);
        }
      } catch (error) {
        if (isConflict(error)) log.debug("Another worker is processing the mailbox", { mailbox: box.rowKey });
        else {
          // A failing mailbox must not stop the others.
          passed.add(box.rowKey);
          failures.push(error);
        }
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** Returns the content of the next mail of a mailbox. */
  async function contentsOf(box: MailboxRecord): Promise<EntryContent[]> {
    const found: EntryContent[] = [];
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

  /** Starts a mail, counted against the rate limit, and sends it. */
  async function send(box: Mailbox, now: Date): Promise<"sent" | "removed" | "rateLimited" | "turnedOff"> {
    const pace = await readPace();
    const at = now.getTime();
    if (freeAt(pace?.sent ?? [], at, limits) > at) return "rateLimited";
    const contents = await contentsOf(box);
    const test = contents.some(({ delivery }) => delivery.test);
    if (!test && !(await deps.settings.values()).enableNotifications) return "turnedOff";
    const gone = contents.filter(({ delivery, rule }) => !rule || (!rule.enabled && !delivery.test));
    if (gone.length > 0 || contents.length < toSend(box).length) {
      await removeEntries(box, contents, gone);
      return "removed";
    }

    const entries = contents.map(({ entry }) => entry);
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
      const error = `${box.recipients[0]} already received ${sent.length} mails as an owner in 24 hours, the limit of OWNER_MAIL_PER_DAY.`;
      await finish(await write(box, { waiting: [], mail: { ...mail, status: "failed", error } }));
      return "sent";
    }
    const claim = { ...box, waiting: [], mail, sent: box.ofOwner ? [...sent, at] : [] };
    const operations: Operation[] = [replace(Mailboxes, box.rowKey, claim, box.etag)];
    if (limited) {
      const next = { sent: withSent(pace?.sent ?? [], at) };
      operations.push(pace ? replace(Pace, PACE_ROW, next, pace.etag) : insert(Pace, PACE_ROW, next));
    }
    const content = await deps.compose(contents);
    const etags = await tables.transaction(Mailboxes.table, MAILBOXES, operations);
    await applyOutcome({ ...claim, etag: etags.get(box.rowKey)! }, await mails.send(mail, content, test));
    return "sent";
  }

  /** Removes entries whose delivery is gone or final, and cancels those whose rule was deleted or disabled. */
  async function removeEntries(
    box: Mailbox,
    contents: readonly { entry: Entry }[],
    gone: readonly Pick<EntryContent, "entry" | "rule">[],
  ): Promise<void> {
    for (const { entry, rule } of gone) {
      const error = rule ? "The rule was disabled before this was sent." : "The rule was deleted before this was sent.";
      await deps.report(entry, { status: "cancelled", error, attempts: box.mail?.attempts ?? 0, looks: 0 });
    }
    const remaining = new Set(
      contents.filter((one) => !gone.some(({ entry }) => entry === one.entry)).map((one) => one.entry),
    );
    const { mail, ...rest } = box;
    const entries = mail?.entries.filter((entry) => remaining.has(entry)) ?? [];
    const waiting = box.waiting.filter((entry) => remaining.has(entry));
    await write({ ...rest, waiting, ...(mail && entries.length > 0 && { mail: { ...mail, entries } }) }, {});
  }

  /** Completes a mail in progress. Requests the outcome from the provider if it is unknown. */
  async function settle(box: Mailbox): Promise<void> {
    const mail = box.mail!;
    if (isFinal(mail)) return await finish(box);
    if (mail.status === "accepted") return await applyOutcome(box, await mails.requestStatus(mail));
    const outcome = await mails.settle(mail);
    // The provider does not know the mail, so it can be sent.
    await applyOutcome(box, outcome ?? { status: "waiting" });
  }

  async function applyOutcome(box: Mailbox, outcome: Outcome): Promise<void> {
    const { leasedUntil: _l, notBefore: _n, error: _e, throttled: _t, ...mail } = box.mail!;
    const next = await write(box, { mail: { ...mail, ...outcome } });
    if (isFinal(next.mail!)) return await finish(next);
    for (const entry of next.mail!.entries) await deps.report(entry, next.mail!);
  }

  /** Writes the outcome to the deliveries before removing the mail, so that entries without a mailbox are final. */
  async function finish({ mail, ...box }: Mailbox): Promise<void> {
    for (const entry of mail!.entries) await deps.report(entry, mail!);
    await write(box, {});
  }

  return {
    add,
    run,
    pace: rateLimitText(limits),

    async sendSlots() {
      const now = clock.now();
      const boxes = await readAll();
      const waiting = boxes.filter((box) => nextStep(box, now) === "send").sort(byPriority);
      const reserved = boxes.flatMap(({ rowKey, mail, waiting: behind }): [string, SendSlot][] => {
        const until = [mail?.notBefore ?? "", mail?.leasedUntil ?? ""].sort()[1]!;
        return behind.length > 0 && until > now.toISOString() ? [[rowKey, { at: new Date(until), before: -1 }]] : [];
      });
      if (waiting.length === 0) return new Map(reserved);
      const slots = nextSlots((await readPace())?.sent ?? [], now.getTime(), limits, waiting.length);
      const slotOf = (before: number): SendSlot => ({ at: new Date(slots[before]!), before });
      return new Map([...reserved, ...waiting.map(({ rowKey }, at): [string, SendSlot] => [rowKey, slotOf(at)])]);
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for (const box of await readAll()) {
        if (box.mail || box.waiting.length > 0) continue;
        const aged = await tables.getWithAge(Mailboxes, MAILBOXES, box.rowKey);
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
