import type { Cloud } from "simulated-cloud/cloud.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import type { FoundEdge } from "../../shared/dependencies/query.ts";
import { createKeyConsumerReader } from "../../shared/key-rotation/consumers.ts";
import { createKeyRotation, type KeyRotation } from "../../shared/key-rotation/key-rotation.ts";
import { isOver, KEY_ROTATIONS, type RunRecord, Runs, runKey } from "../../shared/key-rotation/run.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createVaultKeys } from "../../shared/platform/azure/vault-keys.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { VAULT } from "./world.ts";

export const BOSS = { actor: "boss", requestId: "request" };
/** Time until a message of a crashed worker is redelivered, longer than the worker's lease. */
const REDELIVERY_MS = 65 * SECOND_MS;

class WorkerCrashed extends Error {}

/** The call at which a worker crashes: it is never carried out, is carried out, or is carried out a delivery later. */
export interface Crash {
  callNumber: number;
  kind: "before" | "after" | "late";
}

/** Runs rotations of keys on real tables and the simulated cloud. The test controls the queue, the timer and the clock. */
export class CrashWorld {
  readonly cloud: Cloud;
  readonly events: AuditEvent[] = [];
  /** Calls of workers as `service.method`, oldest first. */
  readonly calls: string[] = [];
  readonly tables: Tables;
  edges: FoundEdge[] = [];
  readonly #config: Config;
  readonly #messages: { runId: string; dueAtMs: number }[] = [];
  readonly #lateCalls: (() => Promise<unknown>)[] = [];
  readonly #writtenAt = new Map<string, number>();
  #offsetMs = 0;

  constructor(cloud: Cloud, config: Config, connectionString: string) {
    this.cloud = cloud;
    this.#config = config;
    const serviceVault = createServiceKeyVault({ config, identity: createIdentity(config), log: silent })!;
    const tables = createTables(
      { connectionString },
      { log: silent, keys: keyVaultRowKeys(serviceVault, systemRandomness()) },
    );
    const written = (...rowKeys: string[]) => {
      for (const key of rowKeys) this.#writtenAt.set(key, this.#offsetMs);
    };
    // The age of a row includes the time that the test skipped after its last write.
    this.tables = {
      ...tables,
      getWithAge: async (e, partitionKey, rowKey) => {
        const row = await tables.getWithAge(e, partitionKey, rowKey);
        return row && { ...row, ageMs: row.ageMs + this.#offsetMs - (this.#writtenAt.get(rowKey) ?? 0) };
      },
      replace: async (e, row) => {
        const after = await tables.replace(e, row);
        written(row.rowKey);
        return after;
      },
      transaction: async (table, partitionKey, operations) => {
        const etags = await tables.transaction(table, partitionKey, operations);
        written(...operations.map(({ rowKey }) => rowKey));
        return etags;
      },
    };
  }

  readonly clock = { now: () => new Date(Date.now() + this.#offsetMs) };

  advanceClock(milliseconds: number): void {
    const whole = Math.max(0, Math.ceil(milliseconds));
    this.#offsetMs += whole;
    this.cloud.control.moveClock(whole);
  }

  get vaultUri(): string {
    return `https://${VAULT}.${this.#config.cloud.keyVaultSuffix}:${new URL(this.#config.SERVICE_KEY_VAULT_URL!).port}`;
  }

  versions(key: string): string[] {
    return this.cloud.control.keyVersions(VAULT, key)!;
  }

  /** Creates a worker. With `crash` it crashes at that call, and each later call fails. */
  start(crash?: Crash): KeyRotation {
    const config = this.#config;
    const worker = { calls: 0, hasCrashed: false };
    const crashable = <T extends object>(name: string, service: T): T => this.#crashable(name, service, worker, crash);
    const limits = { firstWaitMs: 1, requestTimeoutMs: 1_000 };
    const services = { config, identity: createIdentity(config), log: silent, limits };
    const vaults = createVaultKeys(services);
    const dependencies = {
      edgesOf: async () => ({ edges: this.edges, more: false }),
      coverage: async () => ({ items: [], total: 0, limit: 1, offset: 0, nextCursor: null, lastFullAt: "2026-11-20" }),
    };
    const asset = { vaultName: VAULT, type: "key", vaultId: this.cloud.control.vaultId(VAULT)!, subscriptionId: "one" };
    return createKeyRotation({
      tables: crashable("tables", this.tables),
      queues: crashable("queues", {
        send: async (_queue: string, message: unknown, { delaySeconds = 0 }: { delaySeconds?: number } = {}) => {
          const dueAtMs = this.clock.now().getTime() + delaySeconds * SECOND_MS;
          this.#messages.push({ ...(message as { runId: string }), dueAtMs });
        },
        checkReachable: async () => {},
      }),
      audit: crashable("audit", {
        append: async (event: AuditEvent) => {
          if (event.id === undefined || !this.events.some(({ id }) => id === event.id)) this.events.push(event);
        },
      }),
      vaults: { open: (vault) => crashable("vault", vaults.open(vault)) },
      consumers: crashable("consumers", createKeyConsumerReader({ dependencies, arm: createArm(services), config })),
      vaultChanged: crashable("inventory", { once: async () => {} }).once,
      ended: crashable("alerts", { once: async () => {} }).once,
      config,
      inventory: {
        assets: { get: async (id) => ({ asset: { ...asset, name: id.split(".")[2] } }) as never },
        moment: async () => ({}) as never,
      },
      settings: { values: async () => ({ rotationRetentionDays: 365 }) as never },
      clock: this.clock,
      randomness: systemRandomness(),
      log: silent,
    });
  }

  #crashable<T extends object>(
    name: string,
    whole: T,
    worker: { calls: number; hasCrashed: boolean },
    crash: Crash | undefined,
  ): T {
    return new Proxy(whole, {
      get: (target, member) => {
        const method = Reflect.get(target, member) as unknown;
        if (typeof method !== "function") return method;
        if (member === "pages") return method.bind(target);
        return async (...parameters: unknown[]) => {
          const call = async () => (await method.apply(target, parameters)) as unknown;
          if (worker.hasCrashed) throw new WorkerCrashed();
          this.calls.push(`${name}.${String(member)}`);
          if (crash === undefined || ++worker.calls !== crash.callNumber) return await call();
          worker.hasCrashed = true;
          if (crash.kind === "after") await call().catch(() => {});
          if (crash.kind === "late") this.#lateCalls.push(call);
          throw new WorkerCrashed();
        };
      },
    });
  }

  /**
   * Delivers messages as they become due, each twice, until the run ends or fulfills `until`. The first worker crashes as `crash`
   * says, and a new worker then continues.
   *
   * @throws {Error} after 100 deliveries.
   */
  async run(
    runId: string,
    { crash, until }: { crash?: Crash; until?: (run: RunRecord) => boolean } = {},
  ): Promise<{ run: RunRecord; crashes: number }> {
    let worker = this.start(crash);
    let crashes = 0;
    for (let delivery = 0; delivery < 100; delivery++) {
      const row = (await this.tables.get(Runs, KEY_ROTATIONS, runKey(runId)))!;
      if (isOver(row.status) || until?.(row)) return { run: row, crashes };
      this.#messages.sort((a, b) => a.dueAtMs - b.dueAtMs);
      const message = this.#messages.shift();
      const now = this.clock.now().getTime();
      const next = message?.dueAtMs ?? Math.max(now, Date.parse(row.dueAt)) + MINUTE_MS;
      if (next > now) this.advanceClock(next - now);
      try {
        if (message === undefined) await worker.continueDue();
        // Both deliveries at the same time.
        else await Promise.all([worker.handle(message, BOSS), worker.handle(message, BOSS)]);
        for (const call of this.#lateCalls.splice(0)) await call().catch(() => {});
      } catch (error) {
        if (!(error instanceof WorkerCrashed)) throw error;
        crashes++;
        if (message) this.#messages.push({ ...message, dueAtMs: this.clock.now().getTime() + REDELIVERY_MS });
        worker = this.start();
      }
    }
    throw new Error(`The run does not end: ${JSON.stringify(await this.start().get(runId))}`);
  }
}

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
