import { setTimeout as delay } from "node:timers/promises";
import type { Cloud } from "simulated-cloud/cloud.ts";
import type { CompanyVault } from "simulated-cloud/company/company.ts";
import { Dice } from "simulated-cloud/company/dice.ts";
import type { PlannedVault } from "../../shared/discovery/scan.ts";
import { VaultBusy } from "../../shared/inventory/write.ts";
import type { MovedClock } from "../support/moved-clock.ts";
import { type DelayingProxy, type Fate, startDelayingProxy, type Write } from "./delaying-proxy.ts";
import type { createWorkers } from "./inventory-fixture.ts";

/**
 * Situations that the random schedules must reach. A schedule is a random sequence of changes in the cloud, workers, crashes
 * and delayed writes. The test fails if a situation is not reached by any schedule.
 */
export const SITUATIONS = [
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
/**
 * How often each situation was reached. "Refused" means rejected by the table service. "Sent away busy" means that a scan threw
 * VaultBusy, because another worker had claimed the vault. A fence is a row that a worker writes when it takes rows over, and
 * again with each of its transactions. So storage rejects the late transactions of the worker before it.
 */
export type Reached = Record<(typeof SITUATIONS)[number], number>;

/** The environment of one schedule. */
export interface Environment {
  cloud: Cloud;
  workers: ReturnType<typeof createWorkers>;
  time: MovedClock;
  connectionString: string;
  /** Two subscriptions that no other schedule uses. */
  subscriptions: [string, string];
  /** A part of its vaults' names that is unique to this schedule. */
  tag: string;
  reached: Reached;
}

/** A started worker. */
interface Running {
  proxy: DelayingProxy;
  /** Whether the worker has finished or was killed. */
  done: boolean;
}

/** Longer than a worker's lease of a vault. */
const LEASE_EXPIRED_MS = 17_000;

/**
 * Runs one random history of two vaults: the cloud changes, workers start, their writes are delayed, cut off or dropped, and
 * workers are killed. At the end, all delayed writes arrive and an undisturbed delta scan runs. Returns a log of the events,
 * which explains a wrong result.
 */
export async function runSchedule(environment: Environment, seed: number): Promise<string[]> {
  const { cloud, workers, time, reached, subscriptions, connectionString } = environment;
  const dice = new Dice(seed);
  const random = () => dice.next();
  const below = (count: number) => Math.floor(random() * count);
  const oneOf = <T>(items: readonly T[]): T => items[below(items.length)]!;
  const log: string[] = [];
  const running: Running[] = [];
  /** Resolves for each worker when its work has succeeded or failed. */
  const ends: Promise<void>[] = [];
  /** Messages of planned scans, oldest first. A worker can receive any of them again, as a duplicate delivery. */
  const planned: PlannedVault[] = [];
  const scannedVaults = new Set<string>();
  const vaults = ["a", "b"].map((name) => ({
    name: `kv-${environment.tag}-${name}`,
    /** Number of secrets. 60 need more than one transaction, because each has two rows in a partition. */
    size: random() < 0.2 ? 60 : 3 + below(4),
    /** Undefined if the vault does not exist now. */
    subscription: undefined as string | undefined,
    wasRemoved: false,
  }));
  type Vault = (typeof vaults)[number];

  const content = (vault: Vault): CompanyVault => ({
    name: vault.name,
    secrets: Array.from({ length: vault.size }, (_, index) => ({ name: `s-${index}`, expiresInDays: index * 9 - 5.5 })),
    keys: random() < 0.3 ? [{ name: "k", expiresInDays: 20.5 }] : [],
  });

  function changeCloud(): void {
    const vault = oneOf(vaults);
    const choice = random();
    if (vault.subscription === undefined) {
      vault.subscription = oneOf(subscriptions);
      cloud.control.putVault(vault.subscription, content(vault));
      if (vault.wasRemoved) reached.returns++;
    } else if (choice < 0.15) {
      cloud.control.removeVault(vault.name);
      Object.assign(vault, { subscription: undefined, wasRemoved: true });
      reached.removals++;
    } else if (choice < 0.3) {
      cloud.control.removeVault(vault.name);
      vault.subscription = subscriptions[vault.subscription === subscriptions[0] ? 1 : 0]!;
      cloud.control.putVault(vault.subscription, content(vault));
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
    log.push(`cloud: ${vault.name} in ${vault.subscription ?? "no subscription"}`);
  }

  const contentType = () => (random() < 0.5 ? { contentType: "text" } : {});

  /**
   * About one write in four of a worker is disturbed. `hold`: it arrives later, and the worker waits. `cut`: it arrives later, and
   * the worker gets an error at once. `drop`: it never arrives. `lose`: it arrives, but its response does not.
   */
  function fateOf(name: string, { method, path }: Write): Fate {
    const fate = random() < 0.75 ? "pass" : oneOf<Fate>(["hold", "hold", "hold", "cut", "cut", "cut", "drop", "lose"]);
    if (fate === "drop") reached["writes never arrived"]++;
    if (fate !== "pass") log.push(`${name}: ${fate} ${method} ${path}`);
    return fate;
  }

  async function start(name: string, work: (worker: ReturnType<typeof workers.worker>) => Promise<unknown>) {
    const proxy = await startDelayingProxy(connectionString, (write) => fateOf(name, write));
    const worker: Running = { proxy, done: false };
    running.push(worker);
    log.push(`${name}: starts`);
    const markDone = (outcome: string) => {
      worker.done = true;
      log.push(`${name}: ${outcome}`);
    };
    ends.push(
      work(workers.worker(proxy.connectionString)).then(
        () => {
          markDone("succeeds");
          reached["workers that ended well"]++;
        },
        (error: unknown) => {
          markDone(String(error));
          if (error instanceof VaultBusy) reached["workers sent away busy"]++;
        },
      ),
    );
  }

  let workerCount = 0;
  async function startScan(): Promise<void> {
    if (random() < 0.6) changeCloud();
    if (planned.length === 0 || random() < 0.7) {
      const { tables } = workers.worker(connectionString);
      const currentVaults = await workers.plan(tables, subscriptions);
      if (currentVaults.length === 0) return;
      planned.push(oneOf(currentVaults));
    } else reached.duplicates++;
    // Usually the newest message, otherwise an older one that is delivered again although the cloud may have changed.
    const vault = planned.at(random() < 0.7 ? -1 : below(planned.length))!;
    const key = vault.name.toLowerCase();
    if (vault.action === "scan" && !scannedVaults.has(key)) reached["first scans"]++;
    scannedVaults.add(key);
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

  const heldWrites = () => running.flatMap(({ proxy }) => proxy.heldWrites);
  async function releaseOne(): Promise<void> {
    const writes = heldWrites();
    if (writes.length === 0) return;
    log.push("releases a write");
    await oneOf(writes).release();
  }

  function killOne(): void {
    const alive = running.filter(({ done }) => !done);
    if (alive.length === 0) return;
    const victim = oneOf(alive);
    victim.proxy.kill();
    victim.done = true;
    log.push(`kills worker ${running.indexOf(victim) + 1}`);
    reached.kills++;
  }

  /** Waits until every worker is done or waits for a held write, for about a second at most. */
  async function settle(): Promise<void> {
    for (let waited = 0; waited < 400; waited++) {
      const busy = running.some(({ done, proxy }) => !done && !proxy.heldWrites.some(({ clientWaits }) => clientWaits));
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
      await time.add(LEASE_EXPIRED_MS);
      log.push("leases end");
      reached["leases that ended"]++;
    } else await settle();
    const pause = random();
    if (pause < 0.5) await delay(below(25));
    else if (pause < 0.75) await settle();
  }

  const steps = 10 + below(8);
  changeCloud();
  await startScan();
  for (let index = 0; index < steps; index++) await step();
  await settle();
  // Held writes arrive before the next scan, or after it.
  const arriveAfterScan = random() < 0.5;
  for (const { done, proxy } of running) if (!done && random() < 0.5) proxy.kill();
  if (arriveAfterScan) await workers.runDeltaScan(connectionString, subscriptions, time);
  log.push(arriveAfterScan ? "a delta scan, then the held writes" : "the held writes, then a delta scan");
  while (heldWrites().length > 0) {
    await releaseOne();
    await settle();
  }
  for (const { proxy } of running) proxy.kill();
  await workers.runDeltaScan(connectionString, subscriptions, time);
  for (const { proxy } of running) {
    await proxy.stop();
    countOutcomes(proxy, reached);
  }
  await Promise.all(ends);
  return log;
}

/** Counts the situations that the responses to a worker's writes show. */
function countOutcomes({ writes }: DelayingProxy, reached: Reached): void {
  for (const { fate, method, path, applied, rejectedByFence } of writes) {
    const wasHeld = fate === "hold" || fate === "cut";
    if (wasHeld && applied) reached["held writes that landed late"]++;
    if (wasHeld && !applied) reached["held writes that were refused"]++;
    if (fate === "lose") reached["answers lost"]++;
    if (fate === "pass" && path === "$batch" && rejectedByFence) reached["transactions refused by a fence"]++;
    if (method !== "PUT" && method !== "POST") continue;
    // Single writes of fences, by which a worker takes over.
    const isAssetFence = path.startsWith("Assets(") && path.includes("RowKey='f!");
    const isResultsFence = path.startsWith("Compliance(") && path.includes("!!fence'");
    if (isAssetFence) reached["takeovers of a vault's rows"]++;
    if (isResultsFence) reached["takeovers of results"]++;
    if ((isAssetFence || isResultsFence) && wasHeld && applied) reached["takeovers that arrived late"]++;
  }
}
