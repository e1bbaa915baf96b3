import fc from "fast-check";
import { expect, test } from "vitest";
import { isFinal, type Part } from "../../shared/alerts/delivery.ts";
import { nextPart, type PartEvent } from "../../shared/alerts/part-states.ts";
import { BACK_OFF_SECONDS, createAttempts, LEASE_MS, type Outcome } from "../../shared/alerts/retry-schedule.ts";
import { HOUR_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { Reached, VersionedRow } from "../support/random-events.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";

// Drives the states of a webhook's message (part-states.ts) with random events: workers that read, send, crash before or after the
// request, and write late; duplicate queue messages; receivers that accept, reject, fail or lose their answer; and rules that are
// disabled or deleted.

/** The table at the head of part-states.ts, as `state event next state`. */
const TRANSITIONS = [
  "waiting due sending",
  "waiting due cancelled",
  "sending due sending",
  "sending due cancelled",
  "sending answered delivered",
  "sending answered waiting",
  "sending answered failed",
];

/** What the receiver does with a request. `lost`: it has the message, and its answer is lost. */
const ANSWERS = ["accepted", "rejected", "unavailable", "lost"] as const;
type Answer = (typeof ANSWERS)[number];

/** A worker's copy of the part. `sent` says whether its request has reached the receiver. */
interface Worker {
  value: Part;
  version: number;
  sent?: Answer;
}

/** The stored part of a delivery, its workers and its receiver. The random number `which` selects a worker. */
class Model {
  now = Date.parse("2026-11-01T00:00:00Z");
  rule: (PartEvent & { type: "due" })["rule"] = "active";
  readonly row: VersionedRow<Part>;
  /** Copies of the part that workers read for a queue message, and that they have not used yet. */
  readonly readers: Worker[] = [];
  /** Workers that wrote `sending`. A crashed worker is removed. */
  readonly senders: Worker[] = [];
  /** Number of messages that the receiver has. */
  received = 0;
  readonly reached: Reached;
  readonly #attempts = createAttempts({
    clock: { now: () => new Date(this.now) },
    randomness: { number: () => 0.5 } as never,
  });

  constructor(reached: Reached) {
    this.reached = reached;
    // `looks` counts the requests for the status of an accepted mail, so it stays 0 for a webhook.
    const part: Part = { recipients: ["hooks.example"], status: "waiting", attempts: 0, looks: 0 };
    this.row = new VersionedRow(part, this.now);
  }

  /** A worker receives a queue message and reads the part. */
  read(): void {
    this.readers.push({ value: this.row.value, version: this.row.version });
  }

  /** Writes the part of a worker after an event. Returns false if the event or the write is rejected. */
  apply(worker: Worker, event: PartEvent): boolean {
    const before = worker.value;
    const next = nextPart(before, event, new Date(this.now));
    if (next === undefined) {
      this.reached.count(`${before.status} ${event.type} rejected`);
      return false;
    }
    const version = this.row.write(worker.version, next, this.now);
    if (version === undefined) {
      this.reached.count("late write");
      return false;
    }
    const transition = `${before.status} ${event.type} ${next.status}`;
    this.reached.count(transition);
    expect(TRANSITIONS).toContain(transition);
    expect(isFinal(before), "a final part stays unchanged").toBe(false);
    expect(next.finishedAt !== undefined).toBe(isFinal(next));
    expect(next.leasedUntil !== undefined).toBe(next.status === "sending");
    expect(next.attempts).toBe(before.attempts + (next.status === "sending" ? 1 : 0));
    if (before.status === "sending" && event.type === "due" && next.status === "sending")
      expect(next.mayBeRepeated).toBe(true);
    Object.assign(worker, { value: next, version });
    return true;
  }

  /** A worker that has read the part starts its due step. */
  start(which: number): void {
    const [reader] = this.readers.splice(which % Math.max(1, this.readers.length), 1);
    if (!reader) return;
    const leased = this.row.value.status === "sending" && Date.parse(this.row.value.leasedUntil!) > this.now;
    const isTaken = this.apply(reader, { type: "due", rule: this.rule });
    if (isTaken) expect(leased, "no worker takes over a lease that has not expired").toBe(false);
    if (isTaken && reader.value.status === "sending") this.senders.push(reader);
  }

  /** A worker sends its request. Each request ends within the lease of its worker. */
  send(which: number, answer: Answer): void {
    const sender = this.senders[which % Math.max(1, this.senders.length)];
    if (!sender || sender.sent || this.now >= Date.parse(sender.value.leasedUntil!)) return;
    sender.sent = answer;
    if (answer === "accepted" || answer === "lost") {
      this.received++;
      if (this.received > 1) {
        this.reached.count("received again");
        expect(sender.value.attempts).toBeGreaterThan(1);
      }
    }
  }

  /** A worker writes the answer of the receiver. */
  answer(which: number): void {
    const senderIndex = which % Math.max(1, this.senders.length);
    const sender = this.senders[senderIndex];
    if (!sender?.sent) return;
    this.senders.splice(senderIndex, 1);
    const outcomes: Record<Answer, () => Outcome> = {
      accepted: () => ({ status: "delivered", answer: { status: 200, body: "" } }),
      rejected: () => ({ status: "failed", error: "The receiver answered 410." }),
      unavailable: () => this.#attempts.retry(sender.value, false, "The receiver answered 503."),
      lost: () => this.#attempts.retry(sender.value, false, "The connection was cut."),
    };
    const answered = this.apply(sender, { type: "answered", outcome: outcomes[sender.sent]() });
    if (answered && sender.value.status === "delivered") expect(this.received).toBeGreaterThan(0);
  }

  crash(which: number): void {
    const [crashed] = this.senders.splice(which % Math.max(1, this.senders.length), 1);
    if (crashed) this.reached.count(crashed.sent ? "crash after the request" : "crash before the request");
  }

  /** Works without faults until the part is final. */
  finish(): void {
    this.rule = "active";
    this.senders.length = 0;
    for (let steps = 0; !isFinal(this.row.value); steps++) {
      expect(steps, "the part does not end").toBeLessThan(BACK_OFF_SECONDS.length + 2);
      // The longest pause of the retries: 10 hours, and up to 20 % more.
      this.now += 12 * HOUR_MS;
      this.readers.length = 0;
      this.read();
      this.start(0);
      expect(this.row.value.status).toBe("sending");
      this.send(0, "accepted");
      this.answer(0);
    }
    const { status, mayBeRepeated, attempts } = this.row.value;
    this.reached.count(`ends ${status}`);
    if (status === "delivered") expect(this.received).toBeGreaterThan(0);
    if (attempts === 1) expect(mayBeRepeated).toBeUndefined();
  }
}

/** Kinds that occur twice are more frequent. `wait`: time passes. `rule`: the rule is disabled, deleted or active again. */
const EVENTS = ["read", "read", "start", "start", "send", "send", "answer", "answer", "crash", "wait", "rule"] as const;
const events = fc.array(
  fc.record({ kind: fc.constantFrom(...EVENTS), which: fc.nat(20), answer: fc.constantFrom(...ANSWERS) }),
  { maxLength: 80, size: "max" },
);
/** From shorter than a lease to as long as the longest pause of the retries. */
const WAITS_MS = [SECOND_MS, LEASE_MS, HOUR_MS, 11 * HOUR_MS];

function execute(
  model: Model,
  { kind, which, answer }: { kind: (typeof EVENTS)[number]; which: number; answer: Answer },
) {
  if (kind === "read") model.read();
  else if (kind === "start") model.start(which);
  // A rejection ends the part, so most of them become another answer.
  else if (kind === "send") model.send(which, which < 14 && answer === "rejected" ? "unavailable" : answer);
  else if (kind === "answer") model.answer(which);
  else if (kind === "crash") model.crash(which);
  else if (kind === "wait") model.now += WAITS_MS[which % WAITS_MS.length]!;
  // The kind `rule` changes the rule in 3 of 21 cases.
  else if (which < 3) model.rule = (["active", "disabled", "deleted"] as const)[which]!;
}

test("after any sequence of events a webhook's message ends, is sent by one worker at a time, and never changes after its end", () => {
  const reached = new Reached();
  fc.assert(
    fc.property(events, (all) => {
      const model = new Model(reached);
      for (const event of all) execute(model, event);
      model.finish();
    }),
    { numRuns: IS_CAMPAIGN ? 100_000 : 3_000, seed: SEED },
  );
  console.info(`Reached by random deliveries:\n${reached}`);
  expect(reached.situations).toEqual(
    expect.arrayContaining([
      ...TRANSITIONS,
      "sending due rejected",
      "waiting due rejected",
      "delivered due rejected",
      "late write",
      "received again",
      "crash before the request",
      "crash after the request",
      ...["delivered", "failed", "cancelled"].map((status) => `ends ${status}`),
    ]),
  );
});
