import fc from "fast-check";
import { assert, expect, test } from "vitest";
import type { EvaluationRecord } from "../../shared/compliance/compliance-rows.ts";
import {
  nextEvaluation,
  nextResults,
  type ResultsEvent,
  resultsState,
} from "../../shared/compliance/evaluation-states.ts";
import { evaluationStatus, hasEnded } from "../../shared/compliance/evaluations.ts";
import { isStillToEvaluate } from "../../shared/compliance/result-totals.ts";
import { HOUR_MS, MINUTE_MS } from "../../shared/platform/time.ts";
import { Reached } from "../support/random-events.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";

// Drives the states of evaluations (evaluation-states.ts) with random events. These are scans and evaluations of the same
// vaults at the same time, large writes that end in the middle, crashes, late writes, duplicate messages, exemptions, and
// requested evaluations of all vaults. A result is correct if it was evaluated from the asset, the access model and the age
// that the inventory has at the end.

/** The first table at the head of evaluation-states.ts, as `state event next state`. */
const RESULT_TRANSITIONS = [
  ...["none", "removed", "partial", "complete"].map((state) => `${state} evaluated all complete`),
  "complete evaluated some complete",
  ...["none", "complete", "partial"].map((state) => `${state} vaultRemoved none`),
  ...["removed", "complete", "partial"].map((state) => `${state} vaultRemoved removed`),
];
/** The second table. */
const REQUEST_TRANSITIONS = [
  "queued sent running",
  "queued sent completed",
  "queued sent partial",
  "running sent running",
  "queued vaultFailed queued",
  "running vaultFailed running",
  "running vaultFailed partial",
  // A duplicate message failed after the vault was evaluated.
  "completed vaultFailed partial",
  "partial vaultFailed partial",
];

/** A scan claims a vault for this time before it writes the vault. */
const CLAIM_MS = MINUTE_MS;
/** Age at which the result of an asset changes. */
const OLD_MS = HOUR_MS;
/** The queue moves a message that failed this many times to the poison queue. */
const MAX_DELIVERIES = 5;
const ASSETS = ["secret.a", "secret.b", "key.c"];

/** `content` is a number that is different after each change of the asset. */
interface Asset {
  content: number;
  createdAt: number;
}
/** A vault as a scan reads it. `rbac` is its access model. */
interface Vault {
  exists: boolean;
  rbac: boolean;
  assets: Map<string, Asset>;
}
/** The result of an asset, with what it was evaluated from. Time alone changes the result at `dueAt` (Unix seconds). */
interface Result {
  content: number;
  rbac: boolean;
  isOld: boolean;
  dueAt: number | undefined;
}
/**
 * The stored results of a vault. `fence` and `version` change with each write of the results and of the vault's row. `open` is true
 * between the two transactions of a large write.
 */
interface Stored {
  row: { gone: boolean; rbac: boolean; createdAt: string; evaluationId?: string | undefined } | undefined;
  results: Map<string, Result>;
  hasExemptions: boolean;
  open: boolean;
  fence: number;
  version: number;
}
/**
 * One vault: in the inventory, in the cloud, and its results. A scan that writes the vault has the `claim`; `pending` are the assets
 * that claimed scans were to write.
 */
interface Entry {
  name: string;
  inventory: Vault & { version: number; claim?: { owner: Job; until: number }; pending: Set<string> };
  cloud: Vault;
  stored: Stored;
}
/** A queue message that requests the evaluation of a vault's assets, and with `references` also of the vault itself. */
interface Message {
  name: string;
  assets: "all" | "due" | string[];
  references: boolean;
  evaluationId?: string | undefined;
  deliveries: number;
}
/** A worker that scans or evaluates a vault. `step` is what it does next, `opened` the results that it read, `next` its result. */
interface Job {
  entry: Entry;
  /** Undefined for a scan. */
  message?: Message;
  step: "open" | "vault" | "claim" | "write" | "finish" | "inventory";
  attempts: number;
  opened?: Stored;
  /** What a scan read in the cloud, and what it changes. */
  found?: { vault: Vault; version: number; changed: string[] };
  next?: { stored: Stored; isLarge: boolean };
}

/** The simulated service and cloud. The random number `which` selects among workers, messages, vaults or kinds of changes. */
class Model {
  now = Date.parse("2026-11-01T00:00:00Z");
  readonly entries: Entry[];
  jobs: Job[] = [];
  messages: Message[] = [];
  requests: EvaluationRecord[] = [];
  content = 0;
  readonly reached: Reached;

  constructor(vaults: number, reached: Reached) {
    this.reached = reached;
    this.entries = Array.from({ length: vaults }, (_, index) => ({
      name: `kv-${index}`,
      inventory: { ...this.vault(false), version: 0, pending: new Set<string>() },
      cloud: { ...this.vault(true), assets: new Map([[ASSETS[0]!, this.asset()]]) },
      stored: { row: undefined, results: new Map(), hasExemptions: false, open: false, fence: 0, version: 0 },
    }));
  }

  vault = (exists: boolean): Vault => ({ exists, rbac: false, assets: new Map() });
  asset = (): Asset => ({ content: ++this.content, createdAt: this.now });

  evaluate(asset: Asset, rbac: boolean): Result {
    const oldAt = asset.createdAt + OLD_MS;
    const isOld = oldAt <= this.now;
    return { content: asset.content, rbac, isOld, dueAt: isOld ? undefined : oldAt / 1000 };
  }

  /** Reads a vault's results as `openState` does. */
  open(job: Job): void {
    const { stored } = job.entry;
    // Results of an interrupted write: the fence is taken, so that its late writes fail.
    if (stored.open) stored.fence++;
    job.opened = { ...stored, results: new Map(stored.results) };
  }

  /** Decides what an evaluation of a vault writes, as evaluator.ts does. Undefined if there is nothing to write. */
  decide(opened: Stored, event: ResultsEvent, vault: Vault, evaluationId?: string): Stored | undefined {
    const { row, results, hasExemptions, open } = opened;
    const exemptions = hasExemptions ? [{}] : [];
    const previous = { row, assets: results, isComplete: !open, exemptions } as unknown as Parameters<
      typeof nextResults
    >[0];
    const state = resultsState(previous);
    const next = nextResults(previous, event);
    if (!next) {
      this.reached.count("evaluated rejected");
      return undefined;
    }
    const kind = event.type === "vaultRemoved" ? "" : next.evaluate === "all" ? " all" : " some";
    const transition = `${state} ${event.type}${kind} ${next.state}`;
    this.reached.count(transition);
    assert(RESULT_TRANSITIONS.includes(transition), transition);
    assert(next.state !== "none" || !hasExemptions, "exemptions are kept");
    const after: Stored = { ...opened, results: new Map(), open: false };
    if (!next.evaluate) {
      const { rbac = false, createdAt = "" } = row ?? {};
      return { ...after, row: next.state === "removed" ? { gone: true, rbac, createdAt } : undefined };
    }
    if (next.evaluate !== "all") for (const [key, result] of results) after.results.set(key, result);
    for (const key of next.evaluate === "all" ? vault.assets.keys() : next.evaluate) {
      const asset = vault.assets.get(key);
      if (asset) after.results.set(key, this.evaluate(asset, vault.rbac));
      else after.results.delete(key);
    }
    const createdAt = row && !row.gone ? row.createdAt : new Date(this.now).toISOString();
    const newest = [row?.gone ? "" : (row?.evaluationId ?? ""), evaluationId ?? ""].sort()[1]!;
    after.row = { gone: false, rbac: vault.rbac, createdAt, ...(newest && { evaluationId: newest }) };
    return after;
  }

  event = (assets: "all" | "due" | readonly string[], vaultItself: boolean, { rbac }: Vault): ResultsEvent => ({
    type: "evaluated",
    assets,
    vaultItself,
    rbac,
    now: this.now,
  });

  /** A worker runs its next step. */
  step(which: number): void {
    const job = this.jobs[which % Math.max(1, this.jobs.length)];
    if (!job) return;
    this.now++;
    if (job.step === "write" || job.step === "finish") this.write(job, which);
    else if (job.message) this.stepOfEvaluation(job, job.message, which);
    else this.stepOfScan(job, which);
  }

  stepOfEvaluation(job: Job, message: Message, which: number) {
    const { inventory } = job.entry;
    if (job.step === "open") {
      this.open(job);
      job.step = "vault";
      return;
    }
    const { claim } = inventory;
    if (claim && claim.until > this.now) {
      // A scan is writing the vault: the message is sent again.
      this.reached.count("vault busy");
      this.messages.push({ ...message, deliveries: 0 });
      return this.end(job);
    }
    // The crashed worker of this claim can no longer finish.
    if (claim) inventory.version++;
    delete inventory.claim;
    const event: ResultsEvent = inventory.exists
      ? this.event(message.assets, message.references, inventory)
      : { type: "vaultRemoved" };
    const stored = this.decide(job.opened!, event, inventory, message.evaluationId);
    if (!stored) return this.end(job);
    job.next = { stored, isLarge: which % 3 === 0 };
    job.step = "write";
  }

  stepOfScan(job: Job, which: number) {
    const { inventory, cloud } = job.entry;
    if (job.step === "open") {
      const { claim, version, pending } = inventory;
      if (claim && claim.until > this.now) return this.end(job);
      const names = ASSETS.filter((key) => inventory.assets.get(key)?.content !== cloud.assets.get(key)?.content);
      const changed = cloud.exists ? [...new Set([...names, ...pending])] : [];
      const isSame = inventory.exists === cloud.exists && inventory.rbac === cloud.rbac && pending.size === 0;
      if (!claim && isSame && changed.length === 0) return this.end(job);
      job.found = { vault: { ...cloud, assets: new Map(cloud.assets) }, version, changed };
      this.open(job);
      job.step = "claim";
      return;
    }
    const { vault, version, changed } = job.found!;
    if (job.step === "claim") {
      if (inventory.version !== version) return this.end(job);
      inventory.version++;
      inventory.claim = { owner: job, until: this.now + CLAIM_MS };
      inventory.pending = new Set([...inventory.pending, ...changed]);
      this.prepareWrite(job, which);
      return;
    }
    if (inventory.claim?.owner !== job) return this.end(job);
    inventory.version++;
    delete inventory.claim;
    inventory.pending = new Set();
    Object.assign(inventory, {
      exists: vault.exists,
      rbac: vault.rbac,
      assets: vault.exists ? vault.assets : new Map(),
    });
    this.reached.count("scanned");
    this.end(job);
  }

  /** Decides what a scan writes. */
  prepareWrite(job: Job, which: number): void {
    const { vault, changed } = job.found!;
    const event: ResultsEvent = vault.exists ? this.event(changed, true, vault) : { type: "vaultRemoved" };
    job.next = { stored: this.decide(job.opened!, event, vault)!, isLarge: which % 3 === 0 };
    job.step = "write";
  }

  /** Writes results, large ones in two transactions. Each one fails if another worker has written results since. */
  write(job: Job, which: number) {
    const { stored } = job.entry;
    const { opened, next } = job;
    const hasRow = job.step === "finish" || !next!.isLarge;
    if (stored.fence !== opened!.fence || (hasRow && stored.version !== opened!.version)) {
      this.reached.count("late write");
      return this.repeat(job, which);
    }
    stored.fence++;
    opened!.fence = stored.fence;
    if (!hasRow) {
      // Some of the results, and not the vault's row.
      stored.open = true;
      for (const [key, result] of [...next!.stored.results].slice(1)) stored.results.set(key, result);
      job.step = "finish";
      return;
    }
    const { version, fence, hasExemptions } = stored;
    Object.assign(stored, next!.stored, {
      version: version + 1,
      fence,
      hasExemptions: hasExemptions && !!next!.stored.row,
    });
    if (job.message) this.end(job);
    else job.step = "inventory";
  }

  /** After a conflict, reads everything again. A scan first confirms its claim. */
  repeat(job: Job, which: number) {
    if (++job.attempts > 5) return this.fail(job);
    if (job.message) {
      job.step = "open";
      return;
    }
    this.open(job);
    if (job.entry.inventory.claim?.owner !== job) return this.end(job);
    this.prepareWrite(job, which);
  }

  end(job: Job): void {
    this.jobs = this.jobs.filter((other) => other !== job);
  }

  /** A worker crashes or fails. The message of an evaluation is delivered again. */
  fail(job: Job): void {
    this.end(job);
    this.reached.count(`crash before ${job.step}`);
    if (!job.message) return;
    const { name, evaluationId, deliveries } = job.message;
    if (deliveries < MAX_DELIVERIES) this.messages.push(job.message);
    else if (evaluationId) this.changeRequest(evaluationId, { type: "vaultFailed", vault: name });
    else this.messages.push({ ...job.message, deliveries: 0 });
  }

  receive(which: number): void {
    const [message] = this.messages.splice(which % Math.max(1, this.messages.length), 1);
    if (!message) return;
    const entry = this.entries.find(({ name }) => name === message.name)!;
    this.jobs.push({ entry, message: { ...message, deliveries: message.deliveries + 1 }, step: "open", attempts: 0 });
  }

  statusOf(record: EvaluationRecord) {
    const rows = this.entries.flatMap(({ name, stored }) =>
      stored.row && !stored.row.gone ? [{ name, ...stored.row }] : [],
    );
    return evaluationStatus(record, rows.filter((row) => isStillToEvaluate(record, row)).length);
  }

  /** A user requests an evaluation of all vaults, or its message is delivered again. */
  request(which: number) {
    const requestedAt = new Date(this.now).toISOString();
    const existing = this.requests[which % 4];
    const evaluationId = existing?.evaluationId ?? `evaluation-${this.requests.length}`;
    if (!existing) this.requests.push({ evaluationId, requestedAt, requestedBy: "admin", failedVaults: [] });
    else if (hasEnded(this.statusOf(existing))) return this.reached.count("finished evaluation");
    for (const { name } of this.entries)
      this.messages.push({ name, assets: "all", references: true, evaluationId, deliveries: 0 });
    // A crash before this is followed by another delivery.
    if (which % 3 > 0 || existing) this.changeRequest(evaluationId, { type: "sent", vaults: this.entries.length });
  }

  changeRequest(evaluationId: string, event: Parameters<typeof nextEvaluation>[1]) {
    const index = this.requests.findIndex((one) => one.evaluationId === evaluationId);
    const before = this.requests[index]!;
    const next = nextEvaluation(before, event);
    if (!next) return this.reached.count(`${event.type} rejected`);
    const transition = `${this.statusOf(before).status} ${event.type} ${this.statusOf(next).status}`;
    this.reached.count(transition);
    assert(REQUEST_TRANSITIONS.includes(transition), transition);
    assert(new Set(next.failedVaults).size === next.failedVaults.length, "a failed vault is listed once");
    assert(next.vaults !== undefined || before.vaults === undefined, "an evaluation is not queued again");
    this.requests[index] = next;
  }

  /** The cloud changes: an asset, the vault's access model, or the vault itself. */
  change({ cloud }: Entry, which: number): void {
    const key = ASSETS[which % ASSETS.length]!;
    if (which % 7 === 0) cloud.exists = !cloud.exists;
    else if (which % 7 === 1) cloud.rbac = !cloud.rbac;
    else if (which % 7 === 2) cloud.assets.delete(key);
    else cloud.assets.set(key, this.asset());
  }

  /** A user adds or removes an exemption, which writes the vault's row. */
  exempt({ stored }: Entry, which: number): void {
    if (!stored.row) return;
    stored.hasExemptions = which % 2 === 0;
    stored.version++;
  }

  /** Works without faults until nothing is left, and lets the last scan and the hourly timer run. */
  finish(): void {
    this.now += CLAIM_MS;
    for (const job of this.jobs) this.fail(job);
    for (const entry of this.entries) {
      // Evaluates what an interrupted write left, as the reconciliation does.
      this.messages.push({ name: entry.name, assets: entry.stored.open ? "all" : [], references: true, deliveries: 0 });
      this.jobs.push({ entry, step: "open", attempts: 0 });
    }
    this.drain();
    this.now += OLD_MS;
    for (const { name } of this.entries) this.messages.push({ name, assets: "due", references: false, deliveries: 0 });
    this.drain();
    for (const { inventory, cloud, stored } of this.entries) {
      assert(inventory.exists === cloud.exists && !inventory.claim, "the last scan has written the vault");
      const state = resultsState({ row: stored.row as never, isComplete: !stored.open });
      if (inventory.exists) assert(state === "complete", state);
      else assert(state === "none" || state === "removed", state);
      const expected = [...inventory.assets].map(([key, asset]) => [key, this.evaluate(asset, inventory.rbac)]);
      expect(Object.fromEntries(stored.results)).toEqual(Object.fromEntries(expected));
    }
    for (const record of this.requests.filter(({ vaults }) => vaults !== undefined)) {
      const { status } = this.statusOf(record);
      this.reached.count(`evaluation ends ${status}`);
      assert(status === (record.failedVaults.length > 0 ? "partial" : "completed"), status);
    }
  }

  drain(): void {
    for (let steps = 0; this.jobs.length > 0 || this.messages.length > 0; steps++) {
      assert(steps < 10_000, "the work does not end");
      // 1: no write is large, so none is in two transactions.
      if (this.jobs.length > 0) this.step(1);
      else this.receive(0);
    }
  }
}

/**
 * Kinds that occur several times are more frequent. `some` and `due` send messages that evaluate one asset, and the assets whose
 * `dueAt` has passed. `failAlways` is the last delivery of a message that failed each time.
 */
const COMMANDS = [
  "step",
  "step",
  "step",
  "step",
  "step",
  "step",
  "receive",
  "receive",
  "receive",
  "scan",
  "scan",
  "change",
  "some",
  "some",
  "due",
  "duplicate",
  "request",
  "crash",
  "crash",
  "failAlways",
  "wait",
  "exempt",
] as const;
const commands = fc.array(fc.record({ kind: fc.constantFrom(...COMMANDS), which: fc.nat(40) }), {
  minLength: 20,
  maxLength: 120,
  size: "max",
});

function execute(model: Model, { kind, which }: { kind: string; which: number }): void {
  const entry = model.entries[which % model.entries.length]!;
  const { name } = entry;
  if (kind === "step") model.step(which);
  else if (kind === "receive") model.receive(which);
  else if (kind === "scan") model.jobs.push({ entry, step: "open", attempts: 0 });
  else if (kind === "change") model.change(entry, which);
  else if (kind === "some")
    model.messages.push({ name, assets: [ASSETS[which % 3]!], references: which % 2 === 0, deliveries: 0 });
  else if (kind === "due") model.messages.push({ name, assets: "due", references: false, deliveries: 0 });
  else if (kind === "request") model.request(which);
  else if (kind === "wait") model.now += which % 2 === 0 ? CLAIM_MS : OLD_MS;
  else if (kind === "exempt") model.exempt(entry, which);
  else if (kind === "duplicate") {
    const message = model.messages[which % Math.max(1, model.messages.length)];
    if (message) model.messages.push({ ...message });
  } else {
    const job = model.jobs[which % Math.max(1, model.jobs.length)];
    if (kind === "failAlways" && job?.message) job.message.deliveries = MAX_DELIVERIES;
    if (job) model.fail(job);
  }
}

test("after any sequence of events the results are those of the inventory, and results and requests have followed their tables of states", () => {
  const reached = new Reached();
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 2 }), commands, (vaults, all) => {
      const model = new Model(vaults, reached);
      for (const one of all) execute(model, one);
      model.finish();
    }),
    { numRuns: IS_CAMPAIGN ? 100_000 : 2_000, seed: SEED },
  );
  console.info(`Reached by random evaluations:\n${reached}`);
  expect(reached.situations).toEqual(
    expect.arrayContaining([
      ...RESULT_TRANSITIONS,
      ...REQUEST_TRANSITIONS,
      ...["open", "vault", "claim", "write", "finish", "inventory"].map((step) => `crash before ${step}`),
      "evaluation ends completed",
      "evaluation ends partial",
      "finished evaluation",
      "evaluated rejected",
      "vaultFailed rejected",
      "late write",
      "vault busy",
      "scanned",
    ]),
  );
});
