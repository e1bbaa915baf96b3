import type { Cloud } from "simulated-cloud/cloud.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { createGraph, type Graph } from "../../shared/platform/azure/graph.ts";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { keyVaultRowKeys } from "../../shared/platform/azure/row-keys.ts";
import { createServiceKeyVault } from "../../shared/platform/azure/service-key-vault.ts";
import { createSignInProof } from "../../shared/platform/azure/sign-in-proof.ts";
import { createVaultSecrets } from "../../shared/platform/azure/vault-secrets.ts";
import type { Config } from "../../shared/platform/config/config.ts";
import type { Caller, Tier } from "../../shared/platform/http/endpoint.ts";
import { systemRandomness } from "../../shared/platform/runtime.ts";
import type { RowKeys } from "../../shared/platform/storage/signing.ts";
import { createTables, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type ConsumersOfSecrets, unknownConsumers } from "../../shared/rotation/consumer.ts";
import type { ClientSecretRequest, RotationRequest, VaultSecretRequest } from "../../shared/rotation/plan.ts";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { createRotations, type Rotations } from "../../shared/rotation/rotations.ts";
import { noLogs, type SecretUsage } from "../../shared/rotation/secret-usage.ts";
import type { Matches, Target } from "../../shared/rotation/targets.ts";
import { IMPATIENT, recordingLog } from "../azure/services.ts";

export const BOSS: Caller = { actor: "boss", role: "admin", requestId: "request-1" };
export const VAULT = "kv-rotation";
const POISONED = 5;
/** Simulates the platform: redelivers a message that failed. */
const AGAIN_MS = 5 * SECOND_MS;

/** The worker crashed, so none of its later calls happen. */
export class Died extends Error {
  override readonly name = "Died";
}

/** When a worker crashes: at its n-th call to storage or the cloud, before or after the call is carried out. */
export interface SimulatedCrash {
  at: number;
  how: "before" | "after" | "late";
}

interface Message {
  rotationId: string;
  at: number;
  deliveries: number;
}

/**
 * Rotations on real tables and the stand-in cloud, with queue, timer and time in the test's hands. The store's clock moves
 * with the others: what `getWithAge` returns is older by the time that passed since the row was written.
 */
export class World {
  readonly cloud: Cloud;
  config: Config;
  readonly log = recordingLog();
  readonly events: AuditEvent[] = [];
  readonly messages: Message[] = [];
  /** Every message that was ever sent, as text. */
  readonly sent: string[] = [];
  tier: Tier = "pro";
  consumers: ConsumersOfSecrets = unknownConsumers();
  /** Reads and sign-ins in logs. */
  usage: SecretUsage = noLogs;
  /** Sign-in failures of one application, or of all. */
  targets: (Target & { appId?: string })[] = [];
  matches: Matches = {
    targetsOf: async ({ appId }) => this.targets.filter((one) => (one.appId ?? appId) === appId),
    keepWritten: async () => {},
  };
  /** Overrides the answers of the directory. */
  graphOf: (real: Graph) => Graph = (real) => real;
  /** Calls of workers so far, by method. */
  readonly calls: string[] = [];
  readonly #connectionString: string;
  readonly #writtenAt = new Map<string, number>();
  /** Called after each write of a rotation's row, where a test wants to see the store at every step. */
  afterWrite: () => Promise<void> = async () => {};
  /** Calls in progress when their sender crashed. */
  readonly late: (() => Promise<unknown>)[] = [];
  #ahead = 0;
  #keys: RowKeys | undefined;

  constructor(cloud: Cloud, config: Config, connectionString: string) {
    this.cloud = cloud;
    this.config = config;
    this.#connectionString = connectionString;
    // Other worlds may have moved the cloud's clock.
    this.#ahead = Math.max(0, Date.parse(cloud.control.now()) - Date.now());
  }

  readonly clock = { now: () => new Date(Date.now() + this.#ahead) };

  /** Time passes for everybody. */
  pass(milliseconds: number): void {
    const by = Math.max(0, Math.ceil(milliseconds));
    this.#ahead += by;
    this.cloud.control.moveClock(by);
  }

  uriOf(vault: string): string {
    return `https://${vault}.${this.config.cloud.keyVaultSuffix}:${new URL(this.config.SERVICE_KEY_VAULT_URL!).port}`;
  }

  /** An application with a secret `old`, and a vault's secret that holds its value and is known to. */
  application(
    name: string,
    options: Partial<{
      secrets: { name: string; expiresInDays: number }[];
      audience: "AzureADMyOrg" | "AzureADandPersonalMicrosoftAccount";
      places: number;
    }> = {},
  ) {
    const { control } = this.cloud;
    const secrets = options.secrets ?? [{ name: "old", expiresInDays: 20 }];
    const appId = control.directory.putApplication({ name, secrets, audience: options.audience ?? "AzureADMyOrg" });
    const { keyId } = control.directory.secrets(appId).find(({ displayName }) => displayName === "old")!;
    const places = Array.from({ length: options.places ?? 1 }, (_, index) => `${name}-${index}`);
    for (const place of places) {
      control.putSecret(VAULT, {
        name: place,
        value: secretValueOf(name, "old"),
        contentType: `${name}:${appId}:${keyId}`,
        tags: { owner: "shop@acme.example", CredentialId: keyId },
      });
      control.directory.watchTarget({ appId, vault: VAULT, secret: place });
      this.targets.push({ ...this.target(place), appId });
    }
    const request: ClientSecretRequest = {
      appId,
      secretId: keyId,
      updateKeyVaults: true,
      overlapDays: 7,
      removeExpired: false,
    };
    return { appId, keyId, places, request, oldValue: secretValueOf(name, "old") };
  }

  /** A vault's secret that is no application's, with the request for a new value. */
  vaultSecret(secretName: string, oldValue: string, value: string): VaultSecretRequest {
    this.cloud.control.putSecret(VAULT, { name: secretName, value: oldValue, tags: { owner: "shop@acme.example" } });
    return { secret: { vaultName: VAULT, vaultUri: this.uriOf(VAULT), secretName }, value, overlapDays: 0 };
  }

  target(secretName: string, rest: Partial<Target> = {}): Target {
    return {
      vaultName: VAULT,
      vaultUri: this.uriOf(VAULT),
      secretName,
      vaultId: this.cloud.control.vaultId(rest.vaultName ?? VAULT) ?? "",
      confidence: "certain",
      standing: "rotated",
      ...rest,
    };
  }

  /** Creates an instance of the service. With `death` it crashes at that call. */
  start(death?: SimulatedCrash): Rotations {
    const { config, log, clock } = this;
    const life = { calls: 0, dead: false };
    const crashable = <T extends object>(name: string, whole: T): T => this.#crashable(name, whole, life, death);
    const identity = createIdentity(config);
    const cloud = { config, identity, log, limits: IMPATIENT };
    const vaults = createVaultSecrets(cloud);
    const proof = createSignInProof(config);
    const { tenantId } = this.cloud.app;
    return createRotations({
      tables: crashable("tables", this.#tables()),
      queues: crashable("queues", {
        send: async (_queue: string, message: unknown, options: { delaySeconds?: number } = {}) => {
          this.sent.push(JSON.stringify(message));
          const at = clock.now().getTime() + (options.delaySeconds ?? 0) * SECOND_MS;
          this.messages.push({ ...(message as { rotationId: string }), at, deliveries: 0 });
        },
        checkReachable: async () => {},
      }),
      settings: { values: async () => ({ defaultValidityDays: 180 }) as never },
      licensing: { tier: async () => this.tier },
      audit: crashable("audit", { append: async (event: AuditEvent) => void this.events.push(event) }),
      config,
      clock,
      randomness: systemRandomness(),
      log,
      graph: crashable("graph", this.graphOf(createGraph(cloud))),
      signIn: crashable("signIn", { once: (appId: string, secret: string) => proof(appId, secret, tenantId) }).once,
      vaults: { open: (vault) => crashable("vault", vaults.open(vault)) },
      own: crashable("own", createServiceKeyVault(cloud)!),
      matches: crashable("matches", {
        targetsOf: (app, keyId) => this.matches.targetsOf(app, keyId),
        keepWritten: (rotation) => this.matches.keepWritten(rotation),
      } satisfies Matches),
      usage: {
        readersOfOldVersion: (written) => this.usage.readersOfOldVersion(written),
        lastSignIn: (credential) => this.usage.lastSignIn(credential),
        unreadSignIns: () => this.usage.unreadSignIns(),
      },
      consumers: crashable("consumers", {
        of: (written) => this.consumers.of(written),
        refresh: (consumer, wanted) => this.consumers.refresh(consumer, wanted),
        check: (consumer, version, since) => this.consumers.check(consumer, version, since),
      } satisfies ConsumersOfSecrets),
    });
  }

  /** Wraps tables as instances use them, without crashes. */
  tables(): Tables {
    return this.#tables();
  }

  #tables(): Tables {
    const vault = createServiceKeyVault({ config: this.config, identity: createIdentity(this.config), log: this.log })!;
    this.#keys ??= keyVaultRowKeys(vault, systemRandomness());
    const tables = createTables({ connectionString: this.#connectionString }, { log: this.log, keys: this.#keys });
    const wrote = (...rowKeys: string[]) => {
      for (const key of rowKeys) this.#writtenAt.set(key, this.#ahead);
    };
    return {
      ...tables,
      getWithAge: async (e, partitionKey, rowKey) => {
        const found = await tables.getWithAge(e, partitionKey, rowKey);
        return found && { ...found, ageMs: found.ageMs + this.#ahead - (this.#writtenAt.get(rowKey) ?? 0) };
      },
      insert: async (e, partitionKey, rowKey, value) => {
        const row = await tables.insert(e, partitionKey, rowKey, value);
        wrote(rowKey);
        return row;
      },
      replace: async (e, row) => {
        const written = await tables.replace(e, row);
        wrote(row.rowKey);
        return written;
      },
      transaction: async (table, partitionKey, operations) => {
        const etags = await tables.transaction(table, partitionKey, operations);
        wrote(...operations.map(({ rowKey }) => rowKey));
        await this.afterWrite();
        return etags;
      },
    };
  }

  #crashable<T extends object>(
    name: string,
    whole: T,
    life: { calls: number; dead: boolean },
    death: SimulatedCrash | undefined,
  ): T {
    return new Proxy(whole, {
      get: (target, member) => {
        const work = Reflect.get(target, member) as unknown;
        if (typeof work !== "function") return work;
        if (member === "pages") return work.bind(target);
        return async (...parameters: unknown[]) => {
          const call = async () => (await work.apply(target, parameters)) as unknown;
          if (life.dead) throw new Died();
          this.calls.push(`${name}.${String(member)}`);
          const dies = death !== undefined && ++life.calls === death.at;
          if (!dies) return await call();
          life.dead = true;
          if (death.how === "after") await call().catch(() => {});
          if (death.how === "late") this.late.push(call);
          throw new Died();
        };
      },
    });
  }

  /** Messages are worked on as they become due, by `death` first and then by workers that live, until nothing is left. */
  async run(
    rotationId: string,
    options: { death?: SimulatedCrash; most?: number; until?: (row: RotationRecord) => boolean } = {},
  ) {
    const reader = this.start();
    let worker = this.start(options.death);
    let deaths = 0;
    let lived = options.death === undefined;
    for (let turns = 0; turns < (options.most ?? 200); turns++) {
      const row = await reader.get(rotationId);
      if (isOver(row.status) || row.status === "needsAttention" || options.until?.(row)) return { row, deaths, turns };
      this.messages.sort((a, b) => a.at - b.at);
      const message = this.messages.shift();
      const now = this.clock.now().getTime();
      // The timer runs every ten minutes. Simulating each run would take too long.
      const next = message?.at ?? Math.max(now, Date.parse(row.dueAt)) + 16 * MINUTE_MS;
      if (next > now) this.pass(next - now);
      try {
        if (message === undefined) await worker.wake();
        else await worker.work(message.rotationId, "request-of-worker");
      } catch (error) {
        if (!(error instanceof Died)) {
          if (message && ++message.deliveries === POISONED) await worker.giveUp(message.rotationId);
          else if (message) this.messages.push({ ...message, at: this.clock.now().getTime() + AGAIN_MS });
          else throw error;
          continue;
        }
        deaths++;
        if (message) this.messages.push({ ...message, at: this.clock.now().getTime() + AGAIN_MS });
        worker = this.start();
        lived = true;
        continue;
      }
      if (lived && turns % 3 === 2) for (const call of this.late.splice(0)) await call().catch(() => {});
    }
    throw new Error(`Rotation ${rotationId} does not end: ${JSON.stringify(await this.start().get(rotationId))}`);
  }

  /** Starts a rotation and runs it to its end. */
  async rotate(request: RotationRequest): Promise<RotationRecord> {
    const { rotationId } = await this.start().begin(request, BOSS);
    return (await this.run(rotationId)).row;
  }
}
