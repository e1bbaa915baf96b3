import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Identity } from "../azure/identity.ts";
import type { KeyVaults } from "../azure/key-vault.ts";
import type { ResourceManager } from "../azure/resource-manager.ts";
import type { Config } from "../config/config.ts";
import { changedSince, requireMatch } from "../http/conditional.ts";
import type { Caller } from "../http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../http/paging.ts";
import { notFound, Problem } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import { entity, type Row } from "../storage/entity.ts";
import { RowChanged, RowExists, type Tables } from "../storage/tables.ts";
import { type ConnectionTest, testConnection } from "./connection-test.ts";

/** A subscription that was added through the API. */
const SubscriptionRecord = z.object({
  /** Lower case. */
  subscriptionId: z.string(),
  name: z.string(),
  /** ISO 8601. */
  addedAt: z.string(),
  addedBy: z.string(),
  /** When its removal began, ISO 8601: from then on it is not scanned, and adding it again has to wait. */
  removingSince: z.string().optional(),
});
type SubscriptionRecord = z.infer<typeof SubscriptionRecord>;
export const SubscriptionRow = entity("Subscriptions", SubscriptionRecord);
export const SUBSCRIPTIONS_PARTITION = "subscription";

export interface Subscription {
  /** Lower case. */
  subscriptionId: string;
  name: string;
  /** `configuration`: named by AZURE_SUBSCRIPTION_IDS only. */
  source: "configuration" | "api";
  state: "active" | "removing";
  addedAt: string | null;
  addedBy: string | null;
  etag: string;
}

/** What becomes of a removed subscription's vaults and assets. */
export interface RemovedInventory {
  /** `kept` where AZURE_SUBSCRIPTION_IDS names the subscription too: it goes on being scanned. */
  outcome: "removed" | "kept";
  vaults: number;
  assets: number;
}

/** The part of the inventory that leaves with a subscription. */
export interface SubscriptionInventory {
  /** @throws {Problem} scanRunning while a scan covers the subscription: it would bring back what leaves. */
  refuseWhileScanned(subscriptionId: string): Promise<void>;
  /** Removes the subscription's vaults and assets; may be done again after a failure. */
  forget(subscriptionId: string, caller: Caller): Promise<{ vaults: number; assets: number }>;
}

export interface Subscriptions {
  /** By name. */
  list(request: PageRequest): Promise<Page<Subscription>>;
  /** @throws {Problem} notFound */
  get(subscriptionId: string): Promise<Subscription>;
  /** @throws {Problem} alreadyExists, or conflict while it is being removed. */
  add(subscription: { subscriptionId: string; name: string }, caller: Caller): Promise<Subscription>;
  /**
   * Removes a subscription that was added, and its inventory unless the configuration names it too. A removal that died
   * is finished by the next call.
   *
   * @throws {Problem} notFound; conflict when only the configuration names it; preconditionFailed when `ifMatch` is stale;
   * scanRunning while a scan covers it, and then it stays as it was.
   */
  remove(subscriptionId: string, caller: Caller, ifMatch?: string): Promise<RemovedInventory>;
  /** What the identity can do there. @throws {Problem} notFound */
  test(subscriptionId: string): Promise<ConnectionTest>;
  /** The ids to scan: those of the configuration and those added, lower case, each once. One table request. */
  configured(): Promise<string[]>;
}

export interface SubscriptionsDependencies {
  tables: Tables;
  config: Config;
  clock: Clock;
  audit: Audit;
  inventory: SubscriptionInventory;
  resourceManager: ResourceManager;
  keyVaults: KeyVaults;
  identity: Identity;
}

export function createSubscriptions(deps: SubscriptionsDependencies): Subscriptions {
  const { tables, clock, audit, inventory } = deps;
  const inConfiguration = new Set(deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase()));

  async function rows(): Promise<Row<SubscriptionRecord>[]> {
    const found: Row<SubscriptionRecord>[] = [];
    for await (const page of tables.pages(SubscriptionRow, { partitionKey: SUBSCRIPTIONS_PARTITION })) {
      found.push(...page);
    }
    return found;
  }

  const rowOf = (subscriptionId: string) => tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId);

  async function get(given: string): Promise<Subscription> {
    const subscriptionId = given.toLowerCase();
    const row = await rowOf(subscriptionId);
    if (row) return added(row);
    if (inConfiguration.has(subscriptionId)) return fromConfiguration(subscriptionId);
    throw notFound(`The subscription ${subscriptionId}`);
  }

  async function add(given: { subscriptionId: string; name: string }, caller: Caller): Promise<Subscription> {
    const subscriptionId = given.subscriptionId.toLowerCase();
    const exists = (found: SubscriptionRecord | undefined) =>
      found?.removingSince
        ? new Problem("conflict", "This subscription is being removed. Repeat its DELETE, then add it again.")
        : new Problem("alreadyExists", "This subscription is listed already. Delete it first to give it another name.");
    if (inConfiguration.has(subscriptionId)) {
      throw new Problem("alreadyExists", "AZURE_SUBSCRIPTION_IDS names this subscription already.");
    }
    const found = await rowOf(subscriptionId);
    if (found) throw exists(found);
    const record = { subscriptionId, name: given.name, addedAt: clock.now().toISOString(), addedBy: caller.actor };
    const event = { type: "subscription.added", caller, target: target(subscriptionId), after: { name: given.name } };
    return audited(audit, event, async () => {
      try {
        return added(await tables.insert(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, record));
      } catch (error) {
        if (error instanceof RowExists) throw exists(await rowOf(subscriptionId));
        throw error;
      }
    });
  }

  /** Marks it, so that no new scan takes it in; then its inventory goes, and its row last. */
  async function remove(given: string, caller: Caller, ifMatch?: string): Promise<RemovedInventory> {
    const subscriptionId = given.toLowerCase();
    const row = await rowOf(subscriptionId);
    if (!row) {
      if (!inConfiguration.has(subscriptionId)) throw notFound(`The subscription ${subscriptionId}`);
      throw new Problem("conflict", "AZURE_SUBSCRIPTION_IDS names this subscription. Take it out there.");
    }
    requireMatch(row.etag, ifMatch, SUBSCRIPTION);
    const event = {
      type: "subscription.removed",
      caller,
      target: target(subscriptionId),
      before: { name: row.name, addedAt: row.addedAt, addedBy: row.addedBy },
    };
    const leave = async (): Promise<RemovedInventory> => {
      const kept = inConfiguration.has(subscriptionId);
      if (!kept) await inventory.refuseWhileScanned(subscriptionId);
      const marked = row.removingSince ? row : await mark(row, ifMatch);
      if (!kept) await refuseNewScan(row, marked);
      const result: RemovedInventory = kept
        ? { outcome: "kept", vaults: 0, assets: 0 }
        : { outcome: "removed", ...(await inventory.forget(subscriptionId, caller)) };
      await tables.remove(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, marked.etag);
      return result;
    };
    return audited(audit, event, leave, (inventory) => ({ details: { inventory } }));
  }

  async function mark(row: Row<SubscriptionRecord>, ifMatch: string | undefined) {
    try {
      return await tables.replace(SubscriptionRow, { ...row, removingSince: clock.now().toISOString() });
    } catch (error) {
      if (error instanceof RowChanged && ifMatch !== undefined && ifMatch.trim() !== "*")
        throw changedSince(SUBSCRIPTION);
      throw error;
    }
  }

  /** A scan that began before the mark was written took the subscription in: the mark that this call made goes again. */
  async function refuseNewScan(before: Row<SubscriptionRecord>, marked: Row<SubscriptionRecord>) {
    try {
      await inventory.refuseWhileScanned(before.subscriptionId);
    } catch (error) {
      if (marked !== before) await tables.replace(SubscriptionRow, { ...before, etag: marked.etag });
      throw error;
    }
  }

  return {
    get,
    add,
    remove,

    async list(request) {
      const stored = await rows();
      const known = new Set(stored.map((row) => row.subscriptionId));
      const all = [
        ...stored.map(added),
        ...[...inConfiguration].filter((id) => !known.has(id)).map((id) => fromConfiguration(id)),
      ];
      return pageOfAll(all, request, (one) => `${one.name.toLowerCase()}\n${one.subscriptionId}`);
    },

    async test(subscriptionId) {
      await get(subscriptionId);
      return testConnection(subscriptionId.toLowerCase(), deps);
    },

    async configured() {
      const active = (await rows()).filter((row) => !row.removingSince).map((row) => row.subscriptionId);
      return [...new Set([...inConfiguration, ...active])];
    },
  };
}

const SUBSCRIPTION = "The subscription";

const target = (id: string) => ({ type: "subscription", id });

const added = (row: Row<SubscriptionRecord>): Subscription => ({
  subscriptionId: row.subscriptionId,
  name: row.name,
  source: "api",
  state: row.removingSince ? "removing" : "active",
  addedAt: row.addedAt,
  addedBy: row.addedBy,
  etag: row.etag,
});

/** The configuration gives ids only, so the id stands for the name; nothing of it can change through the API. */
const fromConfiguration = (subscriptionId: string): Subscription => ({
  subscriptionId,
  name: subscriptionId,
  source: "configuration",
  state: "active",
  addedAt: null,
  addedBy: null,
  etag: '"configuration"',
});
