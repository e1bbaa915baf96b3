import fc from "fast-check";
import { assert, expect, test } from "vitest";
import {
  CLAIMED,
  claimedKey,
  DONE,
  handedOffKey,
  indexText,
  isHandedOff,
  type PlannedVault,
} from "../../shared/discovery/scan.ts";
import {
  changesOf,
  LEASE_MS,
  LOST_MESSAGE_MS,
  nextVault,
  PLAN_WORKER,
  plannedVault,
  type ScanVault,
  type VaultEvent,
  vaultState,
} from "../../shared/discovery/vault-states.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { Reached } from "../support/random-events.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";

// Drives the states of a scan's vaults (vault-states.ts) with random events. Workers do what scan-worker.ts does, step by step:
// they start vaults, hand them off, end them, claim the next one, send messages, crash, write late, and lose answers of storage.
// Messages are delivered twice, redelivered or lost, and a timer (the watch) sends lost ones again.

/** The table at the head of vault-states.ts, as `state event next state`. */
const TRANSITIONS = [
  "waiting claimed scanning",
  "waiting claimed queued",
  "queued started scanning",
  "scanning started scanning",
  "scanning handedOff scanning",
  "scanning renewed scanning",
  "queued renewed scanning",
  "scanning released queued",
  "queued released queued",
  "scanning workerFailed queued",
  "scanning watched queued",
  "queued watched queued",
  "scanning ended done",
  "queued ended done",
  // By a late worker, whose vault was queued again meanwhile.
  "queued handedOff scanning",
];

/** The platform redelivers the message of a crashed process after this time. */
const INVISIBLE_MS = 10 * MINUTE_MS;
/** The platform moves a message that failed this many times to the poison queue. */
const MAX_DELIVERIES = 5;

/** A queue message. `index` is that of a vault in the plan, or undefined for the message that planned the scan. */
interface Message {
  index: string | undefined;
  deliveries: number;
  visibleAt: number;
}
/** A row as a worker read it. */
interface Copy {
  vault: ScanVault;
  version: number;
}
/** A worker and the step that it takes next. */
interface Worker {
  message: Message;
  name: string;
  step: "start" | "read" | "end" | "release" | "send" | "finish";
  /** The worker's vault. Only the step `start` compares the version, so it is -1 afterwards. */
  claim: Copy;
  /** A vault that was handed off and is not written yet. */
  background?: ScanVault | undefined;
  /** The waiting vault that the worker claims next. */
  candidate?: Copy | undefined;
  hasManyChanges: boolean;
}
/** The change of a vault's row by an event. With a `version`, the change requires that version of the row. */
interface Move {
  before: ScanVault;
  event: VaultEvent;
  after: ScanVault;
  version?: number;
}

/** The simulated rows, messages and workers of a scan. The random number `which` selects among them. */
class Model {
  now = 0;
  readonly rows = new Map<string, Copy & { writtenAt: number }>();
  /** Maximum number of workers. */
  readonly slots: number;
  messages: Message[] = [];
  workers: Worker[] = [];
  isOver = false;
  readonly reached: Reached;

  constructor(vaults: number, slots: number, reached: Reached) {
    this.reached = reached;
    this.slots = Math.min(slots, vaults);
    const planned: PlannedVault = { name: "kv", subscriptionId: "s1", action: "scan" };
    const message: Message = { index: undefined, deliveries: 1, visibleAt: INVISIBLE_MS };
    this.messages.push(message);
    for (let index = 0; index < vaults; index++) {
      const waiting = plannedVault(indexText(index), planned);
      this.rows.set(waiting.rowKey, { vault: waiting, version: 0, writtenAt: 0 });
      if (index >= slots) continue;
      // The plan's own invocation scans the first vault. A message starts a worker for each further slot.
      const claim = this.update(waiting, { type: "claimed", worker: index === 0 ? PLAN_WORKER : undefined })!;
      if (index === 0) this.workers.push(worker(message, PLAN_WORKER, { vault: claim, version: -1 }, "read"));
      else this.send(claim.index);
    }
  }

  send(index: string): void {
    this.messages.push({ index, deliveries: 0, visibleAt: this.now });
  }

  get claimed(): (Copy & { writtenAt: number })[] {
    return [...this.rows.values()].filter(({ vault: { rowKey } }) => rowKey >= CLAIMED && rowKey < DONE);
  }

  /** Writes vaults in one transaction, as `vaultOperations` does. Returns false if storage rejects it. */
  transact(moves: readonly Move[]): boolean {
    const isAccepted = moves.every(({ before, after, version }) => {
      const stored = this.rows.get(before.rowKey);
      const isFree = after.rowKey === before.rowKey || !this.rows.has(after.rowKey);
      return stored && isFree && (version === undefined || version === stored.version);
    });
    if (!isAccepted) {
      this.reached.count("late write");
      return false;
    }
    for (const { before, event, after } of moves) {
      const stored = this.rows.get(before.rowKey)!;
      const isMoved = after.rowKey !== before.rowKey;
      const vault = isMoved
        ? after
        : { ...stored.vault, vault: { ...stored.vault.vault, ...changesOf(before, after) } };
      const transition = `${vaultState(stored.vault)} ${event.type} ${vaultState(vault)}`;
      this.reached.count(transition);
      assert(TRANSITIONS.includes(transition), transition);
      this.rows.delete(before.rowKey);
      this.rows.set(after.rowKey, { vault, version: stored.version + 1, writtenAt: this.now });
    }
    const indexes = [...this.rows.values()].map(({ vault }) => vault.index);
    assert(new Set(indexes).size === indexes.length, "each vault has one row");
    const reading = this.claimed.filter(({ vault }) => !isHandedOff(vault.rowKey));
    assert(reading.length <= this.slots, "no more vaults are read than there are slots");
    return true;
  }

  /** Applies an event to a worker's copy and writes it. Returns the vault; undefined if the event or the write is rejected. */
  update(before: ScanVault, event: VaultEvent, version?: number): ScanVault | undefined {
    const after = nextVault(before, event);
    if (!after) {
      this.reached.count(`${event.type} rejected`);
      return undefined;
    }
    return this.transact([{ before, event, after, ...(version !== undefined && { version }) }]) ? after : undefined;
  }

  findWaiting(which: number): Copy | undefined {
    const waiting = [...this.rows.values()].filter(({ vault }) => vaultState(vault) === "waiting");
    const found = waiting[which % Math.max(1, waiting.length)];
    return found && { vault: found.vault, version: found.version };
  }

  resendClaimed(name: string, except?: string): number {
    const { claimed } = this;
    for (const { vault } of claimed) {
      if (vault.index === except || !nextVault(vault, { type: "workerFailed", worker: name })) continue;
      if (vaultState(vault) === "scanning") this.update(vault, { type: "workerFailed", worker: name });
      this.send(vault.index);
    }
    return claimed.length;
  }

  finishIfLast(which: number): void {
    if (this.claimed.length > 0 || this.isOver) return;
    const waiting = this.findWaiting(which);
    if (waiting) {
      this.reached.count("worker restarted");
      this.update(waiting.vault, { type: "claimed", worker: undefined }, waiting.version);
      // A crash before the message is found by the watch.
      if (which % 2 === 0) this.send(waiting.vault.index);
      return;
    }
    this.isOver = true;
    assert(
      [...this.rows.values()].every(({ vault }) => vaultState(vault) === "done"),
      "the scan ends with its last vault",
    );
  }

  remove(message: Message): void {
    this.messages = this.messages.filter((one) => one !== message);
  }

  /** The platform delivers a message. */
  receive(which: number) {
    const visible = this.messages.filter(({ visibleAt }) => visibleAt <= this.now);
    const message = visible[which % Math.max(1, visible.length)];
    if (!message) return;
    const { index } = message;
    message.deliveries++;
    message.visibleAt = this.now + INVISIBLE_MS;
    const isRedelivered = message.deliveries > 1;
    if (index === undefined) {
      this.remove(message);
      if (this.resendClaimed(PLAN_WORKER) === 0) this.finishIfLast(which);
      return;
    }
    const row = this.rows.get(claimedKey(index)) ?? this.rows.get(handedOffKey(index));
    if (message.deliveries > MAX_DELIVERIES) return this.poison(message, row, which);
    if (!row) {
      this.remove(message);
      if (isRedelivered) this.resendClaimed(index);
      return this.finishIfLast(which);
    }
    const { vault, version } = row;
    if (!nextVault(vault, { type: "started", worker: index, redelivered: isRedelivered })) {
      this.reached.count("started rejected");
      return this.remove(message);
    }
    if (isRedelivered && isHandedOff(vault.rowKey)) this.resendClaimed(index, index);
    this.workers.push(worker(message, index, { vault, version }, "start"));
  }

  /** Five deliveries failed: the vault ends as failed. */
  poison(message: Message, row: Copy | undefined, which: number) {
    this.reached.count("message failed for good");
    this.remove(message);
    const name = message.index!;
    if (row) {
      const candidate = isHandedOff(row.vault.rowKey) ? undefined : this.findWaiting(which);
      if (!this.transact(endAndClaim(row.vault, name, candidate))) return;
    }
    if (this.resendClaimed(name) === 0) this.finishIfLast(which);
  }

  /** A worker runs its next step. `isAnswerLost`: storage applies its transaction and does not answer. */
  step(which: number, isAnswerLost: boolean) {
    const one = this.workers[which % Math.max(1, this.workers.length)];
    if (!one) return;
    const { vault } = one.claim;
    switch (one.step) {
      case "start": {
        const event = { type: "started", worker: one.name, redelivered: one.message.deliveries > 1 } as const;
        const started = this.update(vault, event, one.claim.version);
        if (!started) return this.end(one);
        one.claim = { vault: started, version: -1 };
        one.step = "read";
        return;
      }
      case "read":
        one.hasManyChanges = which % 3 === 0;
        // By a wrong clock, the scan's deadline has passed, and the worker claims no further vault.
        one.candidate = isHandedOff(vault.rowKey) || which % 11 === 0 ? undefined : this.findWaiting(which);
        // A vault that another scan is writing is requeued.
        one.step = which % 7 === 0 ? "release" : "end";
        return;
      case "end":
        return this.endVault(one, which, isAnswerLost);
      case "release":
        this.update(vault, { type: "released" });
        one.step = "send";
        return;
      case "send":
        this.send(vault.index);
        one.step = "finish";
        return;
      case "finish":
        if (one.background) return this.endBackground(one);
        this.end(one);
        return this.finishIfLast(which);
    }
  }

  /** Ends the worker's vault, or hands it off, and claims the next one. */
  endVault(one: Worker, which: number, isAnswerLost: boolean) {
    if (one.background) return this.endBackground(one);
    const { candidate, claim, name } = one;
    const handedOff = candidate && one.hasManyChanges ? nextVault(claim.vault, { type: "handedOff" }) : undefined;
    const moves = handedOff
      ? [{ before: claim.vault, event: { type: "handedOff" } as const, after: handedOff }, claimMove(candidate!, name)]
      : endAndClaim(claim.vault, name, candidate);
    const isApplied = this.transact(moves);
    if (!isApplied || isAnswerLost) {
      const isGone = !this.rows.has(claim.vault.rowKey);
      this.reached.count(isGone ? "continued elsewhere" : "next vault taken");
      if (isGone) one.step = "finish";
      else one.candidate = this.findWaiting(which);
      return;
    }
    one.background = handedOff;
    const next = candidate && moves[1]!.after;
    if (next) one.claim = { vault: next, version: -1 };
    // A worker whose time is over sends a message for the vault that it has claimed.
    one.step = !next ? "finish" : which % 5 === 0 ? "release" : "read";
  }

  endBackground(one: Worker): void {
    this.transact(endAndClaim(one.background!, one.name, undefined));
    one.background = undefined;
  }

  /** The worker's message is done. */
  end(one: Worker): void {
    this.workers = this.workers.filter((other) => other !== one);
    this.remove(one.message);
  }

  /** A worker crashes: its message is redelivered later. `isThrown`: it fails, and its message is redelivered at once. */
  crash(which: number, isThrown: boolean): void {
    const [one] = this.workers.splice(which % Math.max(1, this.workers.length), 1);
    if (!one) return;
    this.reached.count(`crash before ${one.step}`);
    if (isThrown) one.message.visibleAt = this.now;
  }

  renew(which: number): void {
    const one = this.workers[which % Math.max(1, this.workers.length)];
    if (one && one.step !== "start") this.update(one.background ?? one.claim.vault, { type: "renewed" });
  }

  /** The timer finds vaults of crashed workers, and of lost messages. */
  watch(which: number): void {
    const { claimed } = this;
    for (const { vault, version, writtenAt } of claimed)
      if (this.update(vault, { type: "watched", ageMs: this.now - writtenAt }, version)) this.send(vault.index);
    if (claimed.length === 0) this.finishIfLast(which);
  }

  /** Works without faults until the scan is over. */
  finish(): void {
    this.workers = [];
    for (let round = 0; !this.isOver; round++) {
      assert(round < 30, "the scan does not end");
      this.now += LOST_MESSAGE_MS;
      this.watch(1);
      for (
        let steps = 0;
        this.workers.length > 0 || this.messages.some(({ visibleAt }) => visibleAt <= this.now);
        steps++
      ) {
        assert(steps < 1_000, "the messages do not end");
        // Without requeues: 1 selects few changes and no release.
        if (this.workers.length > 0) this.step(1, false);
        else this.receive(0);
      }
    }
    assert(
      [...this.rows.values()].every(({ vault }) => vaultState(vault) === "done"),
      "every vault has ended",
    );
  }
}

const worker = (message: Message, name: string, claim: Copy, step: Worker["step"]): Worker => ({
  message,
  name,
  claim,
  step,
  hasManyChanges: false,
});

const claimMove = ({ vault, version }: Copy, name: string): Move => {
  const event = { type: "claimed", worker: name } as const;
  return { before: vault, event, after: nextVault(vault, event)!, version };
};
const endAndClaim = (vault: ScanVault, name: string, candidate: Copy | undefined): Move[] => {
  const event = { type: "ended" } as const;
  const ended: Move = { before: vault, event, after: nextVault(vault, event)! };
  return candidate ? [ended, claimMove(candidate, name)] : [ended];
};

/** Kinds that occur several times are more frequent. */
const COMMANDS = [
  "receive",
  "receive",
  "step",
  "step",
  "step",
  "step",
  "step",
  "step",
  "renew",
  "wait",
  "wait",
  "watch",
  "crash",
  "fail",
  "answerLost",
  "duplicate",
  "lose",
] as const;
const commands = fc.array(fc.record({ kind: fc.constantFrom(...COMMANDS), which: fc.nat(30) }), {
  minLength: 10,
  maxLength: 120,
  size: "max",
});
const WAITS_MS = [SECOND_MS, LEASE_MS / 3, LEASE_MS, INVISIBLE_MS, LOST_MESSAGE_MS];

function execute(model: Model, { kind, which }: { kind: string; which: number }): void {
  if (kind === "receive") model.receive(which);
  else if (kind === "step") model.step(which, false);
  else if (kind === "answerLost") model.step(which, true);
  else if (kind === "renew") model.renew(which);
  else if (kind === "watch") model.watch(which);
  else if (kind === "wait") model.now += WAITS_MS[which % WAITS_MS.length]!;
  else if (kind === "crash" || kind === "fail") model.crash(which, kind === "fail");
  else {
    const message = model.messages[which % Math.max(1, model.messages.length)];
    if (!message || which > 15) return;
    if (kind === "lose") model.remove(message);
    else model.messages.push({ ...message, deliveries: 0, visibleAt: model.now });
  }
}

test("after any sequence of events every vault of a scan ends exactly once, and vaults have followed the table of states", () => {
  const reached = new Reached();
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 3 }), commands, (vaults, slots, all) => {
      const model = new Model(vaults, slots, reached);
      for (const one of all) execute(model, one);
      model.finish();
    }),
    { numRuns: IS_CAMPAIGN ? 100_000 : 3_000, seed: SEED },
  );
  console.info(`Reached by random scans:\n${reached}`);
  expect(reached.situations).toEqual(
    expect.arrayContaining([
      ...TRANSITIONS,
      ...["start", "read", "end", "release", "send", "finish"].map((step) => `crash before ${step}`),
      "started rejected",
      "watched rejected",
      "late write",
      "continued elsewhere",
      "next vault taken",
      "worker restarted",
      "message failed for good",
    ]),
  );
});

test("a state rejects each event that its table does not have", () => {
  const planned: PlannedVault = { name: "kv", subscriptionId: "s1", action: "scan" };
  const waiting = plannedVault("000001", planned);
  const scanning = nextVault(waiting, { type: "claimed", worker: "000000" })!;
  const queued = nextVault(scanning, { type: "released" })!;
  const done = nextVault(scanning, { type: "ended" })!;
  const events: VaultEvent[] = [
    { type: "claimed", worker: "000002" },
    { type: "started", worker: "000001", redelivered: true },
    ...(["renewed", "released", "handedOff", "ended"] as const).map((type) => ({ type })),
    { type: "workerFailed", worker: "000000" },
    { type: "watched", ageMs: LOST_MESSAGE_MS },
  ];
  const accepted = (vault: ScanVault) => events.filter((event) => nextVault(vault, event)).map(({ type }) => type);
  expect(accepted(waiting)).toEqual(["claimed"]);
  expect(accepted(done)).toEqual([]);
  expect(accepted(queued)).toEqual(["started", "renewed", "released", "ended", "workerFailed", "watched"]);
  // Another worker has the vault, so a redelivered message does not start it.
  expect(accepted(scanning)).toEqual(["renewed", "released", "handedOff", "ended", "workerFailed", "watched"]);
  expect(accepted(nextVault(scanning, { type: "handedOff" })!)).not.toContain("handedOff");
});
