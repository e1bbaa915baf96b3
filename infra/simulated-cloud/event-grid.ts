import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { QueueClient } from "@azure/storage-queue";
import type { CloudClock } from "./clock.ts";
import type { AssetKind } from "./company/company.ts";
import { current, type Version } from "./vaults/items.ts";
import type { Vault } from "./vaults/vault.ts";
import type { ResourceChange } from "./vaults/vault-store.ts";

/** Where and how Event Grid delivers the events of the company's vaults and subscriptions. */
export interface EventDelivery {
  /** Connection string of a storage account. */
  connectionString: string;
  queue: string;
  /** Schema of events. Default `EventGridSchema`. */
  schema?: "EventGridSchema" | "CloudEventSchemaV1_0";
  /** Names of the vaults whose events are sent. Default: all. */
  vaults?: readonly string[];
  /** IDs of the subscriptions whose Azure Resource Manager events are sent. Default: all. */
  subscriptions?: readonly string[];
  /** Number of deliveries of each event. Event Grid guarantees at least one. Default 1. */
  copies?: number;
  /**
   * Minimum and maximum delay in seconds. Each copy has a random delay in this range, so that events also arrive out of order.
   */
  delaySeconds?: readonly [number, number];
}

export const EXPIRY_EVENTS = ["NearExpiry", "Expired"] as const;
export type ExpiryEvent = (typeof EXPIRY_EVENTS)[number];

const OBJECT_TYPES = { secrets: "Secret", keys: "Key", certificates: "Certificate" } as const;
/** Delays before the retries of a failed delivery. Event Grid waits longer. */
const RETRY_DELAYS_MS = [100, 500, 2000];

interface Event {
  type: string;
  source: string;
  subject: string;
  data: object;
  dataVersion: string;
}

/**
 * Simulates Event Grid system topics that deliver to a storage queue: one event per message, base64 of JSON, in either schema.
 * Sends events for new versions in vaults, for expiry events that a test requests, and for vaults that Azure Resource Manager
 * wrote or deleted. Deleted secrets send no event, as in Azure.
 * https://learn.microsoft.com/azure/event-grid/event-schema-key-vault
 * https://learn.microsoft.com/azure/event-grid/event-schema-subscriptions
 */
export class EventGrid {
  readonly #clock: CloudClock;
  readonly #tenantId: string;
  readonly #vaultUri: (vault: Vault) => string;
  #delivery: EventDelivery | undefined;
  #queue: Promise<QueueClient> | undefined;
  /** Deliveries in progress. */
  readonly #sending = new Set<Promise<void>>();
  #delivered = 0;
  #lost = 0;

  constructor(options: { clock: CloudClock; tenantId: string; vaultUri: (vault: Vault) => string }) {
    this.#clock = options.clock;
    this.#tenantId = options.tenantId;
    this.#vaultUri = options.vaultUri;
  }

  /** Sets the delivery target. Undefined stops the delivery. Creates a missing queue, as a deployment does. */
  async deliver(delivery: EventDelivery | undefined): Promise<void> {
    await this.waitUntilSent();
    this.#delivery = delivery;
    this.#queue = delivery && queueOf(delivery);
    await this.#queue;
  }

  /** Returns the number of delivered events (with duplicates) and of failed deliveries. Waits for deliveries in progress. */
  async counts(): Promise<{ delivered: number; lost: number }> {
    await this.waitUntilSent();
    return { delivered: this.#delivered, lost: this.#lost };
  }

  /** Waits until each event is delivered or lost. */
  async waitUntilSent(): Promise<void> {
    await Promise.all(this.#sending);
  }

  /** Sends the events of a change. The vault store calls it for each change. */
  sendChange(change: ResourceChange): void {
    switch (change.what) {
      case "version":
        this.#sendItemEvent(change.vault, change.kind, change.item, "NewVersionCreated");
        return;
      case "written":
        this.#sendResourceEvent(change.vault, "Write");
        if (change.policy) this.#sendPolicyEvent(change.vault);
        return;
      case "deleted":
        this.#sendResourceEvent(change.vault, "Delete");
    }
  }

  /** Sends an event about the expiry of an item in a vault. */
  sendExpiry(vault: Vault, kind: AssetKind, name: string, event: ExpiryEvent): void {
    const item = vault.collections[kind].get(name);
    if (item === undefined) throw new Error(`No ${name} among the ${kind} of ${vault.name}`);
    this.#sendItemEvent(vault, kind, item, event);
  }

  #sendItemEvent(vault: Vault, kind: AssetKind, item: { name: string; versions: Version[] }, event: string): void {
    const { id, notBefore, expires } = current(item);
    const type = OBJECT_TYPES[kind];
    this.#sendVaultEvent(vault, `${type}${event}`, item.name, {
      Id: `${this.#vaultUri(vault)}${kind}/${item.name}/${id}`,
      VaultName: vault.name,
      ObjectType: type,
      ObjectName: item.name,
      Version: id,
      NBF: notBefore ?? null,
      EXP: expires ?? null,
    });
  }

  #sendPolicyEvent(vault: Vault): void {
    const data = { Id: this.#vaultUri(vault), VaultName: vault.name, ObjectType: "Vault", ObjectName: vault.name };
    this.#sendVaultEvent(vault, "VaultAccessPolicyChanged", vault.name, {
      ...data,
      Version: null,
      NBF: null,
      EXP: null,
    });
  }

  #sendVaultEvent(vault: Vault, event: string, subject: string, data: object): void {
    if (!includesName(this.#delivery?.vaults, vault.name)) return;
    this.#send({ type: `Microsoft.KeyVault.${event}`, source: vault.id, subject, data, dataVersion: "1" });
  }

  #sendResourceEvent(vault: Vault, verb: "Write" | "Delete"): void {
    if (!includesName(this.#delivery?.subscriptions, vault.subscriptionId)) return;
    const action = `Microsoft.KeyVault/vaults/${verb.toLowerCase()}`;
    const data = {
      authorization: { scope: vault.id, action, evidence: { role: "Contributor" } },
      claims: { name: "Somebody of the company", ipaddr: "198.51.100.7" },
      correlationId: randomUUID(),
      resourceProvider: "Microsoft.KeyVault",
      resourceUri: vault.id,
      operationName: action,
      status: "Succeeded",
      subscriptionId: vault.subscriptionId,
      tenantId: this.#tenantId,
    };
    const type = `Microsoft.Resources.Resource${verb}Success`;
    const source = `/subscriptions/${vault.subscriptionId}`;
    this.#send({ type, source, subject: vault.id, data, dataVersion: "2" });
  }

  #send(event: Event): void {
    const [delivery, queue] = [this.#delivery, this.#queue];
    if (delivery === undefined || queue === undefined) return;
    const text = JSON.stringify(formatEvent(event, delivery.schema, new Date(this.#clock.now()).toISOString()));
    const [minDelay, maxDelay] = delivery.delaySeconds ?? [0, 0];
    for (let copy = 0; copy < (delivery.copies ?? 1); copy++) {
      const visibilityTimeout = Math.round(minDelay + Math.random() * (maxDelay - minDelay));
      const sending = this.#putMessage(queue, Buffer.from(text).toString("base64"), visibilityTimeout);
      this.#sending.add(sending);
      void sending.then(() => this.#sending.delete(sending));
    }
  }

  /** Delivers an event. Never throws: a failed delivery is counted, and its event is lost. */
  async #putMessage(queue: Promise<QueueClient>, message: string, visibilityTimeout: number): Promise<void> {
    for (const wait of [...RETRY_DELAYS_MS, undefined]) {
      try {
        await (await queue).sendMessage(message, { visibilityTimeout });
        this.#delivered++;
        return;
      } catch {
        if (wait === undefined) this.#lost++;
        else await delay(wait);
      }
    }
  }
}

async function queueOf({ connectionString, queue }: EventDelivery): Promise<QueueClient> {
  const { QueueClient } = await import("@azure/storage-queue");
  const client = new QueueClient(connectionString, queue, { retryOptions: { maxTries: 1 } });
  await client.createIfNotExists();
  return client;
}

/** Formats an event: https://learn.microsoft.com/azure/event-grid/event-schema and …/cloud-event-schema */
function formatEvent(
  { type, source, subject, data, dataVersion }: Event,
  schema: EventDelivery["schema"],
  time: string,
) {
  const id = randomUUID();
  if (schema === "CloudEventSchemaV1_0") return { id, source, subject, type, time, data, specversion: "1.0" };
  return {
    id,
    topic: source,
    subject,
    eventType: type,
    eventTime: time,
    data,
    dataVersion,
    metadataVersion: "1",
  };
}

/** Returns whether the list contains the name, ignoring case. Without a list, every name matches. */
const includesName = (names: readonly string[] | undefined, name: string): boolean =>
  names === undefined || names.some((one) => one.toLowerCase() === name.toLowerCase());
