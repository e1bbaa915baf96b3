import fc from "fast-check";
import { assert, expect, test } from "vitest";
import {
  type DeliveryRecord,
  deliveryIdOf,
  isFinal,
  operationIdOf,
  type Part,
  statusOf,
} from "../../shared/alerts/delivery.ts";
import { containsEntry, type Entry, entriesToSend, type MailboxRecord } from "../../shared/alerts/mailbox.ts";
import {
  type MailboxEvent,
  type MailProgress,
  mailboxState,
  nextMailbox,
  nextStep,
  partsAfterReport,
} from "../../shared/alerts/mailbox-states.ts";
import { createAttempts, LEASE_MS } from "../../shared/alerts/retry-schedule.ts";
import { createMailDelivery } from "../../shared/alerts/send-mail.ts";
import type { MailAnswer } from "../../shared/platform/azure/mail.ts";
import { pack } from "../../shared/platform/storage/packed-members.ts";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { Reached, VersionedRow } from "../support/random-events.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";

// Drives the states of mails (mailbox-states.ts) with random events: workers that read mailboxes, start mails, crash before or
// after any request or write, and write late; deliveries that are added twice, held and sent after all; rules that are disabled;
// and a mail provider that accepts, refuses, throttles, fails and loses its answers.

/** The first table at the head of mailbox-states.ts, as `state event next state`. */
const MAILBOX_TRANSITIONS = [
  "empty added queued",
  "empty added sending",
  "empty added accepted",
  ...["queued", "waiting", "sending", "accepted", "ended"].map((state) => `${state} added ${state}`),
  ...["queued", "waiting", "sending", "accepted", "ended"].map((state) => `${state} held ${state}`),
  "queued held empty",
  "queued withdrawn queued",
  "queued withdrawn empty",
  ...["waiting", "queued", "empty"].map((state) => `waiting withdrawn ${state}`),
  "queued started sending",
  "waiting started sending",
  "queued started ended",
  ...["waiting", "sending", "accepted", "ended"].map((state) => `sending answered ${state}`),
  ...["sending", "accepted", "ended"].map((state) => `sending lookedUp ${state}`),
  "sending notFound waiting",
  "accepted lookedUp accepted",
  "accepted lookedUp ended",
  "ended reported queued",
  "ended reported empty",
];
/** The second table, as `state next state`. */
const PART_TRANSITIONS = ["waiting", "sending", "accepted"].flatMap((state) =>
  ["waiting", "sending", "accepted", "delivered", "failed", "cancelled", "replaced"].map((next) => `${state} ${next}`),
);
/** A late worker reports an earlier state of the mail. Too rare to be required. */
const LATE_REPORTS = ["sending cancelled", "accepted cancelled", "accepted waiting", "accepted sending"];

/** What the provider does with a new mail. With `lost` it accepts the mail, but its answer is lost. */
const ANSWERS = ["accepted", "refused", "throttled", "unavailable", "unknown", "lost"] as const;
type Answer = (typeof ANSWERS)[number];

const RULE_ADDRESS = "team@example.com";
const OWNER_ADDRESS = "owner@example.com";
const OWNER_MAILS_PER_DAY = 1;
const NO_ITEMS = pack([]);

/** A worker's copy of a mailbox. */
interface Copy {
  key: string;
  value: MailboxRecord;
  version: number;
}
/** The next step of a worker. A crashed worker does nothing more. */
type Job = Copy &
  (
    | { step: "send"; held: boolean }
    | { step: "lookUp" }
    | { step: "report"; entryIndex: number }
    | { step: "write"; next: MailboxRecord }
  );

/** The simulated tables, workers and mail provider. The random number `which` selects among deliveries, mailboxes or workers. */
class Model {
  now = Date.parse("2026-11-01T00:00:00Z");
  readonly deliveries: VersionedRow<DeliveryRecord>[] = [];
  readonly boxes = new Map<string, VersionedRow<MailboxRecord>>();
  readonly activeRules = new Set(["rule-0", "rule-1"]);
  snapshots: Map<string, Copy>[] = [];
  jobs: Job[] = [];
  /** Mails that the provider knows, by operation ID. */
  readonly provider = new Map<string, MailAnswer>();
  /** Number of mails that the provider accepted for each part, by delivery and index. */
  readonly accepted = new Map<string, number>();
  answer: Answer = "accepted";
  isProviderDown = false;
  readonly reached: Reached;
  readonly #mails = createMailDelivery({
    mail: {
      send: async ({ operationId }) => this.#receive(operationId),
      outcome: async (operationId) => this.#find(operationId),
    },
    attempts: createAttempts({
      clock: { now: () => new Date(this.now) },
      randomness: { number: () => 0.5 } as never,
    }),
  });
  #sending: readonly Entry[] = [];

  constructor(reached: Reached) {
    this.reached = reached;
  }

  #receive(operationId: string): MailAnswer {
    const { answer } = this;
    if (answer === "refused") return { kind: "refused", reason: "The address is invalid." };
    if (answer === "throttled") return { kind: "throttled", retryAfterSeconds: 60 };
    if (answer === "unavailable" || answer === "unknown") return { kind: answer, reason: "No answer." };
    assert(!this.provider.has(operationId), "the provider gets no mail twice");
    this.provider.set(operationId, { kind: "accepted" });
    for (const { deliveryId, part } of this.#sending) {
      const count = (this.accepted.get(`${deliveryId}/${part}`) ?? 0) + 1;
      this.accepted.set(`${deliveryId}/${part}`, count);
      assert(count === 1, "no part of a delivery is sent twice");
    }
    return answer === "lost" ? { kind: "unknown", reason: "The connection was cut." } : { kind: "accepted" };
  }

  #find(operationId: string): MailAnswer {
    if (this.isProviderDown) return { kind: "unavailable", reason: "The provider is down." };
    return this.provider.get(operationId) ?? { kind: "notFound" };
  }

  /** A rule sends a new delivery. An earlier version, without mailboxes, has started every tenth or so. */
  deliver(which: number): void {
    if (this.deliveries.length >= 6) return;
    const createdAt = new Date(this.now).toISOString();
    const deliveryId = deliveryIdOf(`rule-${this.deliveries.length}`, new Date(this.now), []);
    const fresh = { status: "waiting", attempts: 0, looks: 0 } as const;
    const toRule: Part = { recipients: [RULE_ADDRESS], ...fresh };
    const toOwner: Part = { recipients: [OWNER_ADDRESS], owner: "owner", ...fresh };
    const status = which % 2 === 0 ? "sending" : "accepted";
    const started: Part = { ...toRule, alone: true, status, attempts: 1, operationId: deliveryId };
    if (which < 2) {
      // The earlier version had sent the mail.
      this.provider.set(deliveryId, { kind: "accepted" });
      this.accepted.set(`${deliveryId}/0`, 1);
    }
    const parts = which < 2 ? [started] : which % 3 === 0 ? [toRule] : which % 3 === 1 ? [toOwner, toRule] : [toOwner];
    const rule = {
      ruleId: `rule-${which % 2}`,
      ruleName: "rule",
      alertType: "expiry",
      deliveryMethod: "email",
    } as const;
    const progress = { status: "pending", parts, fallback: [RULE_ADDRESS], nextAt: createdAt, revivals: 0 } as const;
    const content = {
      deliveryMode: "immediate",
      test: false,
      requestedBy: "system",
      newsTotal: 0,
      news: NO_ITEMS,
    } as const;
    const delivery = { deliveryId, createdAt, ...rule, ...progress, ...content } as unknown as DeliveryRecord;
    this.deliveries.push(new VersionedRow(delivery, this.now));
  }

  find(deliveryId: string): VersionedRow<DeliveryRecord> {
    return this.deliveries.find(({ value }) => value.deliveryId === deliveryId)!;
  }

  /** A worker reads all mailboxes. */
  read(): Map<string, Copy> {
    return new Map([...this.boxes].map(([key, { value, version }]) => [key, { key, value, version }]));
  }

  /** A worker that has read the mailboxes reads a delivery and adds its parts, in one transaction. */
  add(which: number, snapshot = this.read()) {
    const row = this.deliveries[which % Math.max(1, this.deliveries.length)]?.value;
    const changed = new Map<string, Copy & { next: MailboxRecord }>();
    const wasHeld = row?.heldAt !== undefined;
    for (const [part, one] of (row?.parts ?? []).entries()) {
      if (isFinal(one) || (one.status !== "waiting" && !one.alone && !wasHeld)) continue;
      const ofOwner = one.owner !== undefined;
      // The mail of a part that an earlier version started (`alone`), or that a restore held, is in a mailbox of its own.
      const alone = one.alone || wasHeld ? `${row!.deliveryId}/${part}` : "";
      const key = `${one.recipients[0]} ${ofOwner} ${alone}`;
      const entry = { deliveryId: row!.deliveryId, part, urgency: which % 4 };
      if (wasHeld && [...snapshot.values()].some(({ value }) => containsEntry(value, entry))) continue;
      const box = changed.get(key) ??
        snapshot.get(key) ?? { key, version: -1, value: emptyMailbox(one.recipients, ofOwner) };
      const value = changed.get(key)?.next ?? box.value;
      const next = this.apply(value, { type: "added", entry, ...(one.alone && { startedMail: one }) });
      if (next) changed.set(key, { ...box, next });
    }
    const isLate = [...changed.values()].some(({ key, version }) => (this.boxes.get(key)?.version ?? -1) !== version);
    if (isLate) return this.reached.count("late write");
    for (const { key, next } of changed.values()) {
      const stored = this.boxes.get(key);
      if (stored) stored.write(stored.version, next, this.now);
      else this.boxes.set(key, new VersionedRow(next, this.now));
    }
  }

  /** Returns a mailbox after an event, which the table must list. Undefined if the event is rejected. */
  apply(before: MailboxRecord, event: MailboxEvent, now = new Date(this.now)): MailboxRecord | undefined {
    const next = nextMailbox(before, event, now);
    if (!next) {
      this.reached.count(`${event.type} rejected`);
      return undefined;
    }
    const transition = `${mailboxState(before)} ${event.type} ${mailboxState(next)}`;
    this.reached.count(transition);
    assert(MAILBOX_TRANSITIONS.includes(transition), transition);
    const keys = entriesToSend(next).map(({ deliveryId, part }) => `${deliveryId}/${part}`);
    assert(new Set(keys).size === keys.length, "a mailbox has each entry once");
    return next;
  }

  /** A worker that has read the mailboxes runs the due step of one of them. */
  take(which: number, snapshot = this.read()): void {
    const now = new Date(this.now);
    const due = [...snapshot.values()].filter(({ value }) => nextStep(value, now) !== undefined);
    const copy = due[which % Math.max(1, due.length)];
    if (!copy) return;
    if (nextStep(copy.value, now) === "complete") {
      const hasEnded = mailboxState(copy.value) === "ended";
      this.jobs.push(hasEnded ? { ...copy, step: "report", entryIndex: 0 } : { ...copy, step: "lookUp" });
    } else this.start(copy, now);
  }

  start(copy: Copy, now: Date): void {
    const entries = entriesToSend(copy.value);
    const open = entries.filter(({ deliveryId, part }) => {
      const { status, parts } = this.find(deliveryId).value;
      return status === "pending" && !isFinal(parts[part]!);
    });
    const remaining = open.filter(({ deliveryId }) => this.activeRules.has(this.find(deliveryId).value.ruleId));
    for (const entry of open.filter((one) => !remaining.includes(one)))
      this.reportTo(entry, {
        status: "cancelled",
        error: "Disabled.",
        attempts: copy.value.mail?.attempts ?? 0,
        looks: 0,
      });
    if (remaining.length < entries.length) {
      const next = this.apply(copy.value, { type: "withdrawn", remaining }, now);
      this.jobs.push({ ...copy, step: "write", next: next! });
      return;
    }
    const next = this.apply(copy.value, { type: "started", ownerMailsPerDay: OWNER_MAILS_PER_DAY }, now)!;
    const written = this.write(copy, next);
    if (!written) return;
    assert(next.mail!.attempts === (copy.value.mail?.attempts ?? 0) + 1, "each attempt is counted");
    assert(next.waiting.length === 0 && next.mail!.entries.length === entries.length, "a mail has all entries");
    if (isFinal(next.mail!)) this.jobs.push({ ...written, step: "report", entryIndex: 0 });
    else
      this.jobs.push({
        ...written,
        step: "send",
        held: remaining.some((one) => this.find(one.deliveryId).value.heldAt),
      });
  }

  /** Writes a mailbox. Returns the worker's new copy, or undefined if another worker has changed the mailbox. */
  write({ key, value, version }: Copy, next: MailboxRecord): Copy | undefined {
    const written = this.boxes.get(key)!.write(version, next, this.now);
    if (written === undefined) {
      this.reached.count("late write");
      return undefined;
    }
    for (const entry of entriesToSend(value).filter((one) => !containsEntry(next, one))) {
      const { status, parts } = this.find(entry.deliveryId).value;
      const isSettled = isFinal(parts[entry.part]!) || status !== "pending";
      assert(isSettled || this.find(entry.deliveryId).value.heldAt !== undefined, "no entry is lost");
    }
    return { key, value: next, version: written };
  }

  /** A worker runs its next step. */
  async work(which: number, answer: Answer): Promise<void> {
    const [job] = this.jobs.splice(which % Math.max(1, this.jobs.length), 1);
    if (job?.step === "send") await this.send(job, answer);
    else if (job?.step === "lookUp") await this.lookUp(job);
    else if (job?.step === "report") this.report(job);
    else if (job?.step === "write") {
      const written = this.write(job, job.next);
      if (written?.value.mail) this.jobs.push({ ...written, step: "report", entryIndex: 0 });
    }
  }

  async send(job: Job & { step: "send" }, answer: Answer): Promise<void> {
    const mail = job.value.mail!;
    // Every request ends within the lease of its worker.
    if (this.now >= Date.parse(mail.leasedUntil!)) return;
    this.answer = answer;
    this.#sending = mail.entries;
    const known = job.held ? await this.#mails.findOutcome(mail) : undefined;
    if (known) this.reached.count("held mail was sent");
    const outcome = known ?? (await this.#mails.send(mail, { subject: "", html: "", text: "" }, false));
    const next = this.apply(job.value, { type: "answered", outcome })!;
    this.jobs.push({ key: job.key, value: job.value, version: job.version, step: "write", next });
  }

  async lookUp({ key, value, version }: Copy): Promise<void> {
    const mail = value.mail!;
    const find = mail.status === "accepted" ? this.#mails.requestStatus : this.#mails.findOutcome;
    const outcome = await find(mail);
    const next = this.apply(value, outcome ? { type: "lookedUp", outcome } : { type: "notFound" });
    this.jobs.push({ key, value, version, step: "write", next: next! });
  }

  /** Reports the mail to the delivery of one entry. After the last one, removes a mail that has ended. */
  report({ key, value, version, entryIndex }: Job & { step: "report" }): void {
    const entry = value.mail!.entries[entryIndex];
    if (entry) {
      this.reportTo(entry, value.mail!);
      this.jobs.push({ key, value, version, step: "report", entryIndex: entryIndex + 1 });
      return;
    }
    const next = this.apply(value, { type: "reported" });
    assert((next !== undefined) === isFinal(value.mail!), "only a mail that has ended is removed");
    if (next) this.write({ key, value, version }, next);
  }

  reportTo({ deliveryId, part }: Entry, mail: MailProgress) {
    const row = this.find(deliveryId);
    const before = row.value.parts[part]!;
    const parts = partsAfterReport(row.value, part, mail, new Date(this.now));
    if (!parts) return this.reached.count(`${isFinal(before) ? "final part" : "ended delivery"} reported rejected`);
    assert(!isFinal(before), "a final part stays unchanged");
    const next = parts[part]!;
    assert(next.status === mail.status, "the part has the status of its mail");
    assert((next.finishedAt !== undefined) === isFinal(next), "a part that has ended has the time of its end");
    assert(parts.length > row.value.parts.length === (next.replaced === true), "a replaced part has replacements");
    const transition = `${before.status} ${next.replaced ? "replaced" : next.status}`;
    this.reached.count(`part ${transition}`);
    assert(PART_TRANSITIONS.includes(transition), transition);
    const status = parts.every(isFinal) ? statusOf(parts) : row.value.status;
    row.write(row.version, { ...row.value, parts, status }, this.now);
  }

  /** The store is restored: no worker is active, and a delivery is held. */
  hold(which: number): void {
    const row = this.deliveries[which % Math.max(1, this.deliveries.length)];
    if (row?.value.status !== "pending") return;
    this.jobs = [];
    this.snapshots = [];
    row.write(row.version, { ...row.value, status: "inDoubt", heldAt: new Date(this.now).toISOString() }, this.now);
    for (const copy of this.read().values()) {
      const next = this.apply(copy.value, { type: "held", deliveryId: row.value.deliveryId });
      if (next) this.write(copy, next);
    }
  }

  /** A person sends the held deliveries. */
  sendHeld(): void {
    for (const row of this.deliveries)
      if (row.value.status === "inDoubt") row.write(row.version, { ...row.value, status: "pending" }, this.now);
  }

  crash(which: number): void {
    const [job] = this.jobs.splice(which % Math.max(1, this.jobs.length), 1);
    if (job) this.reached.count(`crash before ${job.step}`);
  }

  /** The provider ends the delivery of the mails that it accepted. */
  settle(which: number): void {
    for (const [operationId, { kind }] of this.provider)
      if (kind === "accepted")
        this.provider.set(operationId, which < 4 ? { kind: "failed", reason: "Bounced." } : { kind: "succeeded" });
  }

  /** Works without faults until all deliveries have ended. */
  async finish(): Promise<void> {
    this.sendHeld();
    this.jobs = [];
    this.isProviderDown = false;
    for (const rule of ["rule-0", "rule-1"]) this.activeRules.add(rule);
    const isOver = () =>
      this.deliveries.every(({ value }) => value.status !== "pending") &&
      [...this.boxes.values()].every(({ value }) => mailboxState(value) === "empty");
    for (let round = 0; !isOver(); round++) {
      assert(round < 30, "the deliveries do not end");
      // Longer than the longest pause of the retries, 12 hours.
      this.now += 13 * HOUR_MS;
      // 9: no mail bounces.
      this.settle(9);
      for (const index of this.deliveries.keys()) this.add(index);
      for (const copy of this.read().values())
        if (nextStep(copy.value, new Date(this.now))) this.take(0, new Map([[copy.key, copy]]));
      while (this.jobs.length > 0) await this.work(0, "accepted");
    }
    for (const { value } of this.deliveries) {
      this.reached.count(`ends ${value.status}`);
      for (const [index, part] of value.parts.entries())
        if (part.status === "delivered")
          assert(this.accepted.get(`${value.deliveryId}/${index}`) === 1, "a delivered part was sent");
    }
  }
}

const emptyMailbox = (recipients: string[], ofOwner: boolean): MailboxRecord => ({
  recipients,
  ofOwner,
  waiting: [],
  sent: [],
});

/**
 * Kinds that occur several times are more frequent. `settle`: the provider delivers or bounces its mails. `down`: the provider stops
 * or starts answering status requests. `rule`: a rule is disabled or enabled. `lateStep`: an event that no worker sends in this state.
 */
const COMMANDS = [
  "deliver",
  "add",
  "add",
  "read",
  "take",
  "take",
  "take",
  "work",
  "work",
  "work",
  "work",
  "work",
  "crash",
  "wait",
  "wait",
  "settle",
  "down",
  "rule",
  "hold",
  "sendHeld",
  "lateStep",
] as const;
type Command = { kind: string; which: number; answer: Answer };
const command: fc.Arbitrary<Command> = fc.record({
  kind: fc.constantFrom(...COMMANDS),
  which: fc.nat(20),
  answer: fc.constantFrom(...ANSWERS),
});
/** From shorter than a lease to as long as a day, after which a mail is old. */
const WAITS_MS = [SECOND_MS, LEASE_MS, LEASE_MS, HOUR_MS, 11 * HOUR_MS, DAY_MS];

async function execute(model: Model, { kind, which, answer }: Command): Promise<void> {
  const snapshot = model.snapshots[which % Math.max(1, model.snapshots.length)];
  // A worker mostly reads the mailboxes just before it acts.
  const copies = which % 4 === 0 ? snapshot : undefined;
  if (kind === "deliver") model.deliver(which);
  else if (kind === "add") model.add(which, copies);
  else if (kind === "read") model.snapshots.push(model.read());
  else if (kind === "take") model.take(which, copies);
  else if (kind === "work") await model.work(which, answer);
  else if (kind === "crash") model.crash(which);
  else if (kind === "wait") model.now += WAITS_MS[which % WAITS_MS.length]!;
  else if (kind === "settle") model.settle(which);
  else if (kind === "down") model.isProviderDown = which % 3 === 0;
  else if (kind === "rule") {
    const rule = `rule-${which % 2}`;
    if (which < 4) model.activeRules.delete(rule);
    else model.activeRules.add(rule);
  } else if (kind === "hold") {
    if (which < 5) model.hold(which);
  } else if (kind === "sendHeld") model.sendHeld();
  else {
    // An event that no worker sends in this state.
    const [box] = [...model.boxes.values()].slice(which % Math.max(1, model.boxes.size));
    const late: MailboxEvent[] = [
      { type: "answered", outcome: { status: "delivered" } },
      { type: "lookedUp", outcome: { status: "delivered" } },
      { type: "notFound" } as const,
      { type: "reported" } as const,
      { type: "started", ownerMailsPerDay: OWNER_MAILS_PER_DAY },
    ];
    const event = late[which % late.length]!;
    const isDue = box && nextStep(box.value, new Date(model.now)) !== undefined;
    const isLeased = box?.value.mail?.leasedUntil !== undefined;
    if (box && !isDue && !isLeased) assert(model.apply(box.value, event) === undefined, event.type);
  }
}

test("after any sequence of events each mail is sent at most once, no alert is lost, and mailboxes and deliveries have followed their tables of states", async () => {
  const reached = new Reached();
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 20, maxLength: 120, size: "max" }), async (commands) => {
      const model = new Model(reached);
      // From 3 on, no earlier version has started the delivery.
      model.deliver(3 + (commands.length % 4));
      for (const one of commands) await execute(model, one);
      await model.finish();
    }),
    { numRuns: IS_CAMPAIGN ? 100_000 : 1_500, seed: SEED },
  );
  console.info(`Reached by random mails:\n${reached}`);
  expect(reached.situations).toEqual(
    expect.arrayContaining([
      ...MAILBOX_TRANSITIONS,
      ...PART_TRANSITIONS.filter((one) => !LATE_REPORTS.includes(one)).map((one) => `part ${one}`),
      ...["added", "started", "answered", "lookedUp", "notFound", "reported"].map((event) => `${event} rejected`),
      ...["send", "lookUp", "report", "write"].map((step) => `crash before ${step}`),
      ...["delivered", "partial", "failed", "cancelled"].map((status) => `ends ${status}`),
      "late write",
      "final part reported rejected",
      "held mail was sent",
    ]),
  );
});

test("a mail gets another operation ID after its first alert is removed, because that alert may be sent by itself later", () => {
  const now = new Date("2026-11-01T00:00:00Z");
  const [first, second] = ["A", "B"].map((deliveryId) => ({ deliveryId, part: 0, urgency: 3 })) as [Entry, Entry];
  const queued: MailboxRecord = { ...emptyMailbox([RULE_ADDRESS], false), waiting: [first, second] };
  const sending = nextMailbox(queued, { type: "started", ownerMailsPerDay: 1 }, now)!;
  const waiting = nextMailbox(sending, { type: "answered", outcome: { status: "waiting" } }, now)!;
  const restarted = (remaining: Entry[]) => {
    const box = nextMailbox(waiting, { type: "withdrawn", remaining }, now)!;
    return nextMailbox(box, { type: "started", ownerMailsPerDay: 1 }, now)!.mail!.operationId;
  };
  expect(restarted([first])).toBe(sending.mail!.operationId);
  expect(restarted([second])).toBe(operationIdOf("B", 0));
});

test("a mail to an owner that is sent again counts once against the mails of a day", () => {
  const now = new Date("2026-11-01T00:00:00Z");
  const started = { type: "started", ownerMailsPerDay: 2 } as const;
  const queued: MailboxRecord = {
    ...emptyMailbox([OWNER_ADDRESS], true),
    waiting: [{ deliveryId: "A", part: 0, urgency: 3 }],
  };
  const events: MailboxEvent[] = [
    started,
    { type: "answered", outcome: { status: "waiting" } },
    started,
    { type: "answered", outcome: { status: "delivered" } },
    { type: "reported" },
    { type: "added", entry: { deliveryId: "B", part: 0, urgency: 3 } },
    started,
  ];
  const box = events.reduce((before, event) => nextMailbox(before, event, now)!, queued);
  expect([box.sent, box.mail!.status]).toEqual([[now.getTime(), now.getTime()], "sending"]);
});
