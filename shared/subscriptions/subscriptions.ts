import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { SubscriptionCounts } from "../inventory/inventory.ts";
import { readScope, readScopeRow, type ScopeRecord, scopeOf } from "../inventory/scope.ts";
import type { VaultFailure } from "../inventory/vault.ts";
import type { Identity } from "../platform/azure/identity.ts";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import type { ResourceManager } from "../platform/azure/resource-manager.ts";
import { INVENTORY_READER } from "../platform/azure/watch-roles.ts";
import type { Config } from "../platform/config/config.ts";
import { conditionalWrite, entityTag, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { RowExists, type Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import { type ConnectionTest, testConnection } from "./connection-test.ts";
import { readEntries, SUBSCRIPTIONS_PARTITION, type SubscriptionRecord, SubscriptionRow } from "./entries.ts";
import { type EndedScan, type LastScan, readLastScans, recordLastScan } from "./scans.ts";
import { createScopeKeeper, forgottenBefore, type ScopeChange } from "./scope.ts";

export interface Subscription {
  /** Lower case. */
  subscriptionId: string;
  /** As it was added, else its display name in Azure, else its id. */
  name: string;
  /** `api`: added; `configuration`: named by AZURE_SUBSCRIPTION_IDS; `discovered`: seen, or known from earlier scans. */
  source: "configuration" | "api" | "discovered";
  state: "active" | "removing";
  /** Whether scans read it. */
  watched: boolean;
  /** When it left the scope, ISO 8601. */
  outOfScopeSince: string | null;
  addedAt: string | null;
  addedBy: string | null;
  /** The last scan of it that is over. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that one could not list its vaults. */
  lastFailure: VaultFailure | null;
  counts: {
    vaults: number;
    /** Those of which the last scan could read no list. */
    vaultsUnreadable: number;
    assets: number;
    /** Those whose changes arrive as events; null where events are not set up. */
    vaultsWithEvents: number;
  };
  etag: string;
}

/** What becomes of a removed subscription's vaults and assets. */
export interface RemovedInventory {
  /**
   * `kept`: it goes on being watched. `outOfScope`: they leave counts, score and alerts, and are forgotten after the
   * retention. `removed`: they are forgotten.
   */
  outcome: "removed" | "kept" | "outOfScope";
  vaults: number;
  assets: number;
}

/** What a scan is about when it is not told: the named ones, and with `all` every other one that the identity may see. */
export interface Watched {
  all: boolean;
  /** Lower case. */
  named: string[];
  /** Those that the identity was ever seen to see, lower case. */
  discovered: string[];
}

/** The part of the inventory that belongs to subscriptions. */
export interface SubscriptionInventory {
  /** By lower-cased id. */
  counts(): Promise<ReadonlyMap<string, SubscriptionCounts>>;
  /** @throws {Problem} scanRunning while a scan covers the subscription: it would bring back what leaves. */
  refuseWhileScanned(subscriptionId: string): Promise<void>;
  /** Removes the subscription's vaults and assets; may be done again after a failure. */
  forget(subscriptionId: string, caller: Caller): Promise<{ vaults: number; assets: number }>;
}

/** A page of subscriptions, with what the last scan of all that are watched says of their list. */
export interface SubscriptionPage extends Page<Subscription> {
  /** The last scan of all that is over; null before the first. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that one could not list the subscriptions, or not all of them. */
  lastFailure: VaultFailure | null;
}

export interface Subscriptions {
  /**
   * Lists those added, configured and discovered, by name. Four requests, and one per 1,000 vaults beyond the first.
   *
   * @param filter.unread - Only those that are watched and that their last scan did not read to its end, or that none has read
   * yet; those with a failure come first. False: only the others.
   */
  list(filter: { unread?: boolean | undefined }, request: PageRequest): Promise<SubscriptionPage>;
  /** Names those that are watched and that their last scan did not read to its end, or that none has read yet. */
  unread(): Promise<{ names: string[]; isListRead: boolean }>;
  /** @throws {Problem} notFound */
  get(subscriptionId: string): Promise<Subscription>;
  /** @throws {Problem} alreadyExists, or conflict while it is being removed. */
  add(
    subscription: { subscriptionId: string; name: string },
    caller: Caller,
  ): Promise<Subscription & { watching: Watching }>;
  /**
   * Removes a subscription that was added. Where it is not watched for another reason, its inventory leaves the scope. A
   * removal that died is finished by the next call.
   *
   * @param options.forget - Also forgets the inventory at once, and takes what was only discovered and is not watched or
   * not seen any more.
   * @throws {Problem} notFound; conflict when only the configuration names it, or it was only discovered; preconditionFailed
   * when `ifMatch` is stale; scanRunning while a scan covers what is to be forgotten, and then it stays as it was.
   */
  remove(
    subscriptionId: string,
    caller: Caller,
    options?: { ifMatch?: string | undefined; forget?: boolean | undefined },
  ): Promise<{ inventory: RemovedInventory; watching: Watching }>;
  /** What the identity can do there. @throws {Problem} notFound */
  test(subscriptionId: string): Promise<ConnectionTest>;
  /** What is watched, as it is written down. */
  watched(): Promise<Watched>;
  /** @throws {Problem} invalidRequest naming those that are not watched. */
  requireWatched(subscriptionIds: readonly string[]): Promise<void>;
  /** What would leave the scope and come back with this value of `watchAll`. */
  previewWatchAll(watchAll: boolean): Promise<ScopeChange>;
  /** Writes down what settings, entries and configuration come to now. */
  refreshScope(caller: Caller): Promise<void>;
  /** Keeps the names of what the identity sees; see ScopeKeeper. */
  discovered(seen: readonly { subscriptionId: string; displayName: string }[], complete: boolean): Promise<void>;
  /** Keeps a scan that is over as the last of its subscriptions. */
  scanned(scan: EndedScan): Promise<void>;
  /** Forgets the inventory of what left the scope before `outOfScopeRetentionDays`. */
  forgetOutOfScope(caller: Caller): Promise<void>;
}

/** What is watched, for whoever changes it. */
export interface Watching {
  watchAll: boolean;
  /** Those that are named, or with `watchAll` also those seen so far. */
  subscriptions: number;
  message: string;
}

export interface SubscriptionsDependencies {
  tables: Tables;
  config: Config;
  settings: Pick<Settings, "values" | "fresh">;
  clock: Clock;
  audit: Audit;
  inventory: SubscriptionInventory;
  resourceManager: ResourceManager;
  keyVaults: KeyVaults;
  identity: Identity;
}

export function createSubscriptions(deps: SubscriptionsDependencies): Subscriptions {
  const { tables, clock, audit, inventory, settings } = deps;
  const inConfiguration = new Set(deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase()));
  const keeper = createScopeKeeper({ ...deps, counts: () => inventory.counts() });

  const rowOf = (subscriptionId: string) => tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId);

  /** All there are, in no order, and the last scan of all. */
  async function all(): Promise<{ found: Subscription[]; lastScanOfAll: LastScan | undefined }> {
    const [entries, scope, scans, counts] = await Promise.all([
      readEntries(tables),
      readScopeRow(tables),
      readLastScans(tables),
      inventory.counts(),
    ]);
    const added = new Map(entries.map((entry) => [entry.subscriptionId, entry]));
    const seen = Object.keys(scope?.discovered ?? {}).filter((id) => !scope?.unseenSince[id]);
    const ids = new Set([...added.keys(), ...inConfiguration, ...seen, ...counts.keys()]);
    const known = { scope, scans: scans.of, counts };
    const found = [...ids].map((id) => shown(id, added.get(id), inConfiguration.has(id), known));
    return { found, lastScanOfAll: scans.all };
  }

  async function get(given: string): Promise<Subscription> {
    const subscriptionId = given.toLowerCase();
    const found = (await all()).found.find((one) => one.subscriptionId === subscriptionId);
    if (!found) throw notFound(`The subscription ${subscriptionId}`);
    return found;
  }

  async function add(given: { subscriptionId: string; name: string }, caller: Caller) {
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
    // An entry tells of an earlier version (before.ts): that question is settled before there can be one of this version.
    await settings.fresh();
    const record = { subscriptionId, name: given.name, addedAt: clock.now().toISOString(), addedBy: caller.actor };
    const event = { type: "subscription.added", caller, target: target(subscriptionId), after: { name: given.name } };
    await audited(audit, event, async () => {
      try {
        await tables.insert(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, record);
      } catch (error) {
        if (error instanceof RowExists) throw exists(await rowOf(subscriptionId));
        throw error;
      }
    });
    const scope = await keeper.refresh(caller);
    return { ...(await get(subscriptionId)), watching: watching(scope) };
  }

  async function remove(
    given: string,
    caller: Caller,
    { ifMatch, forget = false }: { ifMatch?: string | undefined; forget?: boolean | undefined } = {},
  ) {
    const subscriptionId = given.toLowerCase();
    const row = await rowOf(subscriptionId);
    if (!row) return await forgetDiscovered(subscriptionId, forget, caller);
    requireMatch(entityTag(row), ifMatch, SUBSCRIPTION);
    const event = {
      type: "subscription.removed",
      caller,
      target: target(subscriptionId),
      before: { name: row.name, addedAt: row.addedAt, addedBy: row.addedBy },
    };
    const leave = async () => {
      const marked = row.removingSince ? row : await mark(row, ifMatch);
      const scope = await keeper.refresh(caller);
      const inventory = await leaving(row, marked, { scope, forget, caller });
      await tables.remove(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, marked.etag);
      return { inventory, watching: watching(scope) };
    };
    return await audited(audit, event, leave, ({ inventory }) => ({ details: { inventory } }));
  }

  /** What becomes of the inventory of a subscription that is marked: it is named no more. */
  async function leaving(
    row: Row<SubscriptionRecord>,
    marked: Row<SubscriptionRecord>,
    { scope, forget, caller }: { scope: ScopeRecord; forget: boolean; caller: Caller },
  ): Promise<RemovedInventory> {
    const { subscriptionId } = row;
    if (scopeOf(scope).leftAt(subscriptionId) === undefined) return { outcome: "kept", vaults: 0, assets: 0 };
    if (!forget) {
      const { vaults = 0, assets = 0 } = (await inventory.counts()).get(subscriptionId) ?? {};
      return { outcome: "outOfScope", vaults, assets };
    }
    try {
      await inventory.refuseWhileScanned(subscriptionId);
    } catch (error) {
      // The mark that this call made goes again.
      if (marked !== row) {
        await tables.replace(SubscriptionRow, { ...row, etag: marked.etag });
        await keeper.refresh(caller);
      }
      throw error;
    }
    return { outcome: "removed", ...(await inventory.forget(subscriptionId, caller)) };
  }

  async function mark(row: Row<SubscriptionRecord>, ifMatch: string | undefined) {
    const marked = tables.replace(SubscriptionRow, { ...row, removingSince: clock.now().toISOString() });
    return await conditionalWrite(marked, ifMatch, SUBSCRIPTION);
  }

  /** One that nobody added: its inventory can be forgotten where no scan would bring it back. */
  async function forgetDiscovered(subscriptionId: string, forget: boolean, caller: Caller) {
    if (inConfiguration.has(subscriptionId))
      throw new Problem("conflict", "AZURE_SUBSCRIPTION_IDS names this subscription. Take it out there.");
    const found = await get(subscriptionId);
    if (!forget)
      throw new Problem(
        "conflict",
        "This subscription was not added but discovered. To watch only subscriptions that were added, set watchAll to false (PUT /api/settings/features). To delete the data of a subscription that is no longer watched or accessible, repeat this call with forget=true.",
      );
    const scope = await keeper.refresh(caller);
    if (scopeOf(scope).leftAt(subscriptionId) === undefined && !scope.unseenSince[subscriptionId])
      throw new Problem(
        "conflict",
        "This subscription is watched: the next scan would bring its vaults back. Set watchAll to false first (PUT /api/settings/features).",
      );
    await inventory.refuseWhileScanned(subscriptionId);
    const event = {
      type: "subscription.removed",
      caller,
      target: target(subscriptionId),
      before: { name: found.name },
    };
    const left = await audited(
      audit,
      event,
      async (): Promise<RemovedInventory> => ({
        outcome: "removed",
        ...(await inventory.forget(subscriptionId, caller)),
      }),
      (inventory) => ({ details: { inventory } }),
    );
    return { inventory: left, watching: watching(scope) };
  }

  async function forgetOutOfScope(caller: Caller): Promise<void> {
    const { outOfScopeRetentionDays } = await settings.values();
    const before = forgottenBefore(clock.now(), outOfScopeRetentionDays);
    await keeper.refresh(caller);
    const failures: unknown[] = [];
    for (const [subscriptionId, { vaults, assets }] of await inventory.counts()) {
      // Read for each: what came back to the scope meanwhile stays.
      const leftAt = (await readScope(tables)).leftAt(subscriptionId);
      if (leftAt === undefined || Date.parse(leftAt) >= before.getTime()) continue;
      const event = {
        type: "scope.forgotten",
        caller,
        target: target(subscriptionId),
        details: { outOfScopeSince: leftAt, vaults, assets },
      };
      try {
        await inventory.refuseWhileScanned(subscriptionId);
        await audited(
          audit,
          event,
          () => inventory.forget(subscriptionId, caller),
          (gone) => ({ details: { outOfScopeSince: leftAt, ...gone } }),
        );
      } catch (error) {
        // One that is being scanned or written is not the others'; the next run takes it.
        failures.push(error);
      }
    }
    await keeper.prune(before);
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1)
      throw new AggregateError(failures, `${failures.length} subscriptions could not be forgotten`);
  }

  async function requireWatched(ids: readonly string[]): Promise<void> {
    const scope = scopeOf(await keeper.current(SYSTEM));
    const unwatched = ids.filter((id) => scope.leftAt(id) !== undefined);
    if (unwatched.length === 0) return;
    const message = `${unwatched.slice(0, 10).join(", ")}: not watched. Add it with POST /subscriptions, or set watchAll to true (PUT /api/settings/features)`;
    throw new Problem("invalidRequest", `A scan reads only subscriptions that are watched. ${message}.`, {
      errors: [{ path: "body.subscriptions", message }],
    });
  }

  return {
    get,
    add,
    remove,
    forgetOutOfScope,
    requireWatched,
    discovered: keeper.discovered,
    previewWatchAll: keeper.preview,
    scanned: (scan) => recordLastScan(tables, scan),

    async list({ unread }, request) {
      const { found, lastScanOfAll } = await all();
      const { failure, ...lastScan } = lastScanOfAll ?? {};
      const fitting = unread === undefined ? found : found.filter((one) => isUnread(one) === unread);
      const rank = (one: Subscription) => (unread ? Number(one.lastFailure === null) : "");
      return {
        ...pageOfAll(fitting, request, (one) => `${rank(one)}${one.name.toLowerCase()}\n${one.subscriptionId}`),
        lastScan: "scanId" in lastScan ? lastScan : null,
        lastFailure: failure ?? null,
      };
    },

    async unread() {
      const { found, lastScanOfAll } = await all();
      const names = found.filter(isUnread).map(({ name }) => name);
      return { names: names.sort(), isListRead: lastScanOfAll?.failure === undefined };
    },

    async test(subscriptionId) {
      await get(subscriptionId);
      return testConnection(subscriptionId.toLowerCase(), deps);
    },

    async watched() {
      const { watchAll, named, discovered } = await keeper.current(SYSTEM);
      return { all: watchAll, named, discovered: Object.keys(discovered) };
    },

    async refreshScope(caller) {
      await keeper.refresh(caller);
    },
  };
}

const SUBSCRIPTION = "The subscription";
/** What no request asked for: a scan or a timer noticed it. */
const SYSTEM: Caller = { actor: "system", requestId: "scope" };

const target = (id: string) => ({ type: "subscription", id });

const plural = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

function watching({ watchAll, named, discovered, unseenSince }: ScopeRecord): Watching {
  const seen = Object.keys(discovered).filter((id) => !unseenSince[id]);
  if (watchAll) {
    return {
      watchAll,
      subscriptions: new Set([...named, ...seen]).size,
      message:
        "Every subscription that the service's identity may see is watched; adding one gives it a name and narrows nothing.",
    };
  }
  const message =
    named.length === 0
      ? "No subscription is watched: add one, or set watchAll to true."
      : `Only subscriptions that were added or configured are watched: ${plural(named.length, "subscription")} (watchAll is false).`;
  return { watchAll, subscriptions: named.length, message };
}

/** Scans that end so may have left vaults unread. */
const CUT_SHORT: readonly string[] = ["timedOut", "cancelled"];

/** Whether what is known of a watched subscription is not what its last scan would have found. */
const isUnread = ({ watched, lastScan, lastFailure }: Subscription): boolean =>
  watched && (lastFailure !== null || lastScan === null || CUT_SHORT.includes(lastScan.status));

function shown(
  subscriptionId: string,
  entry: Row<SubscriptionRecord> | undefined,
  configured: boolean,
  known: {
    scope: ScopeRecord | undefined;
    scans: ReadonlyMap<string, LastScan>;
    counts: ReadonlyMap<string, SubscriptionCounts>;
  },
): Subscription {
  const scope = scopeOf(known.scope);
  const outOfScopeSince = scope.leftAt(subscriptionId) ?? null;
  const { failure, ...lastScan } = known.scans.get(subscriptionId) ?? {};
  const counts = known.counts.get(subscriptionId);
  const unseenSince = outOfScopeSince === null ? known.scope?.unseenSince[subscriptionId] : undefined;
  return {
    subscriptionId,
    name: entry?.name ?? scope.nameOf(subscriptionId) ?? subscriptionId,
    source: entry ? "api" : configured ? "configuration" : "discovered",
    state: entry?.removingSince ? "removing" : "active",
    watched: outOfScopeSince === null,
    outOfScopeSince,
    addedAt: entry?.addedAt ?? null,
    addedBy: entry?.addedBy ?? null,
    lastScan: "scanId" in lastScan ? lastScan : null,
    lastFailure: failure ?? (unseenSince === undefined ? null : unseen(unseenSince)),
    counts: {
      vaults: counts?.vaults ?? 0,
      vaultsUnreadable: counts?.unreadable ?? 0,
      assets: counts?.assets ?? 0,
      vaultsWithEvents: counts?.withEvents ?? 0,
    },
    etag: entry ? entityTag(entry) : configured ? '"configuration"' : '"discovered"',
  };
}

const unseen = (at: string): VaultFailure => ({
  code: "notFound",
  message: "The service's identity does not see this subscription any more.",
  remedy: `Give it ${INVENTORY_READER}. If the subscription was deleted, forget its vaults with DELETE /subscriptions/{subscription_id}?forget=true.`,
  at,
});
