import type { Clock, Logger } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { insert, type Operation, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { isFinal, itemsIn, itemsOf } from "./delivery.ts";
import type { MailContent } from "./email.ts";
import { addToMailboxes, readMailboxes } from "./fill-mailboxes.ts";
import type { History } from "./history.ts";
import {
  isLimited,
  type MailRateLimits,
  nextFreeTime,
  nextSlots,
  rateLimitText,
  SENT_MAIL_TIMES_ROW,
  SentMailTimes,
  withSent,
} from "./mail-rate-limit.ts";
import {
  byPriority,
  type Entry,
  entriesToSend,
  MAILBOXES,
  type Mailbox,
  Mailboxes,
  type MailboxRecord,
  sentLastDay,
} from "./mailbox.ts";
import { type MailProgress, nextMailbox, nextStep } from "./mailbox-states.ts";
import type { MessageSource } from "./message.ts";
import type { Outcome } from "./retry-schedule.ts";
import type { RuleRecord } from "./rule.ts";
import type { AlertRules } from "./rules.ts";
import type { MailDelivery } from "./send-mail.ts";

/** Minimum age of an empty mailbox before removal, because a worker may be about to add an entry. */
const UNUSED_MS = 2 * DAY_MS;

/** The content of a mailbox entry, and the current rule. */
type EntryContent = MessageSource & { entry: Entry; rule: RuleRecord | undefined };

/** When a mailbox's next mail can be sent. */
export interface SendSlot {
  at: Date;
  /** Number of mails of other mailboxes that are sent earlier. -1: an earlier mail of this mailbox is in progress. */
  mailsBefore: number;
}

/**
 * The mailboxes of mail recipients. Entries for the same recipients are combined into one mail. Mails are sent by priority,
 * within the rate limits. All instances share the rows. Each step is one transaction, so any worker can continue after a crash
 * of another.
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
  readonly limitText: string;
  /** Removes mailboxes that have been empty for two days. */
  cleanUp(): Promise<void>;
}

interface MailboxDeps {
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
  /**
   * Writes the outcome of a part into its delivery. Does nothing if the outcome is already known.
   */
  report(entry: Entry, mail: MailProgress): Promise<void>;
  clock: Clock;
  log: Logger;
}

/** Creates the mailboxes: each combines the alerts that wait for the same recipients into mails within the rate limit. */
export function createMailboxes(deps: MailboxDeps): MailboxQueue {
  const { tables, history, limits, clock } = deps;
  return {
    add: (deliveryId) => addToMailboxes({ tables, history, clock }, deliveryId),
    run: (budgetMs) => runDue(deps, budgetMs),
    limitText: rateLimitText(limits),

    async sendSlots() {
      const now = clock.now();
      const boxes = await readMailboxes(tables);
      const waiting = boxes.filter((box) => nextStep(box, now) === "send").sort(byPriority);
      // Mailboxes whose entries wait for the mail in progress, until the later of its next attempt and the end of its lease.
      const reserved = boxes.flatMap(({ rowKey, mail, waiting: entries }): [string, SendSlot][] => {
        const until = [mail?.notBefore ?? "", mail?.leasedUntil ?? ""].sort()[1]!; // the later one
        return entries.length > 0 && until > now.toISOString()
          ? [[rowKey, { at: new Date(until), mailsBefore: -1 }]]
          : [];
      });
      if (waiting.length === 0) return new Map(reserved);
      const slots = nextSlots((await readSentMailTimes(deps))?.sent ?? [], now.getTime(), limits, waiting.length);
      const slotOf = (mailsBefore: number): SendSlot => ({ at: new Date(slots[mailsBefore]!), mailsBefore });
      return new Map([...reserved, ...waiting.map(({ rowKey }, index): [string, SendSlot] => [rowKey, slotOf(index)])]);
    },

    async cleanUp() {
      const now = clock.now().getTime();
      for (const box of await readMailboxes(tables)) {
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

/** Runs the due steps of all mailboxes, each step of `nextStep` by `complete` or `send`. */
async function runDue(deps: MailboxDeps, budgetMs: number): Promise<void> {
  const { tables, clock, log } = deps;
  const deadline = performance.now() + budgetMs;
  /** Mailboxes that are not processed again in this run, because they failed or notifications are turned off. */
  const skipped = new Set<string>();
  const failures: unknown[] = [];
  while (performance.now() < deadline) {
    const now = clock.now();
    const boxes = (await readMailboxes(tables)).filter(({ rowKey }) => !skipped.has(rowKey)).sort(byPriority);
    const step = (box: Mailbox) => nextStep(box, now);
    const box =
      // First the mails in progress, whose outcome is known or can be requested.
      boxes.find((candidate) => step(candidate) === "complete") ??
      boxes.find((candidate) => step(candidate) === "send");
    if (!box) break;
    try {
      if (step(box) === "complete") await complete(deps, box, now);
      else {
        const outcome = await send(deps, box, now);
        if (outcome === "rateLimited") break;
        if (outcome === "turnedOff") skipped.add(box.rowKey);
      }
    } catch (error) {
      if (isConflict(error)) log.debug("Another worker is processing the mailbox", { mailbox: box.rowKey });
      else {
        // A failing mailbox must not stop the others.
        skipped.add(box.rowKey);
        failures.push(error);
      }
    }
  }
  if (failures.length > 0) throw failures[0];
}

/**
 * Starts a mail, counted against the rate limit, and sends it. `sent`: the attempt has an outcome. `removed`: nothing was sent,
 * because entries were removed from the mailbox; its next step is found again. `turnedOff`: notifications are off.
 */
async function send(
  deps: MailboxDeps,
  box: Mailbox,
  now: Date,
): Promise<"sent" | "removed" | "rateLimited" | "turnedOff"> {
  const { tables, mails, limits, ownerMailsPerDay } = deps;
  const sentTimes = await readSentMailTimes(deps);
  const nowMs = now.getTime();
  if (nextFreeTime(sentTimes?.sent ?? [], nowMs, limits) > nowMs) return "rateLimited";
  const contents = await contentsOf(deps, box);
  const test = contents.some(({ delivery }) => delivery.test);
  if (!test && !(await deps.settings.values()).enableNotifications) return "turnedOff";
  const cancelled = contents.filter(({ delivery, rule }) => !rule || (!rule.enabled && !delivery.test));
  if (cancelled.length > 0 || contents.length < entriesToSend(box).length) {
    await withdraw(deps, box, { contents, cancelled }, now);
    return "removed";
  }
  // Not undefined: `send` is the mailbox's next step.
  const started = nextMailbox(box, { type: "started", ownerMailsPerDay }, now)!;
  const mail = started.mail!;
  // The owner already received the maximum number of mails of a day, so this one ends without an attempt.
  if (isFinal(mail)) {
    await finish(deps, await tables.replace(Mailboxes, started), now);
    return "sent";
  }
  const operations: Operation[] = [replace(Mailboxes, box.rowKey, started, box.etag)];
  if (isLimited(limits)) {
    const next = { sent: withSent(sentTimes?.sent ?? [], nowMs) };
    operations.push(
      sentTimes
        ? replace(SentMailTimes, SENT_MAIL_TIMES_ROW, next, sentTimes.etag)
        : insert(SentMailTimes, SENT_MAIL_TIMES_ROW, next),
    );
  }
  // Before the transaction, so that a failure here counts neither as an attempt nor against the rate limit.
  const content = await deps.compose(contents);
  const etags = await tables.transaction(Mailboxes.table, MAILBOXES, operations);
  // The mail of a delivery that was held after a restore may have been sent under this operation id.
  const wasHeld = contents.some(({ delivery }) => delivery.heldAt !== undefined);
  const earlierOutcome = wasHeld ? await mails.findOutcome(mail) : undefined;
  const outcome = earlierOutcome ?? (await mails.send(mail, content, test));
  const sending = { ...started, etag: etags.get(box.rowKey)! };
  await writeOutcome(deps, nextMailbox(sending, { type: "answered", outcome }, now)!, now);
  return "sent";
}

/** Completes a mail in progress. Requests the outcome from the provider if it is unknown. */
async function complete(deps: MailboxDeps, box: Mailbox, now: Date): Promise<void> {
  const mail = box.mail!;
  if (isFinal(mail)) return await finish(deps, box, now);
  const find = mail.status === "accepted" ? deps.mails.requestStatus : deps.mails.findOutcome;
  const outcome: Outcome | undefined = await find(mail);
  const event = outcome ? ({ type: "lookedUp", outcome } as const) : ({ type: "notFound" } as const);
  // Not undefined: `complete` is the mailbox's next step.
  await writeOutcome(deps, nextMailbox(box, event, now)!, now);
}

/** Writes the outcome of an attempt or of a request to the provider into the mailbox, then into the deliveries. */
async function writeOutcome(deps: MailboxDeps, box: Mailbox, now: Date): Promise<void> {
  const written = await deps.tables.replace(Mailboxes, box);
  if (isFinal(written.mail!)) return await finish(deps, written, now);
  for (const entry of written.mail!.entries) await deps.report(entry, written.mail!);
}

/** Writes the outcome to the deliveries and then removes the mail, so that the parts of removed entries are final. */
async function finish(deps: MailboxDeps, box: Mailbox, now: Date): Promise<void> {
  for (const entry of box.mail!.entries) await deps.report(entry, box.mail!);
  await deps.tables.replace(Mailboxes, nextMailbox(box, { type: "reported" }, now)!);
}

/** Removes entries whose delivery was deleted or is final, and cancels those whose rule was deleted or disabled. */
async function withdraw(
  deps: MailboxDeps,
  box: Mailbox,
  { contents, cancelled }: { contents: readonly EntryContent[]; cancelled: readonly EntryContent[] },
  now: Date,
): Promise<void> {
  for (const { entry, rule } of cancelled) {
    const error = rule ? "The rule was disabled before this was sent." : "The rule was deleted before this was sent.";
    await deps.report(entry, { status: "cancelled", error, attempts: box.mail?.attempts ?? 0, looks: 0 });
  }
  const remaining = contents.filter((content) => !cancelled.includes(content)).map(({ entry }) => entry);
  await deps.tables.replace(Mailboxes, nextMailbox(box, { type: "withdrawn", remaining }, now)!);
}

/** Returns the content of the next mail of a mailbox. */
async function contentsOf({ history, rules }: MailboxDeps, box: MailboxRecord): Promise<EntryContent[]> {
  const contents: EntryContent[] = [];
  for (const entry of entriesToSend(box)) {
    const row = await history.get(entry.deliveryId);
    const part = row?.parts[entry.part];
    if (row?.status !== "pending" || !part || isFinal(part)) continue;
    const { news: _, ...delivery } = row;
    const rule = await rules.find(row.ruleId);
    const { reason, owner } = part;
    contents.push({ delivery, items: itemsOf(part, itemsIn(row)), reason, owner, entry, rule });
  }
  return contents;
}

async function readSentMailTimes({ tables, limits }: MailboxDeps) {
  return isLimited(limits) ? await tables.get(SentMailTimes, MAILBOXES, SENT_MAIL_TIMES_ROW) : undefined;
}
