import { setTimeout as delay } from "node:timers/promises";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { CompanyVault } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { PlannedVault } from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/write.ts";
import type { MovedClock } from "../support/moved-clock.ts";
import { type Fate, type HeldProxy, startHeldProxy, type Write } from "./delaying-proxy.ts";
import type { createWorkers } from "./inventory-fixture.ts";

/** Counts which situations the schedules reached. A test that reaches none proves nothing. */
export const KINDS = [
  "first scans",
  "changes",
  "removals",
  "moves",
  "returns",
  "duplicates",
  "evaluations",
  "kills",
  "leases that ended",
  "held writes that landed late",
  "held writes that were refused",
  "writes never arrived",
  "answers lost",
  "transactions refused by a fence",
  "takeovers of a vault's rows",
  "takeovers of results",
  "takeovers that arrived late",
  "workers sent away busy",
  "workers that ended well",
] as const;
export type Reached = Record<(typeof KINDS)[number], number>;

export interface Place {
  cloud: Cloud;
  workers: ReturnType<typeof createWorkers>;
  time: MovedClock;
  connectionString: string;
  /** Two subscriptions of its own. */
  subscriptions: [string, string];
  /** A part of its vaults' names that is unique to this schedule. */
  tag: string;
  reached: Reached;
}

interface Running {
  proxy: HeldProxy;
  done: boolean;
}

/** Longer than a lease. */
const LEASE_ENDED_MS = 17_000;

/**
 * Runs one random history of two vaults: the cloud changes, workers start, are held, cut off and killed, and their requests
 * arrive in any order. Returns what happened, to explain a wrong result.
 */
export async function runSchedule(place: Place, seed: number): Promise<string[]> {
  const { cloud, workers, time, reached, subscriptions, connectionString } = place;
  const dice = new Dice(seed);
  const random = () => dice.next();
  const below = (count: number) => Math.floor(random() * count);
  const oneOf = <T>(items: readonly T[]): T => items[below(items.length)]!;
  const log: string[] = [];
  const running: Running[] = [];
  const ended: Promise<void>[] = [];
  const planned: PlannedVault[] = [];
  const seen = new Set<string>();
  const vaults = ["a", "b"].map((name) => ({
    name: `kv-${place.tag}-${name}`,
    size: random() < 0.2 ? 60 : 3 + below(4),
    at: undefined as string | undefined,
    left: false,
  }));
  type Vault = (typeof vaults)[number];

  const content = (vault: Vault): CompanyVault => ({
    name: vault.name,
    secrets: Array.from({ length: vault.size }, (_, at) => ({ name: `s-${at}`, expiresInDays: at * 9 - 5.5 })),
    keys: random() < 0.3 ? [{ name: "k", expiresInDays: 20.5 }] : [],
  });

  function changeCloud(): void {
    const vault = oneOf(vaults);
    const choice = random();
    if (vault.at === undefined) {
      vault.at = oneOf(subscriptions);
      cloud.control.putVault(vault.at, content(vault));
      if (vault.left) reached.returns++;
    } else if (choice < 0.15) {
      cloud.control.removeVault(vault.name);
      Object.assign(vault, { at: undefined, left: true });
      reached.removals++;
    } else if (choice < 0.3) {
      cloud.control.removeVault(vault.name);
      vault.at = subscriptions[vault.at === subscriptions[0] ? 1 : 0]!;
      cloud.control.putVault(vault.at, content(vault));
      reached.moves++;
    } else if (choice < 0.45) {
      cloud.control.changeVault(vault.name, {
        purgeProtection: random() < 0.5,
        publicNetworkAccess: random() < 0.5 ? "Enabled" : "Disabled",
        rbac: random() < 0.7,
      });
      reached.changes++;
    } else {
      for (let count = 1 + below(3); count > 0; count--) {
        const name = `s-${below(vault.size + 2)}`;
        if (random() < 0.3) cloud.control.remove(vault.name, "secrets", name);
        else cloud.control.putSecret(vault.name, { name, expiresInDays: below(400) - 10.5, ...contentType() });
      }
      reached.changes++;
    }
    log.push(`cloud: ${vault.name} in ${vault.at ?? "no subscription"}`);
  }

  const contentType = () => (random() < 0.5 ? { contentType: "text" } : {});

  /** About one write in four of a worker is disturbed. */
  function fateOf(name: string, { method, path }: Write): Fate {
    const fate = random() < 0.75 ? "pass" : oneOf<Fate>(["hold", "hold", "hold", "cut", "cut", "cut", "drop", "lose"]);
    if (fate === "drop") reached["writes never arrived"]++;
    if (fate !== "pass") log.push(`${name}: ${fate} ${method} ${path}`);
    return fate;
  }

  async function start(name: string, work: (worker: ReturnType<typeof workers.worker>) => Promise<unknown>) {
    const proxy = await startHeldProxy(connectionString, (write) => fateOf(name, write));
    const one: Running = { proxy, done: false };
    running.push(one);
    log.push(`${name}: begins`);
    const ends = (how: string) => {
      one.done = true;
      log.push(`${name}: ${how}`);
    };
    ended.push(
      work(workers.worker(proxy.connectionString)).then(
        () => {
          ends("ends well");
          reached["workers that ended well"]++;
        },
        (error: unknown) => {
          ends(String(error));
          if (error instanceof VaultBusy) reached["workers sent away busy"]++;
        },
      ),
    );
  }

  let workerCount = 0;
  async function startScan(): Promise<void> {
    if (random() < 0.6) changeCloud();
    if (planned.length === 0 || random() < 0.7) {
      const clean = workers.worker(connectionString);
      const found = await workers.plan(clean.tables, subscriptions);
      if (found.length === 0) return;
      planned.push(oneOf(found));
    } else reached.duplicates++;
    // An old message is delivered again, whatever the cloud's state is now.
    const vault = planned.at(random() < 0.7 ? -1 : below(planned.length))!;
    const key = vault.name.toLowerCase();
    if (vault.action === "scan" && !seen.has(key)) reached["first scans"]++;
    seen.add(key);
    await start(`w${++workerCount} ${vault.action} ${vault.name} ${vault.subscriptionId.slice(-4)}`, (worker) =>
      worker.scan(vault),
    );
  }

  async function startEvaluation(): Promise<void> {
    const vault = oneOf(vaults);
    reached.evaluations++;
    await start(`w${++workerCount} evaluates ${vault.name}`, ({ evaluator }) =>
      random() < 0.6
        ? evaluator.evaluateWholeVault(vault.name)
        : evaluator.evaluateAssets(vault.name, random() < 0.5 ? "due" : ["secret.s-0", "secret.s-1", "key.k"]),
    );
  }

  const held = () => running.flatMap(({ proxy }) => proxy.held);
  async function releaseOne(): Promise<void> {
    const all = held();
    if (all.length === 0) return;
    log.push("releases a write");
    await oneOf(all).release();
  }

  function killOne(): void {
    const alive = running.filter(({ done }) => !done);
    if (alive.length === 0) return;
    const one = oneOf(alive);
    one.proxy.kill();
    one.done = true;
    log.push(`kills worker ${running.indexOf(one) + 1}`);
    reached.kills++;
  }

  /** Waits until every worker is done or waits for a held write. */
  async function settle(): Promise<void> {
    for (let waited = 0; waited < 400; waited++) {
      const busy = running.some(({ done, proxy }) => !done && !proxy.held.some(({ clientWaits }) => clientWaits));
      if (!busy) return;
      await delay(2);
    }
  }

  async function step(): Promise<void> {
    const choice = random();
    if (choice < 0.1) changeCloud();
    else if (choice < 0.48) await startScan();
    else if (choice < 0.58) await startEvaluation();
    else if (choice < 0.72) await releaseOne();
    else if (choice < 0.8) killOne();
    else if (choice < 0.93) {
      await time.add(LEASE_ENDED_MS);
      log.push("leases end");
      reached["leases that ended"]++;
    } else await settle();
    const pause = random();
    if (pause < 0.5) await delay(below(25));
    else if (pause < 0.75) await settle();
  }

  const count = 10 + below(8);
  changeCloud();
  await startScan();
  for (let at = 0; at < count; at++) await step();
  await settle();
  // Held writes arrive before the next scan, or long after it.
  const late = random() < 0.5;
  for (const { done, proxy } of running) if (!done && random() < 0.5) proxy.kill();
  if (late) await workers.delta(connectionString, subscriptions, time);
  log.push(late ? "a delta scan, then the held writes" : "the held writes, then a delta scan");
  while (held().length > 0) {
    await releaseOne();
    await settle();
  }
  for (const { proxy } of running) proxy.kill();
  await workers.delta(connectionString, subscriptions, time);
  for (const { proxy } of running) {
    await proxy.stop();
    countAnswers(proxy, reached);
  }
  await Promise.all(ended);
  return log;
}

function countAnswers({ answered }: HeldProxy, reached: Reached): void {
  for (const { fate, method, path, applied, overtaken } of answered) {
    const wasHeld = fate === "hold" || fate === "cut";
    if (wasHeld && applied) reached["held writes that landed late"]++;
    if (wasHeld && !applied) reached["held writes that were refused"]++;
    if (fate === "lose") reached["answers lost"]++;
    if (fate === "pass" && path === "$batch" && overtaken) reached["transactions refused by a fence"]++;
    if (method !== "PUT" && method !== "POST") continue;
    const ofRows = path.startsWith("Assets(") && path.includes("RowKey='f!");
    const ofResults = path.startsWith("Compliance(") && path.includes("!!fence'");
    if (ofRows) reached["takeovers of a vault's rows"]++;
    if (ofResults) reached["takeovers of results"]++;
    if ((ofRows || ofResults) && wasHeld && applied) reached["takeovers that arrived late"]++;
  }
}
