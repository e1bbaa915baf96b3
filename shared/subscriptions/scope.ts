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
import { readEntries } from "./added-subscriptions.ts";

/** A subscription that leaves the scope or returns to it, with its counts in the inventory. */
export interface MovingSubscription {
  subscriptionId: string;
  name: string | undefined;
  vaults: number;
  assets: number;
}

/** The effects of a different scope. */
export interface ScopeChange {
  leaves: MovingSubscription[];
  returns: MovingSubscription[];
}

/**
 * Maintains the scope's row, which is computed from settings, API entries and configuration. A request that changes one of them
 * refreshes the scope before it responds. Changes without a request are noticed by a timer (App Configuration) and by a new
 * process (environment).
 */
export interface ScopeKeeper {
  /**
   * Computes and stores the current scope. Three requests if nothing changed. Subscriptions that leave or return are recorded
   * in the audit log.
   */
  refresh(caller: Caller): Promise<ScopeRecord>;
  /** Returns the stored scope. The first call of a process refreshes it. One request. */
  current(caller: Caller): Promise<ScopeRecord>;
  /** Returns which subscriptions would leave and return with this value of `watchAll`. Changes nothing. */
  preview(watchAll: boolean): Promise<ScopeChange>;
  /**
   * Stores the display names of the subscriptions that the identity can read now. No request if the cached scope already has
   * them.
   *
   * @param complete - False if some could not be read. Then no subscription counts as unseen.
   */
  discovered(seen: readonly { subscriptionId: string; displayName: string }[], complete: boolean): Promise<void>;
  /** Removes data of subscriptions that left the scope, or became unreadable, before this time and have no vault. */
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
  const inConfiguration = deps.config.AZURE_SUBSCRIPTION_IDS.map((id) => id.toLowerCase());

  /** The scope as this process last read or wrote it. */
  let latest: ScopeRecord | undefined;

  /** The row is read first. After any later change follows another refresh, which this one can't overwrite. */
  async function plan(): Promise<{ row: Row<ScopeRecord> | undefined; next: ScopeRecord }> {
    const row = await readScopeRow(tables);
    const [values, entries] = await Promise.all([settings.fresh(), readEntries(tables)]);
    const active = entries.filter((entry) => !entry.removingSince);
    const watchAll = values?.watchAll ?? row?.watchAll ?? (await settings.values()).watchAll;
    const named = [...new Set([...inConfiguration, ...active.map((entry) => entry.subscriptionId)])].sort();
    const names = Object.fromEntries(active.map((entry) => [entry.subscriptionId, entry.name]));
    return { row, next: scopeAfter(row, { watchAll, named, names }, clock.now().toISOString()) };
  }

  async function write(): Promise<ScopeRecord> {
    return await repeatOnConflict(async () => {
      const { row, next } = await plan();
      if (!row) return await tables.insert(ScopeRows, VAULTS, SCOPE_KEY, next);
      if (isSame(row, next)) return row;
      const { partitionKey, rowKey, etag } = row;
      return await tables.replace(ScopeRows, { ...next, partitionKey, rowKey, etag });
    });
  }

  async function changeBetween(before: ScopeRecord | undefined, after: ScopeRecord): Promise<ScopeChange> {
    const [was, is] = [scopeOf(before), scopeOf(after)];
    const all = [...(await deps.counts())].map(([subscriptionId, { vaults, assets }]) => ({
      subscriptionId,
      name: is.nameOf(subscriptionId) ?? was.nameOf(subscriptionId),
      vaults,
      assets,
    }));
    const left = ({ subscriptionId }: MovingSubscription) => [was.leftAt(subscriptionId), is.leftAt(subscriptionId)];
    const moving = (leaves: boolean) =>
      all.filter((one) => {
        const [before, after] = left(one).map((at) => at !== undefined);
        return before !== after && after === leaves;
      });
    return { leaves: moving(true), returns: moving(false) };
  }

  async function refresh(caller: Caller): Promise<ScopeRecord> {
    latest = await refreshed(caller);
    return latest;
  }

  async function refreshed(caller: Caller): Promise<ScopeRecord> {
    const { row, next } = await plan();
    if (row && isSame(row, next)) return row;
    if (watched(row) === watched(next)) return await write();
    const change = await changeBetween(row, next);
    const event = {
      type: "scope.changed",
      caller,
      target: { type: "scope", id: "subscriptions" },
      before: shown(row),
      after: shown(next),
      details: { leaves: inNumbers(change.leaves), returns: inNumbers(change.returns) },
    };
    return await audited(audit, event, write);
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
      const { row, next } = await plan();
      const after = scopeAfter(row ?? next, { ...next, watchAll }, clock.now().toISOString());
      return await changeBetween(row ?? next, after);
    },

    async discovered(seen, complete) {
      const names = new Map(seen.map((one) => [one.subscriptionId.toLowerCase(), one.displayName]));
      const now = clock.now().toISOString();
      const after = (scope: ScopeRecord): ScopeRecord | undefined => {
        const discovered = { ...scope.discovered, ...Object.fromEntries(names) };
        const missing = Object.keys(discovered).filter((id) => !names.has(id) && (complete || scope.unseenSince[id]));
        const unseenSince = Object.fromEntries(missing.map((id) => [id, scope.unseenSince[id] ?? now]));
        const next = { ...scope, discovered, unseenSince };
        return isSame(scope, next) ? undefined : next;
      };
      if (latest && !after(latest)) return;
      await tables.modify(ScopeRows, VAULTS, SCOPE_KEY, (row) => row && after(withoutKeys(row)));
    },

    async prune(before) {
      const row = await readScopeRow(tables);
      const isOld = (at: string | undefined) => at !== undefined && Date.parse(at) < before.getTime();
      if (!row || ![...Object.values(row.left), ...Object.values(row.unseenSince)].some(isOld)) return;
      const counts = await deps.counts();
      await tables.modify(ScopeRows, VAULTS, SCOPE_KEY, (now) => {
        if (!now) return undefined;
        const stays = (at: string | undefined, id: string) => !isOld(at) || counts.has(id);
        const only = (of: Record<string, string>, at: Record<string, string>) =>
          Object.fromEntries(Object.entries(of).filter(([id]) => stays(at[id], id)));
        const next = {
          ...withoutKeys(now),
          left: only(now.left, now.left),
          discovered: only(now.discovered, now.unseenSince),
          unseenSince: only(now.unseenSince, now.unseenSince),
        };
        return isSame(now, next) ? undefined : next;
      });
    },
  };
}

/**
 * Returns the new scope. Subscriptions that are in scope again, and all of them if everything is in scope, have no time of
 * leaving.
 */
function scopeAfter(
  before: ScopeRecord | undefined,
  { watchAll, named, names }: Pick<ScopeRecord, "watchAll" | "named" | "names">,
  now: string,
): ScopeRecord {
  const kept = { discovered: before?.discovered ?? {}, unseenSince: before?.unseenSince ?? {} };
  if (watchAll) return { watchAll, named, left: {}, names, ...kept };
  const narrow = before && !before.watchAll ? before : undefined;
  const left = { ...narrow?.left };
  for (const id of narrow?.named ?? []) left[id] = now;
  for (const id of named) delete left[id];
  return { watchAll, named, namedOnlySince: narrow?.namedOnlySince ?? now, left, names, ...kept };
}

/** Returns whether two scopes are equal, regardless of the order of their members. */
function isSame(a: ScopeRecord, b: ScopeRecord): boolean {
  const text = (one: ScopeRecord) => {
    const maps = [one.left, one.names, one.discovered, one.unseenSince].map((map) => Object.entries(map).sort());
    return JSON.stringify([one.watchAll, one.named, one.namedOnlySince ?? null, maps]);
  };
  return text(a) === text(b);
}

/** Before the first scope was stored, all subscriptions were in scope. */
const watched = (scope: ScopeRecord | undefined): string =>
  !scope || scope.watchAll ? "all" : JSON.stringify(scope.named);

const shown = (scope: ScopeRecord | undefined) =>
  scope ? { watchAll: scope.watchAll, named: scope.named.slice(0, MAX_ENTERED) } : undefined;

/** Maximum number of subscriptions that one audit entry names. */
const MAX_ENTERED = 100;

const inNumbers = (moving: readonly MovingSubscription[]) => ({
  subscriptions: moving.slice(0, MAX_ENTERED).map(({ subscriptionId }) => subscriptionId),
  total: moving.length,
  vaults: moving.reduce((sum, one) => sum + one.vaults, 0),
  assets: moving.reduce((sum, one) => sum + one.assets, 0),
});

/** Returns the time before which subscriptions that left are removed. */
export const forgottenBefore = (now: Date, retentionDays: number): Date =>
  new Date(now.getTime() - retentionDays * DAY_MS);
