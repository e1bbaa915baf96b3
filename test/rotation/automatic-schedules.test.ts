import type { Company } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { Fault } from "simulated-cloud/faults.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DAY_MS, HOUR_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { isOver } from "../../shared/rotation/rotation.ts";
import { startTestCloud } from "../azure/live-cloud.ts";
import { Reached } from "../support/random-events.ts";
import { IS_CAMPAIGN, SEED } from "../support/sampling.ts";
import { openStorage } from "../support/storage.ts";
import { openMatchingFixture } from "./matching-world.ts";
import { type SimulatedCrash, VAULT, WorkerCrashed } from "./world.ts";

/**
 * Random schedules of automatic policies, with workers that crash, messages that arrive twice and faults of the cloud. No secret
 * that came due is forgotten: its rotation completes, or the policy or the rotation says why not. No place ever holds a client
 * secret that does not sign in.
 */

const SCHEDULES = IS_CAMPAIGN ? 200 : 3;
/** Days with faults and crashes, then days without, in which everything that can still complete does. */
const [RANDOM_DAYS, QUIET_DAYS] = [25, 14];
const TRIGGER_DAYS = 30;
const MAX_DELIVERIES = 5;
const company: Company = {
  subscriptions: [{ id: "11111111-1111-4111-8111-111111111111", name: "Shop", vaults: [{ name: VAULT }] }],
};

const FAULTS: [name: string, fault: Fault][] = [
  ["vault 503", { match: { vault: VAULT }, action: { kind: "fail", status: 503 } }],
  ["vault 429", { match: { vault: VAULT }, action: { kind: "throttle" } }],
  ["vault reset", { match: { vault: VAULT }, action: { kind: "reset" } }],
  ["vault denies", { match: { vault: VAULT }, action: { kind: "deny" } }],
  ["lost answers of the vault", { match: { vault: VAULT }, action: { kind: "loseAnswer" }, times: 3 }],
  ["Graph 503", { match: { operation: "graph.*" }, action: { kind: "fail", status: 503 } }],
  ["lost answers of Graph", { match: { operation: "graph.*" }, action: { kind: "loseAnswer" }, times: 3 }],
  ["sign-in 503", { match: { operation: "entra.token" }, action: { kind: "fail", status: 503 } }],
];

let live: Awaited<ReturnType<typeof startTestCloud>>;
beforeAll(async () => {
  live = await startTestCloud({ company });
});
afterAll(() => live.cloud.stop());

class Schedule {
  readonly fixture: ReturnType<typeof openMatchingFixture>;
  readonly apps: ReturnType<Schedule["fixture"]["addApplication"]>[] = [];
  readonly dice: Dice;
  /** Counts the situations that occurred. */
  readonly reached: Reached;
  isQuiet = false;

  constructor(index: number, reached: Reached, connectionString: string) {
    this.dice = new Dice(SEED + index);
    this.reached = reached;
    this.fixture = openMatchingFixture(live, connectionString);
    this.fixture.settings = { rotationTriggerDays: TRIGGER_DAYS, defaultValidityDays: 180 };
  }

  get now(): number {
    return this.fixture.world.clock.now().getTime();
  }
  /** Returns true with this probability. On quiet days always false. */
  happens = (probability: number) => !this.isQuiet && this.dice.next() < probability;

  /** Returns the crash of the next worker, or undefined if it does not crash. */
  nextCrash(): SimulatedCrash | undefined {
    if (!this.happens(0.15)) return undefined;
    const crashKind = (["before", "after", "late"] as const)[Math.floor(this.dice.next() * 3)]!;
    return { callNumber: 1 + Math.floor(this.dice.next() * 25), crashKind };
  }

  async start(): Promise<void> {
    for (let count = 0; count < 3; count++) {
      const app = this.fixture.addApplication({ expiresInDays: 20 + Math.floor(this.dice.next() * 30) });
      this.fixture.control.directory.watchTarget({ appId: app.appId, vault: VAULT, secret: app.name });
      this.apps.push(app);
    }
    await this.scan();
    await this.fixture.confirm(...this.apps);
    for (const { appId } of this.apps) await this.fixture.setPolicy(appId, { overlapDays: 1 });
  }

  /** Writes what a scan finds: the credentials of the applications and the vault secrets. */
  async scan(): Promise<void> {
    const { directory } = this.fixture.control;
    const found = this.apps.map((app) => {
      const keyId = directory.keyIdOf(app.appId, this.fixture.control.secretValue(VAULT, app.name)!) ?? app.keyId;
      return { ...app, contentType: `${app.name}:${app.appId}:${keyId}` };
    });
    await this.fixture.discover(...found);
  }

  /** Runs work with a worker that may crash. Returns false if the platform delivers its message again. */
  async attempt(work: (crash: SimulatedCrash | undefined) => Promise<void>): Promise<boolean> {
    const crash = this.nextCrash();
    try {
      await work(crash);
      return true;
    } catch (error) {
      this.reached.count(error instanceof WorkerCrashed ? `crash: ${crash?.crashKind}` : "failed delivery");
      return false;
    } finally {
      if (this.happens(0.5))
        for (const call of this.fixture.world.callsAfterCrash.splice(0)) await call().catch(() => {});
    }
  }

  /** Runs the timer that enqueues due policies, and delivers its messages, which begin rotations. */
  async startDueRotations(): Promise<void> {
    const { fixture } = this;
    await fixture.automatic.enqueueDue();
    for (const appId of fixture.sent.splice(0)) {
      this.reached.count("due");
      const begin = (crash: SimulatedCrash | undefined) =>
        fixture.createAutomatic(fixture.world.start(crash)).begin(appId, "timer");
      if (this.happens(0.3)) {
        this.reached.count("duplicate message");
        await this.attempt(begin);
      }
      let deliveries = 1;
      while (!(await this.attempt(begin)) && deliveries < MAX_DELIVERIES) deliveries++;
      if (deliveries === MAX_DELIVERIES) await fixture.automatic.recordFailedMessage(appId);
    }
  }

  /**
   * Delivers the messages of rotations that are due before `end` (Unix milliseconds), and then runs the timer that continues
   * overdue rotations.
   */
  async workUntil(end: number): Promise<void> {
    const { world } = this.fixture;
    for (;;) {
      world.messages.sort((a, b) => a.dueAtMs - b.dueAtMs);
      const message = world.messages[0];
      if (message === undefined || message.dueAtMs > end) break;
      world.messages.shift();
      if (message.dueAtMs > this.now) world.advanceClock(message.dueAtMs - this.now);
      const { rotationId } = message;
      if (this.happens(0.1)) world.messages.push({ ...message, dueAtMs: this.now + SECOND_MS, deliveries: 0 });
      if (await this.attempt((crash) => world.start(crash).work(rotationId, "worker"))) continue;
      const redelivered = { ...message, deliveries: message.deliveries + 1, dueAtMs: this.now + 5 * SECOND_MS };
      if (redelivered.deliveries < MAX_DELIVERIES) world.messages.push(redelivered);
      else await this.attempt(() => world.start().giveUp(rotationId));
    }
    if (end > this.now) world.advanceClock(end - this.now);
    await world.start().continueOverdue();
  }

  /** Runs one day: a scan, sometimes a new fault, the timers and the messages. */
  async runDay(): Promise<void> {
    const { control } = this.fixture;
    await this.scan();
    if (this.isQuiet || this.happens(0.5)) control.clearFaults();
    if (this.happens(0.4)) {
      const [name, fault] = FAULTS[Math.floor(this.dice.next() * FAULTS.length)]!;
      this.reached.count(`fault: ${name}`);
      control.addFault(fault);
    }
    const end = this.now + DAY_MS;
    await this.startDueRotations();
    while (this.now < end - HOUR_MS) await this.workUntil(Math.min(end, this.now + 8 * HOUR_MS));
  }

  /** Checks that no application whose secret came due was forgotten. */
  async check(): Promise<void> {
    const { fixture } = this;
    for (const { appId, keyId, name } of this.apps) {
      const rotations = (await fixture.rotationsOf(appId)).filter(({ oldKeyId }) => oldKeyId === keyId);
      const { attention } = await fixture.policies.get(appId);
      const unfinished = rotations.filter(({ status }) => !isOver(status));
      const isExplained =
        attention !== undefined || unfinished.some((one) => one.needsConfirmation || one.status === "needsAttention");
      const isDone = rotations.some(({ status }) => status === "completed");
      for (const { status } of rotations) this.reached.count(`rotation ${status}`);
      if (attention) this.reached.count(`policy needs attention: ${attention.code}`);
      const { expiresOn } = fixture.control.directory.secrets(appId).find((one) => one.keyId === keyId)!;
      const cameDue = Date.parse(expiresOn) - TRIGGER_DAYS * DAY_MS < this.now - DAY_MS;
      this.reached.count(cameDue ? "came due" : "did not come due");
      if (cameDue)
        expect([name, isDone || isExplained], JSON.stringify({ rotations, attention })).toEqual([name, true]);
      // A gap is a time in which the vault secret (watched since `start`) held a value that did not sign in. A value that expired
      // while the rotation waited for a user is no fault of the rotation.
      expect(fixture.control.directory.gaps().filter((gap) => gap.appId === appId && gap.why !== "expired")).toEqual(
        [],
      );
    }
  }
}

const reached = new Reached();

test.each(Array.from({ length: SCHEDULES }, (_, index) => index))(
  `no secret that came due is forgotten: SEED=${SEED}, schedule %i`,
  { timeout: 600_000 },
  async (index) => {
    const storage = await openStorage();
    const schedule = new Schedule(index, reached, storage.connectionString());
    try {
      live.cloud.control.clearFaults();
      await schedule.start();
      for (let day = 0; day < RANDOM_DAYS; day++) await schedule.runDay();
      schedule.isQuiet = true;
      for (let day = 0; day < QUIET_DAYS; day++) await schedule.runDay();
      await schedule.check();
    } finally {
      await storage.stop();
    }
  },
);

test("the schedules reached crashes, faults, duplicate messages and completed rotations", () => {
  console.info(`Reached by ${SCHEDULES} random schedules, SEED=${SEED}:\n${reached}`);
  const situations = reached.situations.join("\n");
  for (const one of ["came due", "crash: ", "fault: ", "duplicate message", "failed delivery", "rotation completed"])
    expect(situations).toContain(one);
});
