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
import { counted } from "../platform/counted.ts";
import { conditionalWrite, entityTag, requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { type Page, type PageRequest, pageOfAll } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import type { Row } from "../platform/storage/entity.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import { RowExists, type Tables } from "../platform/storage/tables.ts";
import type { Settings } from "../settings/settings.ts";
import {
  readAddedSubscriptions,
  SUBSCRIPTIONS_PARTITION,
  type SubscriptionRecord,
  SubscriptionRow,
} from "./added-subscriptions.ts";
import { type ConnectionTest, testConnection } from "./connection-test.ts";
import { type EndedScan, type LastScan, readLastScans, recordLastScan } from "./last-scans.ts";
import { createScopeKeeper, forgottenBefore, type ScopeChange } from "./scope.ts";

/** A subscription that was added, configured or discovered. */
export interface Subscription {
  /** ID in lower case. */
  subscriptionId: string;
  /** The name with which the subscription was added, or else its display name in Azure, or else its ID. */
  name: string;
  /**
   * `api`: added through the API. `configuration`: named in AZURE_SUBSCRIPTION_IDS. `discovered`: readable by the identity, or
   * known from earlier scans.
   */
  source: "configuration" | "api" | "discovered";
  state: "active" | "removing";
  /** Whether scans read the subscription. */
  watched: boolean;
  /** Time at which the subscription left the scope, ISO 8601. Null while it is watched. */
  outOfScopeSince: string | null;
  addedAt: string | null;
  addedBy: string | null;
  /** The last ended scan of the subscription. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that scan could not list the subscription's vaults. */
  lastFailure: VaultFailure | null;
  counts: {
    vaults: number;
    /** Vaults of which the last scan could read no list. */
    vaultsUnreadable: number;
    /** Vaults with a list that the last scan could not read. */
    vaultsWithFailures: number;
    assets: number;
    /** Vaults that have sent an event. */
    vaultsWithEvents: number;
  };
  etag: string;
}

/** The effect of a removal on the subscription's vaults and assets. */
export interface RemovedInventory {
  /**
   * `kept`: the subscription stays in scope. `outOfScope`: its vaults and assets are excluded from counts, the score and
   * alerts, and deleted after the retention period. `removed`: its vaults and assets were deleted.
   */
  outcome: "removed" | "kept" | "outOfScope";
  vaults: number;
  assets: number;
}

/**
 * The scope: the watched subscriptions, which a scan reads if its request names none. These are the named ones, and with `all`
 * also all others that the identity can read.
 */
export interface WatchedScope {
  all: boolean;
  /** IDs of the added and configured subscriptions, in lower case. */
  named: string[];
  /** IDs of the subscriptions that the identity has ever been able to read, in lower case. */
  discovered: string[];
}

/** The inventory functions that this module needs. */
export interface SubscriptionInventory {
  /** Returns the counts of each subscription by lower-case ID. */
  counts(): Promise<ReadonlyMap<string, SubscriptionCounts>>;
  /** Throws while a scan covers the subscription, because the scan would add its vaults again. @throws {Problem} scanRunning */
  rejectWhileScanned(subscriptionId: string): Promise<void>;
  /** Deletes the subscription's vaults and assets. Can be repeated after a failure. */
  forget(subscriptionId: string, caller: Caller): Promise<{ vaults: number; assets: number }>;
}

/** A page of subscriptions, with the last scan of all subscriptions. */
export interface SubscriptionPage extends Page<Subscription> {
  /** The last ended scan of all subscriptions. Null before the first. */
  lastScan: Omit<LastScan, "failure"> | null;
  /** Why that scan could not list the subscriptions, or not all of them. */
  lastFailure: VaultFailure | null;
}

/** A number of things, and how many of them were read completely. */
interface Share {
  total: number;
  read: number;
}

/** How much of the watched subscriptions the last scans read. */
export interface SubscriptionCoverage extends Pick<SubscriptionPage, "lastScan" | "lastFailure"> {
  subscriptions: Share;
  /** Known vaults. Those of unread subscriptions count as unread. */
  vaults: Share;
  /** The unread subscriptions (see `Subscriptions.list`), those with a failure first. */
  unread: Subscription[];
}

/** The watched subscriptions. The endpoints under /subscriptions, scans and timers call it. */
export interface Subscriptions {
  /**
   * Lists added, configured and discovered subscriptions by name. Costs four requests, and one for each further 1,000 vaults.
   *
   * @param filter.unread - True: only unread subscriptions, which are in scope but were not read completely by their last scan
   * or not yet read by any. Those with a failure come first. False: only the others.
   */
  list(filter: { unread?: boolean | undefined }, request: PageRequest): Promise<SubscriptionPage>;
  /**
   * Returns the names of the unread subscriptions (see `list`), and whether the last scan could read the list of subscriptions.
   */
  unread(): Promise<{ names: string[]; isListRead: boolean }>;
  /** Returns how much of the watched subscriptions and of their known vaults the last scans read. Costs as much as `list`. */
  coverage(): Promise<SubscriptionCoverage>;
  /** Returns a subscription. @throws {Problem} notFound */
  get(subscriptionId: string): Promise<Subscription>;
  /** Returns a subscription as `add` does. @throws {Problem} notFound */
  added(subscriptionId: string): Promise<Subscription & { watching: Watching }>;
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
   * @param options.forget - Also deletes its inventory at once. Also accepts discovered subscriptions that are out of scope or
   * no longer readable.
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
  watched(): Promise<WatchedScope>;
  /** Throws if a subscription is out of scope. @throws {Problem} invalidRequest with the subscriptions that are out of scope */
  requireWatched(subscriptionIds: readonly string[]): Promise<void>;
  /** Returns which subscriptions would leave the scope and return with this value of `watchAll`. */
  previewWatchAll(watchAll: boolean): Promise<ScopeChange>;
  /** Computes and stores the current scope. */
  refreshScope(caller: Caller): Promise<void>;
  /** Stores the names of readable subscriptions; see ScopeKeeper. */
  storeReadable(readable: readonly { subscriptionId: string; displayName: string }[], complete: boolean): Promise<void>;
  /** Stores an ended scan as the last scan of its subscriptions. */
  scanned(scan: EndedScan): Promise<void>;
  /** Deletes the inventory of subscriptions that left the scope more than `outOfScopeRetentionDays` ago. */
  forgetOutOfScope(caller: Caller): Promise<void>;
}

/** The scope after a change, as the response to the change shows it. */
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

/** The subscriptions with the counts of their vaults, and the last scan of all of them. */
interface AllSubscriptions {
  subscriptions: Subscription[];
  counts: ReadonlyMap<string, SubscriptionCounts>;
  lastScanOfAll: LastScan | undefined;
}

export function createSubscriptions(deps: SubscriptionsDependencies): Subscriptions {
  const { tables, clock, audit, inventory, settings } = deps;
  const configuredIds = new Set(deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase()));
  const keeper = createScopeKeeper({ ...deps, counts: () => inventory.counts() });

  const readRow = (subscriptionId: string) => tables.get(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId);

  /** Returns all subscriptions, unsorted, the counts of their vaults, and the last scan of all of them. */
  async function readAll(): Promise<AllSubscriptions> {
    const [entries, scope, scans, counts] = await Promise.all([
      readAddedSubscriptions(tables),
      undefinedIfLeftOut(readScopeRow(tables)),
      readLastScans(tables),
      inventory.counts(),
    ]);
    const added = new Map(entries.map((entry) => [entry.subscriptionId, entry]));
    const readableIds = Object.keys(scope?.discovered ?? {}).filter((id) => !scope?.unseenSince[id]);
    const ids = new Set([...added.keys(), ...configuredIds, ...readableIds, ...counts.keys()]);
    const data = { scope, scans: scans.bySubscription, counts };
    const subscriptions = [...ids].map((id) => subscriptionOf(id, added.get(id), configuredIds.has(id), data));
    return { subscriptions, counts, lastScanOfAll: scans.all };
  }

  async function get(id: string): Promise<Subscription> {
    const subscriptionId = id.toLowerCase();
    const subscription = (await readAll()).subscriptions.find((each) => each.subscriptionId === subscriptionId);
    if (!subscription) throw notFound(`The subscription ${subscriptionId}`);
    return subscription;
  }

  async function added(id: string) {
    return { ...(await get(id)), watching: watchingOf(await keeper.current(SYSTEM)) };
  }

  async function add(given: { subscriptionId: string; name: string }, caller: Caller) {
    const subscriptionId = given.subscriptionId.toLowerCase();
    if (configuredIds.has(subscriptionId)) {
      throw new Problem("alreadyExists", "AZURE_SUBSCRIPTION_IDS already names this subscription.");
    }
    const row = await readRow(subscriptionId);
    if (row) throw existsProblem(row);
    // If the setting `watchAll` is not stored yet, the load of the settings stores it. Its value then depends on whether an
    // earlier version added subscriptions (earlier-version.ts). So the load comes first. Otherwise the subscription that is added
    // here would count as one of an earlier version.
    await settings.fresh();
    const record = { subscriptionId, name: given.name, addedAt: clock.now().toISOString(), addedBy: caller.actor };
    const event = { type: "subscription.added", caller, target: target(subscriptionId), after: { name: given.name } };
    await audited(audit, event, async () => {
      try {
        await tables.insert(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, record);
      } catch (error) {
        if (error instanceof RowExists) throw existsProblem(await readRow(subscriptionId));
        throw error;
      }
    });
    await keeper.refresh(caller);
    return await added(subscriptionId);
  }

  async function remove(
    given: string,
    caller: Caller,
    { ifMatch, forget = false }: { ifMatch?: string | undefined; forget?: boolean | undefined } = {},
  ) {
    const subscriptionId = given.toLowerCase();
    const row = await readRow(subscriptionId);
    if (!row) return await forgetDiscovered(subscriptionId, forget, caller);
    requireMatch(entityTag(row), ifMatch, SUBSCRIPTION);
    const event = {
      type: "subscription.removed",
      caller,
      target: target(subscriptionId),
      before: { name: row.name, addedAt: row.addedAt, addedBy: row.addedBy },
    };
    const removeAndLeave = async () => {
      const marked = row.removingSince ? row : await markAsRemoving(row, ifMatch);
      const scope = await keeper.refresh(caller);
      const inventory = await handleInventory(row, marked, { scope, forget, caller });
      await tables.remove(SubscriptionRow, SUBSCRIPTIONS_PARTITION, subscriptionId, marked.etag);
      return { inventory, watching: watchingOf(scope) };
    };
    return await audited(audit, event, removeAndLeave, ({ inventory }) => ({ details: { inventory } }));
  }

  /** Handles the inventory of a subscription whose entry is marked as being removed. */
  async function handleInventory(
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
      // After the refresh of the scope, so that no scan of the subscription can start after this check.
      await inventory.rejectWhileScanned(subscriptionId);
    } catch (error) {
      // Removes the mark if this call set it.
      if (marked !== row) {
        await tables.replace(SubscriptionRow, { ...row, etag: marked.etag });
        await keeper.refresh(caller);
      }
      throw error;
    }
    return { outcome: "removed", ...(await inventory.forget(subscriptionId, caller)) };
  }

  async function markAsRemoving(row: Row<SubscriptionRecord>, ifMatch: string | undefined) {
    const marked = tables.replace(SubscriptionRow, { ...row, removingSince: clock.now().toISOString() });
    return await conditionalWrite(marked, ifMatch, SUBSCRIPTION);
  }

  /** Deletes the inventory of a discovered subscription, if no scan would add it again. */
  async function forgetDiscovered(subscriptionId: string, forget: boolean, caller: Caller) {
    if (configuredIds.has(subscriptionId))
      throw new Problem("conflict", "AZURE_SUBSCRIPTION_IDS names this subscription. Remove it from that setting.");
    const subscription = await get(subscriptionId);
    if (!forget)
      throw new Problem(
        "conflict",
        "This subscription was discovered, not added. To watch only subscriptions that were added, set watchAll to false (PUT /api/settings/features). To delete the data of a subscription that is no longer watched or accessible, repeat this call with forget=true.",
      );
    const scope = await keeper.refresh(caller);
    if (scopeOf(scope).leftAt(subscriptionId) === undefined && !scope.unseenSince[subscriptionId])
      throw new Problem(
        "conflict",
        "This subscription is watched: the next scan would add its vaults again. Set watchAll to false first (PUT /api/settings/features).",
      );
    await inventory.rejectWhileScanned(subscriptionId);
    const event = {
      type: "subscription.removed",
      caller,
      target: target(subscriptionId),
      before: { name: subscription.name },
    };
    const removed = await audited(
      audit,
      event,
      async (): Promise<RemovedInventory> => ({
        outcome: "removed",
        ...(await inventory.forget(subscriptionId, caller)),
      }),
      (inventory) => ({ details: { inventory } }),
    );
    return { inventory: removed, watching: watchingOf(scope) };
  }

  async function forgetOutOfScope(caller: Caller): Promise<void> {
    const { outOfScopeRetentionDays } = await settings.values();
    const forgetBefore = forgottenBefore(clock.now(), outOfScopeRetentionDays);
    await keeper.refresh(caller);
    const failures: unknown[] = [];
    for (const [subscriptionId, { vaults, assets }] of await inventory.counts()) {
      // The scope is read for each subscription, so that a subscription that has just returned to the scope is not deleted.
      const leftAt = (await readScope(tables)).leftAt(subscriptionId);
      if (leftAt === undefined || Date.parse(leftAt) >= forgetBefore.getTime()) continue;
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
          (deleted) => ({ details: { outOfScopeSince: leftAt, ...deleted } }),
        );
      } catch (error) {
        // A subscription that is being scanned or written does not stop the others. The next run deletes its inventory.
        failures.push(error);
      }
    }
    await keeper.prune(forgetBefore);
    if (failures.length === 1) throw failures[0];
    if (failures.length > 1)
      throw new AggregateError(failures, `${failures.length} subscriptions could not be deleted`);
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
    added,
    add,
    remove,
    forgetOutOfScope,
    requireWatched,
    storeReadable: keeper.storeReadable,
    previewWatchAll: keeper.preview,
    scanned: (scan) => recordLastScan(tables, scan),

    async list({ unread }, request) {
      const { subscriptions, lastScanOfAll } = await readAll();
      const matching = unread === undefined ? subscriptions : subscriptions.filter((each) => isUnread(each) === unread);
      // Start of the sort key: 0 for unread subscriptions with a failure, 1 for those without one.
      const rank = ({ lastFailure }: Subscription) => (unread ? Number(lastFailure === null) : "");
      return {
        ...pageOfAll(matching, request, (each) => `${rank(each)}${each.name.toLowerCase()}\n${each.subscriptionId}`),
        ...lastScanFields(lastScanOfAll),
      };
    },

    async unread() {
      const { subscriptions, lastScanOfAll } = await readAll();
      const names = subscriptions.filter(isUnread).map(({ name }) => name);
      return { names: names.sort(), isListRead: lastScanOfAll?.failure === undefined };
    },

    async coverage() {
      const { subscriptions, counts, lastScanOfAll } = await readAll();
      return { ...sharesOf(subscriptions, counts), ...lastScanFields(lastScanOfAll) };
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

/** Returns how many of the watched subscriptions and of their vaults were read, and the unread subscriptions. */
function sharesOf(
  subscriptions: readonly Subscription[],
  counts: ReadonlyMap<string, SubscriptionCounts>,
): Pick<SubscriptionCoverage, "subscriptions" | "vaults" | "unread"> {
  const watched = subscriptions.filter((each) => each.watched);
  const vaults = { total: 0, read: 0 };
  for (const subscription of watched) {
    const { vaults: total, failing } = counts.get(subscription.subscriptionId) ?? { vaults: 0, failing: 0 };
    vaults.total += total;
    if (!isUnread(subscription)) vaults.read += total - failing;
  }
  const rank = ({ lastFailure, name }: Subscription) => `${Number(lastFailure === null)}${name.toLowerCase()}`;
  const unread = watched.filter(isUnread).sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return { subscriptions: { total: watched.length, read: watched.length - unread.length }, vaults, unread };
}

const SUBSCRIPTION = "The subscription";
/** The caller of changes that a scan or a timer finds without a request. */
const SYSTEM: Caller = { actor: "system", requestId: "scope" };

const target = (id: string) => ({ type: "subscription", id });

function watchingOf({ watchAll, named, discovered, unseenSince }: ScopeRecord): Watching {
  const readableIds = Object.keys(discovered).filter((id) => !unseenSince[id]);
  if (watchAll) {
    return {
      watchAll,
      subscriptions: new Set([...named, ...readableIds]).size,
      message:
        "All subscriptions that the service's identity can read are watched. Adding a subscription gives it a name and narrows nothing.",
    };
  }
  const message =
    named.length === 0
      ? "No subscription is watched: add one, or set watchAll to true."
      : `Only subscriptions that were added or configured are watched: ${counted(named.length, "subscription")} (watchAll is false).`;
  return { watchAll, subscriptions: named.length, message };
}

/** Statuses of scans that may have left vaults unread. */
const INCOMPLETE_STATUSES: readonly string[] = ["timedOut", "cancelled"];

/** Returns true if a subscription is in scope and its last scan did not read it completely, or no scan has read it. */
const isUnread = ({ watched, lastScan, lastFailure }: Subscription): boolean =>
  watched && (lastFailure !== null || lastScan === null || INCOMPLETE_STATUSES.includes(lastScan.status));

/** Combines the data of a subscription. @param entry - The row of an added subscription */
function subscriptionOf(
  subscriptionId: string,
  entry: Row<SubscriptionRecord> | undefined,
  isConfigured: boolean,
  data: {
    scope: ScopeRecord | undefined;
    scans: ReadonlyMap<string, LastScan>;
    counts: ReadonlyMap<string, SubscriptionCounts>;
  },
): Subscription {
  const scope = scopeOf(data.scope);
  const outOfScopeSince = scope.leftAt(subscriptionId) ?? null;
  const { failure, ...lastScan } = data.scans.get(subscriptionId) ?? {};
  const counts = data.counts.get(subscriptionId);
  const unseenSince = outOfScopeSince === null ? data.scope?.unseenSince[subscriptionId] : undefined;
  return {
    subscriptionId,
    name: entry?.name ?? scope.nameOf(subscriptionId) ?? subscriptionId,
    source: entry ? "api" : isConfigured ? "configuration" : "discovered",
    state: entry?.removingSince ? "removing" : "active",
    watched: outOfScopeSince === null,
    outOfScopeSince,
    addedAt: entry?.addedAt ?? null,
    addedBy: entry?.addedBy ?? null,
    lastScan: "scanId" in lastScan ? lastScan : null,
    lastFailure: failure ?? (unseenSince === undefined ? null : unreadableFailure(unseenSince)),
    counts: {
      vaults: counts?.vaults ?? 0,
      vaultsUnreadable: counts?.unreadable ?? 0,
      vaultsWithFailures: counts?.failing ?? 0,
      assets: counts?.assets ?? 0,
      vaultsWithEvents: counts?.withEvents ?? 0,
    },
    // Only added subscriptions have a row that can change. The others have a constant ETag.
    etag: entry ? entityTag(entry) : isConfigured ? '"configuration"' : '"discovered"',
  };
}

const unreadableFailure = (at: string): VaultFailure => ({
  code: "notFound",
  message: "The service's identity can no longer read this subscription.",
  remedy: `Give it ${INVENTORY_READER}. If the subscription was deleted, delete its vaults with DELETE /subscriptions/{subscription_id}?forget=true.`,
  at,
});

/** Returns the last scan of all subscriptions as the API shows it, with its failure as a separate field. */
function lastScanFields(lastScanOfAll: LastScan | undefined) {
  const { failure, ...lastScan } = lastScanOfAll ?? {};
  return { lastScan: "scanId" in lastScan ? lastScan : null, lastFailure: failure ?? null };
}

/** Returns the problem of adding a subscription that already has a row. */
const existsProblem = (stored: SubscriptionRecord | undefined) =>
  stored?.removingSince
    ? new Problem("conflict", "This subscription is being removed. Repeat its DELETE, then add it again.")
    : new Problem(
        "alreadyExists",
        "This subscription has already been added. Delete it first to give it another name.",
      );
