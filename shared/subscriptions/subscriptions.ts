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
import {
  readEntries,
  SUBSCRIPTIONS_PARTITION,
  type SubscriptionRecord,
  SubscriptionRow,
} from "./added-subscriptions.ts";
import { type ConnectionTest, testConnection } from "./connection-test.ts";
import { type EndedScan, type LastScan, readLastScans, recordLastScan } from "./last-scans.ts";
import { createScopeKeeper, forgottenBefore, type ScopeChange } from "./scope.ts";

export interface Subscription {
  /** Lower case. */
  subscriptionId: string;
  /** The name with which it was added, else its display name in Azure, else its ID. */
  name: string;
  /**
   * `api`: added through the API. `configuration`: named in AZURE_SUBSCRIPTION_IDS. `discovered`: readable by the identity, or
   * known from earlier scans.
   */
  source: "configuration" | "api" | "discovered";
  state: "active" | "removing";
  /** Whether scans read it. */
  watched: boolean;
  /** When it left the scope, ISO 8601. */
  outOfScopeSince: string | null;
  addedAt: string | null;
  addedBy: string | null;
  /** The last ended scan of it. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that scan could not list its vaults. */
  lastFailure: VaultFailure | null;
  counts: {
    vaults: number;
    /** Vaults none of whose lists the last scan could read. */
    vaultsUnreadable: number;
    assets: number;
    /** Vaults whose changes arrive as events. Null if events are not set up. */
    vaultsWithEvents: number;
  };
  etag: string;
}

/** What happens to a removed subscription's vaults and assets. */
export interface RemovedInventory {
  /**
   * `kept`: the subscription stays in scope. `outOfScope`: they are excluded from counts, score and alerts, and deleted after
   * the retention period. `removed`: they are deleted.
   */
  outcome: "removed" | "kept" | "outOfScope";
  vaults: number;
  assets: number;
}

/**
 * The scope of scans without an explicit list: the named subscriptions, and with `all` all others that the identity can read.
 */
export interface Watched {
  all: boolean;
  /** Lower case. */
  named: string[];
  /** Subscriptions that the identity could ever read, in lower case. */
  discovered: string[];
}

/** The inventory functions that this module needs. */
export interface SubscriptionInventory {
  /** By lower-case ID. */
  counts(): Promise<ReadonlyMap<string, SubscriptionCounts>>;
  /** @throws {Problem} scanRunning while a scan covers the subscription, because the scan would add its vaults again. */
  rejectWhileScanned(subscriptionId: string): Promise<void>;
  /** Removes the subscription's vaults and assets. Can be repeated after a failure. */
  forget(subscriptionId: string, caller: Caller): Promise<{ vaults: number; assets: number }>;
}

/** A page of subscriptions, with the last scan of all and its failure. */
export interface SubscriptionPage extends Page<Subscription> {
  /** The last ended scan of all. Null before the first. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that scan could not list the subscriptions, or not all of them. */
  lastFailure: VaultFailure | null;
}

export interface Subscriptions {
  /**
   * Lists added, configured and discovered subscriptions by name. Four requests, and one per 1,000 vaults beyond the first.
   *
   * @param filter.unread - True: only subscriptions in scope that their last scan did not read completely or that no scan has
   * read yet, those with a failure first. False: only the others.
   */
  list(filter: { unread?: boolean | undefined }, request: PageRequest): Promise<SubscriptionPage>;
  /**
   * Returns the titles of subscriptions in scope that their last scan did not read completely, or that no scan has read yet.
   */
  unread(): Promise<{ names: string[]; isListRead: boolean }>;
  /** @throws {Problem} notFound */
  get(subscriptionId: string): Promise<Subscription>;
  /**
   * Adds a subscription.
   *
   * @throws {Problem} alreadyExists, or conflict while it is being removed.
   */
  add(
    subscription: { subscriptionId: string; name: string },
    caller: Caller,
  ): Promise<Subscription & { watching: Watching }>;
  /**
   * Removes an added subscription. Unless it is in scope for another reason, its inventory leaves the scope. The next call
   * completes an interrupted removal.
   *
   * @param options.forget - Also deletes its inventory at once. Accepts discovered subscriptions that are out of scope or no
   * longer readable, too.
   * @throws {Problem} notFound; conflict when only the configuration names it, or it was only discovered; preconditionFailed
   * when `ifMatch` is stale; scanRunning while a scan covers a subscription whose inventory is to be deleted, which then
   * changes nothing.
   */
  remove(
    subscriptionId: string,
    caller: Caller,
    options?: { ifMatch?: string | undefined; forget?: boolean | undefined },
  ): Promise<{ inventory: RemovedInventory; watching: Watching }>;
  /**
   * Tests what the identity can do in the subscription.
   *
   * @throws {Problem} notFound
   */
  test(subscriptionId: string): Promise<ConnectionTest>;
  /** Returns the stored scope. */
  watched(): Promise<Watched>;
  /** @throws {Problem} invalidRequest with the subscriptions that are out of scope. */
  requireWatched(subscriptionIds: readonly string[]): Promise<void>;
  /** Returns which subscriptions would leave the scope and return with this value of `watchAll`. */
  previewWatchAll(watchAll: boolean): Promise<ScopeChange>;
  /** Computes and stores the current scope. */
  refreshScope(caller: Caller): Promise<void>;
  /** Stores the names of readable subscriptions; see ScopeKeeper. */
  discovered(seen: readonly { subscriptionId: string; displayName: string }[], complete: boolean): Promise<void>;
  /** Stores an ended scan as the last one of its subscriptions. */
  scanned(scan: EndedScan): Promise<void>;
  /** Deletes the inventory of subscriptions that left the scope more than `outOfScopeRetentionDays` ago. */
  forgetOutOfScope(caller: Caller): Promise<void>;
}

/** The scope, for modules that change it. */
export interface Watching {
  watchAll: boolean;
  /** The named subscriptions, or with `watchAll` also the discovered ones. */
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

  /** Returns all subscriptions, unsorted, and the last scan of all. */
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
    // An entry is evidence of an earlier version (earlier-version.ts). So that question is answered before this version adds
    // its first entry.
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

  /** Handles the inventory of a subscription whose entry is marked as being removed. */
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
      await inventory.rejectWhileScanned(subscriptionId);
    } catch (error) {
      // Removes the mark that this call set.
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

  /** Deletes the inventory of a discovered subscription, if no scan would add it again. */
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
    await inventory.rejectWhileScanned(subscriptionId);
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
      // Read for each subscription, so that one that returns to the scope meanwhile is kept.
      const leftAt = (await readScope(tables)).leftAt(subscriptionId);
      if (leftAt === undefined || Date.parse(leftAt) >= before.getTime()) continue;
      const event = {
        type: "scope.forgotten",
        caller,
        target: target(subscriptionId),
        details: { outOfScopeSince: leftAt, vaults, assets },
      };
      try {
        await inventory.rejectWhileScanned(subscriptionId);
        await audited(
          audit,
          event,
          () => inventory.forget(subscriptionId, caller),
          (gone) => ({ details: { outOfScopeSince: leftAt, ...gone } }),
        );
      } catch (error) {
        // A subscription that is being scanned or written does not stop the others. The next run deletes it.
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
/** Changes that a scan or a timer noticed, without a request. */
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

/** Scans with these statuses may have left vaults unread. */
const CUT_SHORT: readonly string[] = ["timedOut", "cancelled"];

/** Returns whether the data of a subscription in scope may differ from what its last scan should have found. */
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
