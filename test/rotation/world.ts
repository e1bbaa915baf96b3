import type { Cloud } from "simulated-cloud/cloud.ts";
import { secretValueOf } from "simulated-cloud/company/applications.ts";
import type { AuditEvent } from "../../shared/audit/event.ts";
import { createArm } from "../../shared/platform/azure/arm.ts";
import type { CallLimits } from "../../shared/platform/azure/calls.ts";
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
import { createTables, StorageCorrupt, type Tables } from "../../shared/platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../../shared/platform/time.ts";
import { type ConsumersOfSecrets, unknownConsumers } from "../../shared/rotation/consumer.ts";
import { heldCopyName } from "../../shared/rotation/held-copies.ts";
import type { ChangedApplication } from "../../shared/rotation/inventory-updates.ts";
import type { ClientSecretRequest, RotationRequest, VaultSecretRequest } from "../../shared/rotation/request.ts";
import { createKeysClient, type KeysClient } from "../../shared/rotation/resource-keys/keys-client.ts";
import { createKeyLinks } from "../../shared/rotation/resource-keys/links.ts";
import { isOver, type RotationRecord } from "../../shared/rotation/rotation.ts";
import { createRotations, type Rotations } from "../../shared/rotation/rotations.ts";
import { noLogs, type SecretUsage } from "../../shared/rotation/secret-usage.ts";
import type { Matches, Target } from "../../shared/rotation/targets.ts";
import { recordingLog, SHORT_WAITS } from "../azure/services.ts";

/** Administrator who starts rotations in tests. */
export const BOSS: Caller = { actor: "boss", role: "admin", requestId: "request-1" };
/** Vault that stores the client secrets of the test applications. */
export const VAULT = "kv-rotation";
/** The service's own vault, which stores a copy of a new value until the rotation ends. */
export const SERVICE_VAULT = "kv-lifecycle-service";
/** Number of failed deliveries after which a message is given up: `run` then calls `giveUp`, as the poison queue does. */
const MAX_DELIVERIES = 5;
/** The timer continues a rotation whose message was lost once it is overdue by 15 minutes. */
const OVERDUE_MS = 16 * MINUTE_MS;
/** Delay before a message whose processing failed is delivered again. */
const REDELIVERY_DELAY_MS = 5 * SECOND_MS;

/** Thrown by the call at which a simulated worker crashes, and by each call that the crashed worker still makes. */
export class WorkerCrashed extends Error {
  override readonly name = "WorkerCrashed";
}

/** Describes when a worker crashes. */
export interface SimulatedCrash {
  /** Number of the call to storage or the cloud at which the worker crashes, counted from 1. */
  callNumber: number;
  /** Whether the call is never carried out, carried out before the crash, or carried out when another worker has continued. */
  crashKind: "before" | "after" | "late";
}

interface Message {
  rotationId: string;
  dueAtMs: number;
  deliveries: number;
}

/**
 * Runs rotations on real tables and the simulated cloud. The test controls the queue, the timer and the clock.
 * `advanceClock` also ages stored rows: `getWithAge` returns ages that include the time that the test skipped.
 */
export class World {
  readonly cloud: Cloud;
  config: Config;
  readonly log = recordingLog();
  readonly events: AuditEvent[] = [];
  readonly messages: Message[] = [];
  /** JSON of each message that was sent, also of delivered ones. */
  readonly sent: string[] = [];
  tier: Tier = "pro";
  consumers: ConsumersOfSecrets = unknownConsumers();
  /** Limits of the calls to Azure. */
  limits: Partial<CallLimits> = SHORT_WAITS;
  /** Log of secret reads and sign-ins. Tests replace it. */
  usage: SecretUsage = noLogs;
  /**
   * Vault secrets that a rotation of `appId` writes. Without `appId` the entry applies to every application. `matches` leaves out
   * those that now store another client secret of the application.
   */
  targets: (Target & { appId?: string })[] = [];
  matches: Matches = {
    targetsOf: async ({ appId }, keyId) =>
      this.targets.filter((one) => (one.appId ?? appId) === appId && !this.#storesOtherSecret(one, appId, keyId)),
    recordWrittenPlaces: async () => {},
  };
  /** Wraps the Microsoft Graph client, so that a test can change its responses. */
  graphOf: (real: Graph) => Graph = (real) => real;
  /** Wraps the client of keys of Azure resources, so that a test can change its responses. */
  keysOf: (real: KeysClient) => KeysClient = (real) => real;
  /** Calls that workers made to storage and the cloud, as `service.method`, oldest first. */
  readonly calls: string[] = [];
  /** Requests to update the inventory: the changed applications, and the names of the changed vaults, oldest first. */
  readonly inventoryUpdates: (ChangedApplication | string)[] = [];
  /** Whether requests to update the inventory fail. "rowUnreadable": because its row can't be read, which stops no rotation. */
  inventoryFails: boolean | "rowUnreadable" = false;
  /** Whether the queue rejects messages. */
  queueFails = false;
  readonly #connectionString: string;
  /** How far the clock was ahead at the last write of each row, by row key. */
  readonly #writtenAt = new Map<string, number>();
  /** Runs after each table transaction. A test can read the store at every step here. */
  afterWrite: () => Promise<void> = async () => {};
  /** Calls of crashed workers that `run` carries out later, as if the network had delayed them. */
  readonly callsAfterCrash: (() => Promise<unknown>)[] = [];
  #clockOffsetMs = 0;
  #keys: RowKeys | undefined;

  constructor(cloud: Cloud, config: Config, connectionString: string) {
    this.cloud = cloud;
    this.config = config;
    this.#connectionString = connectionString;
    // Other worlds may have moved the cloud's clock.
    this.#clockOffsetMs = Math.max(0, Date.parse(cloud.control.now()) - Date.now());
  }

  readonly clock = { now: () => new Date(Date.now() + this.#clockOffsetMs) };

  /** Moves the clocks of the service, the tables and the cloud forward. */
  advanceClock(milliseconds: number): void {
    const wholeMilliseconds = Math.max(0, Math.ceil(milliseconds));
    this.#clockOffsetMs += wholeMilliseconds;
    this.cloud.control.moveClock(wholeMilliseconds);
  }

  vaultUriOf(vault: string): string {
    return `https://${vault}.${this.config.cloud.keyVaultSuffix}:${new URL(this.config.SERVICE_KEY_VAULT_URL!).port}`;
  }

  /** Adds an application with a client secret `old`, and `places` vault secrets that store its value and are its targets. */
  addApplication(
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

  /** Returns whether a vault secret stores another client secret of the application. */
  #storesOtherSecret({ vaultName, secretName }: Target, appId: string, keyId: string): boolean {
    const { control } = this.cloud;
    const value = control.secretValue(vaultName, secretName);
    const stored = value === undefined ? undefined : control.directory.keyIdOf(appId, value);
    return stored !== undefined && stored !== keyId;
  }

  /** Adds a vault secret that belongs to no application. Returns the request that gives the secret a new value. */
  addVaultSecret(secretName: string, oldValue: string, value: string): VaultSecretRequest {
    this.cloud.control.putSecret(VAULT, { name: secretName, value: oldValue, tags: { owner: "shop@acme.example" } });
    return { secret: { vaultName: VAULT, vaultUri: this.vaultUriOf(VAULT), secretName }, value, overlapDays: 0 };
  }

  /** Returns a target that a rotation may write: the service is certain what it stores, and an earlier rotation wrote it. */
  target(secretName: string, rest: Partial<Target> = {}): Target {
    return {
      vaultName: VAULT,
      vaultUri: this.vaultUriOf(VAULT),
      secretName,
      vaultId: this.cloud.control.vaultId(rest.vaultName ?? VAULT) ?? "",
      confidence: "certain",
      knownAs: "rotated",
      ...rest,
    };
  }

  /** Creates an instance of the rotation service, here called a worker. With `crash` it crashes at that call. */
  start(crash?: SimulatedCrash): Rotations {
    const { config, log, clock } = this;
    const worker = { calls: 0, hasCrashed: false };
    const crashable = <T extends object>(name: string, service: T): T => this.#crashable(name, service, worker, crash);
    const identity = createIdentity(config);
    const cloud = { config, identity, log, limits: this.limits };
    const vaults = createVaultSecrets(cloud);
    const proof = createSignInProof(config);
    const { tenantId } = this.cloud.app;
    const tables = this.#tables();
    const keys = createKeysClient(createArm(cloud), config.cloud, { checks: 6, firstWaitMs: 1 });
    const keyLinks = createKeyLinks({ tables, config, vaults, keys, index: { findSecrets: async () => [] }, log });
    return createRotations({
      tables: crashable("tables", tables),
      queues: crashable("queues", {
        send: async (_queue: string, message: unknown, options: { delaySeconds?: number } = {}) => {
          if (this.queueFails) throw new Error("The queue rejects messages.");
          this.sent.push(JSON.stringify(message));
          const dueAtMs = clock.now().getTime() + (options.delaySeconds ?? 0) * SECOND_MS;
          this.messages.push({ ...(message as { rotationId: string }), dueAtMs, deliveries: 0 });
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
      // `crashable` wraps the methods of an object, and this dependency is a function.
      signIn: crashable("signIn", { once: (appId: string, secret: string) => proof(appId, secret, tenantId) }).once,
      vaults: { open: (vault) => crashable("vault", vaults.open(vault)) },
      serviceVault: crashable("own", createServiceKeyVault(cloud)!),
      matches: crashable("matches", {
        targetsOf: (app, keyId) => this.matches.targetsOf(app, keyId),
        recordWrittenPlaces: (rotation) => this.matches.recordWrittenPlaces(rotation),
      } satisfies Matches),
      keys: crashable("keys", this.keysOf(keys)),
      keyLinks: crashable("keyLinks", keyLinks),
      inventory: crashable("inventory", {
        applicationChanged: async (application: ChangedApplication) => this.#updateInventory(application),
        vaultChanged: async (vaultName: string) => this.#updateInventory(vaultName),
      }),
      usage: {
        readersOfOldVersion: (written) => this.usage.readersOfOldVersion(written),
        lastSignIn: (credential) => this.usage.lastSignIn(credential),
        unreadSignIns: () => this.usage.unreadSignIns(),
      },
      consumers: crashable("consumers", {
        findConsumers: (written) => this.consumers.findConsumers(written),
        currentProblem: (consumer) => this.consumers.currentProblem(consumer),
        refresh: (consumer, wanted) => this.consumers.refresh(consumer, wanted),
        check: (consumer, version, since) => this.consumers.check(consumer, version, since),
      } satisfies ConsumersOfSecrets),
    });
  }

  #updateInventory(what: ChangedApplication | string): void {
    if (this.inventoryFails === "rowUnreadable")
      throw new StorageCorrupt("Vaults", { partitionKey: "vaults", rowKey: "shop", etag: "" }, "changed");
    if (this.inventoryFails) throw new Error("The inventory can't be asked.");
    this.inventoryUpdates.push(what);
  }

  /** Returns the copies of new secrets that the service's own vault stores until a rotation ends, as names and values. */
  heldCopiesOf({ rotationId, attempts }: RotationRecord): [name: string, value: string][] {
    return attempts.flatMap(({ keyId }) => {
      const name = heldCopyName(rotationId, keyId);
      const value = this.cloud.control.secretValue(SERVICE_VAULT, name);
      return keyId === undefined || value === undefined ? [] : [[name, value]];
    });
  }

  /** Stores copies again that the service deleted, as a user does who recovers deleted secrets of the service's own vault. */
  restoreHeldCopies(copies: readonly [name: string, value: string][]): void {
    for (const [name, value] of copies) this.cloud.control.putSecret(SERVICE_VAULT, { name, value });
  }

  /** Returns the tables that workers use, without simulated crashes. */
  tables(): Tables {
    return this.#tables();
  }

  #tables(): Tables {
    const vault = createServiceKeyVault({ config: this.config, identity: createIdentity(this.config), log: this.log })!;
    this.#keys ??= keyVaultRowKeys(vault, systemRandomness());
    const tables = createTables({ connectionString: this.#connectionString }, { log: this.log, keys: this.#keys });
    // The age of a row includes only the time that was skipped after its last write.
    const recordWriteTime = (...rowKeys: string[]) => {
      for (const key of rowKeys) this.#writtenAt.set(key, this.#clockOffsetMs);
    };
    return {
      ...tables,
      getWithAge: async (e, partitionKey, rowKey) => {
        const row = await tables.getWithAge(e, partitionKey, rowKey);
        return row && { ...row, ageMs: row.ageMs + this.#clockOffsetMs - (this.#writtenAt.get(rowKey) ?? 0) };
      },
      insert: async (e, partitionKey, rowKey, value) => {
        const row = await tables.insert(e, partitionKey, rowKey, value);
        recordWriteTime(rowKey);
        return row;
      },
      replace: async (e, row) => {
        const written = await tables.replace(e, row);
        recordWriteTime(row.rowKey);
        return written;
      },
      transaction: async (table, partitionKey, operations) => {
        const etags = await tables.transaction(table, partitionKey, operations);
        recordWriteTime(...operations.map(({ rowKey }) => rowKey));
        await this.afterWrite();
        return etags;
      },
    };
  }

  /** Wraps a service so that each method call is counted, recorded in `calls`, and can be the one at which the worker crashes. */
  #crashable<T extends object>(
    name: string,
    whole: T,
    worker: { calls: number; hasCrashed: boolean },
    crash: SimulatedCrash | undefined,
  ): T {
    return new Proxy(whole, {
      get: (target, member) => {
        const method = Reflect.get(target, member) as unknown;
        if (typeof method !== "function") return method;
        // Returns an iterator, not a promise, so its calls don't crash.
        if (member === "pages") return method.bind(target);
        return async (...parameters: unknown[]) => {
          const call = async () => (await method.apply(target, parameters)) as unknown;
          if (worker.hasCrashed) throw new WorkerCrashed();
          this.calls.push(`${name}.${String(member)}`);
          const crashesNow = crash !== undefined && ++worker.calls === crash.callNumber;
          if (!crashesNow) return await call();
          worker.hasCrashed = true;
          if (crash.crashKind === "after") await call().catch(() => {});
          if (crash.crashKind === "late") this.callsAfterCrash.push(call);
          throw new WorkerCrashed();
        };
      },
    });
  }

  /**
   * Delivers messages as they become due until the rotation ends, needs attention or fulfills `until`. The first worker
   * crashes as `crash` says, and a new worker then continues.
   *
   * @returns the rotation, and the number of crashes (0 or 1).
   * @throws Error after `most` deliveries, 200 by default.
   */
  async run(
    rotationId: string,
    options: { crash?: SimulatedCrash; most?: number; until?: (row: RotationRecord) => boolean } = {},
  ) {
    const reader = this.start();
    let worker = this.start(options.crash);
    let crashCount = 0;
    let crashIsOver = options.crash === undefined;
    for (let deliveryCount = 0; deliveryCount < (options.most ?? 200); deliveryCount++) {
      const row = await reader.get(rotationId);
      if (isOver(row.status) || row.status === "needsAttention" || options.until?.(row)) return { row, crashCount };
      this.messages.sort((a, b) => a.dueAtMs - b.dueAtMs);
      const message = this.messages.shift();
      const now = this.clock.now().getTime();
      // Without a message the rotation waits for the timer. Skip to a time at which the timer continues the rotation.
      const next = message?.dueAtMs ?? Math.max(now, Date.parse(row.dueAt)) + OVERDUE_MS;
      if (next > now) this.advanceClock(next - now);
      try {
        if (message === undefined) await worker.continueOverdue();
        else await worker.work(message.rotationId, "request-of-worker");
      } catch (error) {
        if (!(error instanceof WorkerCrashed)) {
          if (message && ++message.deliveries === MAX_DELIVERIES) await worker.giveUp(message.rotationId);
          else if (message)
            this.messages.push({ ...message, dueAtMs: this.clock.now().getTime() + REDELIVERY_DELAY_MS });
          else throw error;
          continue;
        }
        crashCount++;
        if (message) this.messages.push({ ...message, dueAtMs: this.clock.now().getTime() + REDELIVERY_DELAY_MS });
        worker = this.start();
        crashIsOver = true;
        continue;
      }
      // Delayed calls of a crashed worker take effect at every third delivery after another worker has continued.
      if (crashIsOver && deliveryCount % 3 === 2)
        for (const call of this.callsAfterCrash.splice(0)) await call().catch(() => {});
    }
    throw new Error(`Rotation ${rotationId} does not complete: ${JSON.stringify(await this.start().get(rotationId))}`);
  }

  /** Starts a rotation and runs it until it ends or needs attention. */
  async rotate(request: RotationRequest): Promise<RotationRecord> {
    const { rotationId } = await this.start().begin(request, BOSS);
    return (await this.run(rotationId)).row;
  }
}
