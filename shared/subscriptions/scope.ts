import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { SubscriptionCounts } from "../inventory/inventory.ts";
import { readScopeRow, SCOPE_KEY, type ScopeRecord, ScopeRows, scopeOf } from "../inventory/scope.ts";
import { VAULTS } from "../inventory/vault.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import type { Settings } from "../settings/settings.ts";
import { readAddedSubscriptions } from "./added-subscriptions.ts";

/** A subscription that leaves the scope or returns to it, with its counts in the inventory. */
export interface MovingSubscription {
  subscriptionId: string;
  name: string | undefined;
  vaults: number;
  assets: number;
}

/** The subscriptions that leave the scope or return to it when the scope changes. */
export interface ScopeChange {
  leaves: MovingSubscription[];
  returns: MovingSubscription[];
}

/**
 * Maintains the row of the scope: which subscriptions scans read. The scope is computed from the setting `watchAll`, the added
 * subscriptions and the configuration. A request that changes one of them refreshes the scope before it responds. A timer
 * refreshes it after changes in App Configuration, and a new process after changes of its environment.
 */
export interface ScopeKeeper {
  /**
   * Computes and stores the current scope. Records subscriptions that leave or return in the audit log. Costs three requests if
   * nothing changed.
   */
  refresh(caller: Caller): Promise<ScopeRecord>;
  /** Returns the stored scope. The first call of a process refreshes it. Later calls cost one request. */
  current(caller: Caller): Promise<ScopeRecord>;
  /** Returns which subscriptions would leave and return with this value of `watchAll`. Changes nothing. */
  preview(watchAll: boolean): Promise<ScopeChange>;
  /**
   * Stores the display names of the subscriptions that the identity can read. Costs no request if the cached scope already
   * contains them.
   *
   * @param complete - False if an entry of the list could not be read. Then no further subscription is recorded as unreadable.
   */
  storeReadable(readable: readonly { subscriptionId: string; displayName: string }[], complete: boolean): Promise<void>;
  /** Deletes from the row the subscriptions that left the scope, or became unreadable, before this time and have no vault. */
  prune(before: Date): Promise<void>;
}

export function createScopeKeeper(deps: {
  tables: Tables;
  config: Pick<Config, "AZURE_SUBSCRIPTION_IDS">;
  settings: Pick<Settings, "values" | "fresh">;
  counts: () => Promise<ReadonlyMap<string, SubscriptionCounts>>;
  audit: Audit;
  clock: Clock;
}): ScopeKeeper {
  const { tables, settings, audit, clock } = deps;
  const configuredIds = deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase());

  /** The scope as this process last read or wrote it. */
  let latest: ScopeRecord | undefined;

  /**
   * Computes the current scope from its sources. The row is read before the sources: if a source changes later, the refresh of
   * that change changes the row, so that this refresh can't overwrite it. While App Configuration can't be read, `watchAll`
   * keeps the row's value.
   */
  async function computeScope(): Promise<{ row: Row<ScopeRecord> | undefined; next: ScopeRecord }> {
    const row = await readScopeRow(tables);
    const [values, entries] = await Promise.all([settings.fresh(), readAddedSubscriptions(tables)]);
    const active = entries.filter((entry) => !entry.removingSince);
    const watchAll = values?.watchAll ?? row?.watchAll ?? (await settings.values()).watchAll;
    const named = [...new Set([...configuredIds, ...active.map((entry) => entry.subscriptionId)])].sort();
    const names = Object.fromEntries(active.map((entry) => [entry.subscriptionId, entry.name]));
    return { row, next: scopeAfter(row, { watchAll, named, names }, clock.now().toISOString()) };
  }

  async function writeScope(): Promise<ScopeRecord> {
    return await repeatOnConflict(async () => {
      const { row, next } = await computeScope();
      if (!row) return await tables.insert(ScopeRows, VAULTS, SCOPE_KEY, next);
      if (isSame(row, next)) return row;
      const { partitionKey, rowKey, etag } = row;
      return await tables.replace(ScopeRows, { ...next, partitionKey, rowKey, etag });
    });
  }

  async function changeBetween(before: ScopeRecord | undefined, after: ScopeRecord): Promise<ScopeChange> {
    const [scopeBefore, scopeAfterChange] = [scopeOf(before), scopeOf(after)];
    const subscriptions = [...(await deps.counts())].map(([subscriptionId, { vaults, assets }]) => ({
      subscriptionId,
      name: scopeAfterChange.nameOf(subscriptionId) ?? scopeBefore.nameOf(subscriptionId),
      vaults,
      assets,
    }));
    const leavingTimes = ({ subscriptionId }: MovingSubscription) => [
      scopeBefore.leftAt(subscriptionId),
      scopeAfterChange.leftAt(subscriptionId),
    ];
    const moving = (leaves: boolean) =>
      subscriptions.filter((subscription) => {
        const [wasOut, isOut] = leavingTimes(subscription).map((leftAt) => leftAt !== undefined);
        return wasOut !== isOut && isOut === leaves;
      });
    return { leaves: moving(true), returns: moving(false) };
  }

  async function refresh(caller: Caller): Promise<ScopeRecord> {
    latest = await refreshRow(caller);
    return latest;
  }

  async function refreshRow(caller: Caller): Promise<ScopeRecord> {
    const { row, next } = await computeScope();
    if (row && isSame(row, next)) return row;
    if (watchedText(row) === watchedText(next)) return await writeScope();
    const change = await changeBetween(row, next);
    const event = {
      type: "scope.changed",
      caller,
      target: { type: "scope", id: "subscriptions" },
      before: auditView(row),
      after: auditView(next),
      details: { leaves: auditCounts(change.leaves), returns: auditCounts(change.returns) },
    };
    return await audited(audit, event, writeScope);
  }

  return {
    refresh,

    async current(caller) {
      const row = latest && (await readScopeRow(tables));
      if (!row) return await refresh(caller);
      latest = row;
      return row;
    },

    async preview(watchAll) {
      const { row, next } = await computeScope();
      const after = scopeAfter(row ?? next, { ...next, watchAll }, clock.now().toISOString());
      return await changeBetween(row ?? next, after);
    },

    async storeReadable(readable, complete) {
      const names = new Map(
        readable.map(({ subscriptionId, displayName }) => [subscriptionId.toLowerCase(), displayName]),
      );
      const timestamp = clock.now().toISOString();
      const withDiscovered = (scope: ScopeRecord): ScopeRecord | undefined => {
        const discovered = { ...scope.discovered, ...Object.fromEntries(names) };
        const missing = Object.keys(discovered).filter((id) => !names.has(id) && (complete || scope.unseenSince[id]));
        const unseenSince = Object.fromEntries(missing.map((id) => [id, scope.unseenSince[id] ?? timestamp]));
        const next = { ...scope, discovered, unseenSince };
        return isSame(scope, next) ? undefined : next;
      };
      if (latest && !withDiscovered(latest)) return;
      await tables.modify(ScopeRows, VAULTS, SCOPE_KEY, (row) => row && withDiscovered(withoutKeys(row)));
    },

    async prune(before) {
      const row = await readScopeRow(tables);
      const isOld = (time: string | undefined) => time !== undefined && Date.parse(time) < before.getTime();
      if (!row || ![...Object.values(row.left), ...Object.values(row.unseenSince)].some(isOld)) return;
      const counts = await deps.counts();
      await tables.modify(ScopeRows, VAULTS, SCOPE_KEY, (stored) => {
        if (!stored) return undefined;
        const remains = (time: string | undefined, id: string) => !isOld(time) || counts.has(id);
        const remaining = (members: Record<string, string>, times: Record<string, string>) =>
          Object.fromEntries(Object.entries(members).filter(([id]) => remains(times[id], id)));
        const next = {
          ...withoutKeys(stored),
          left: remaining(stored.left, stored.left),
          discovered: remaining(stored.discovered, stored.unseenSince),
          unseenSince: remaining(stored.unseenSince, stored.unseenSince),
        };
        return isSame(stored, next) ? undefined : next;
      });
    },
  };
}

/**
 * Returns the new scope. A subscription that is in scope has no time of leaving (`left`). While `watchAll` is true, all are in
 * scope.
 */
function scopeAfter(
  before: ScopeRecord | undefined,
  { watchAll, named, names }: Pick<ScopeRecord, "watchAll" | "named" | "names">,
  now: string,
): ScopeRecord {
  const unchanged = { discovered: before?.discovered ?? {}, unseenSince: before?.unseenSince ?? {} };
  if (watchAll) return { watchAll, named, left: {}, names, ...unchanged };
  const namedBefore = before && !before.watchAll ? before : undefined;
  const left = { ...namedBefore?.left };
  for (const id of namedBefore?.named ?? []) left[id] = now;
  for (const id of named) delete left[id];
  // Subscriptions that were never named left at `namedOnlySince`, when `watchAll` was turned off.
  return { watchAll, named, namedOnlySince: namedBefore?.namedOnlySince ?? now, left, names, ...unchanged };
}

/** Returns true if two scopes are equal, regardless of the order of their members. */
function isSame(first: ScopeRecord, second: ScopeRecord): boolean {
  const text = ({ watchAll, named, namedOnlySince, left, names, discovered, unseenSince }: ScopeRecord) => {
    const maps = [left, names, discovered, unseenSince].map((map) => Object.entries(map).sort());
    return JSON.stringify([watchAll, named, namedOnlySince ?? null, maps]);
  };
  return text(first) === text(second);
}

/** Returns a text of the watched subscriptions, for a comparison. Before the first scope was stored, all were watched. */
const watchedText = (scope: ScopeRecord | undefined): string =>
  !scope || scope.watchAll ? "all" : JSON.stringify(scope.named);

/** Returns the scope for the audit log. */
const auditView = (scope: ScopeRecord | undefined) =>
  scope ? { watchAll: scope.watchAll, named: scope.named.slice(0, MAX_AUDITED_IDS) } : undefined;

/** Maximum number of subscriptions that one audit entry names. */
const MAX_AUDITED_IDS = 100;

/** Returns subscriptions that leave or return, with their totals, for the audit log. */
const auditCounts = (moving: readonly MovingSubscription[]) => ({
  subscriptions: moving.slice(0, MAX_AUDITED_IDS).map(({ subscriptionId }) => subscriptionId),
  total: moving.length,
  vaults: moving.reduce((sum, { vaults }) => sum + vaults, 0),
  assets: moving.reduce((sum, { assets }) => sum + assets, 0),
});

/** Returns the time before which a subscription must have left the scope for its inventory to be deleted. */
export const forgottenBefore = (now: Date, retentionDays: number): Date =>
  new Date(now.getTime() - retentionDays * DAY_MS);
