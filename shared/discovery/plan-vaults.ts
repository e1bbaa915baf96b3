import pMap from "p-map";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager, SubscriptionResource, VaultPage } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { failureRecord } from "./read-list.ts";
import { type PlannedVault, type ScanMode, type ScanRecord, UNREADABLE_SUBSCRIPTION } from "./scan.ts";

/** Subscriptions listed concurrently. */
const SUBSCRIPTIONS_AT_ONCE = 8;

/** The vaults of a scan, and the result of listing each subscription. */
export interface VaultPlan {
  vaults: PlannedVault[];
  subscriptions: ScanRecord["subscriptionOutcomes"];
}

/** The scope of scans without an explicit list. IDs in lower case. */
export interface WatchedSubscriptions {
  /** True: the named subscriptions and all others that the identity can read. */
  all: boolean;
  named: string[];
  /** All subscriptions that the identity could read at any time. */
  discovered: string[];
}

interface PlanDeps {
  tables: Tables;
  resourceManager: ResourceManager;
  watched: () => Promise<WatchedSubscriptions>;
  /** Receives every subscription that the identity can read. `complete` is false if some entries could not be read. */
  seen: (subscriptions: readonly SubscriptionResource[], complete: boolean) => Promise<void>;
  clock: Clock;
  /** Ends the listing. Subscriptions that are not listed by then are recorded as failed. */
  signal: AbortSignal;
}

/**
 * Plans the vaults of a scan: vaults that the resource manager lists, and known vaults that are missing from a complete
 * listing. Vaults in back-off are planned as skipped, and vaults whose description can't be read as failed.
 *
 * @throws {CloudFailure} when the subscriptions can't be listed.
 */
export async function planVaults(
  scan: { mode: ScanMode; subscriptions?: string[] | undefined },
  deps: PlanDeps,
): Promise<VaultPlan> {
  const chosen = await subscriptionsOf(scan.subscriptions, deps);
  const parts = await pMap(chosen.ids, (id) => planSubscription(id, scan.mode, chosen, deps), {
    concurrency: SUBSCRIPTIONS_AT_ONCE,
  });
  const vaults = parts.flatMap((part) => part.vaults);
  const listed = new Set(vaults.filter((one) => one.action !== "remove").map((one) => one.name.toLowerCase()));
  return {
    // A moved vault is missing from one subscription and listed in another. The worker of the new place removes it from the old
    // one.
    vaults: vaults.filter((one) => one.action !== "remove" || !listed.has(one.name)),
    subscriptions: [...parts.flatMap((part) => part.subscriptions), ...chosen.unreadable],
  };
}

async function planSubscription(
  subscriptionId: string,
  mode: ScanMode,
  { names, unseen }: Chosen,
  deps: PlanDeps,
): Promise<VaultPlan> {
  const known = await knownVaults(deps.tables, subscriptionId);
  // The subscription has no known vaults and the identity can no longer read it.
  if (known.size === 0 && unseen.has(subscriptionId)) return { vaults: [], subscriptions: [] };
  const name = names.get(subscriptionId);
  const named = name === undefined ? {} : { name };
  const listedAt = deps.clock.now().toISOString();
  let listed: VaultPage;
  try {
    listed = await listVaults(deps.resourceManager, subscriptionId, deps.signal);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    const failure = failureRecord(error, deps.clock.now().toISOString());
    return { vaults: [], subscriptions: [{ subscriptionId, ...named, vaults: 0, failure }] };
  }
  const plan = planListed(subscriptionId, listed, known, mode, listedAt);
  return { ...plan, subscriptions: plan.subscriptions.map((outcome) => ({ ...outcome, ...named })) };
}

/**
 * Returns the plan of one subscription from its complete listing.
 *
 * @param known - Vaults of the subscription in the inventory: lower-case name and end of the back-off.
 * @param listedAt - When the listing was requested.
 */
export function planListed(
  subscriptionId: string,
  listed: VaultPage,
  known: ReadonlyMap<string, string | undefined>,
  mode: ScanMode,
  listedAt: string,
): VaultPlan {
  const planned = new Map<string, PlannedVault>();
  for (const resource of listed.vaults) {
    const key = resource.name.toLowerCase();
    const retryAt = known.get(key);
    const skip = mode !== "force" && retryAt !== undefined && retryAt > listedAt;
    planned.set(key, {
      name: resource.name,
      subscriptionId,
      action: skip ? "skip" : "scan",
      listedAt,
      resource: { ...resource },
    });
  }
  for (const { name, failure } of listed.unreadable) {
    if (name === undefined || planned.has(name.toLowerCase())) continue;
    const record = failureRecord(failure, listedAt);
    planned.set(name.toLowerCase(), { name, subscriptionId, action: "fail", failure: record });
  }
  // An unreadable entry without a name may be any vault that seems to be missing. So none is removed.
  const nameless = listed.unreadable.find(({ name }) => name === undefined);
  for (const name of nameless ? [] : known.keys()) {
    if (!planned.has(name)) planned.set(name, { name, subscriptionId, action: "remove", listedAt });
  }
  const outcome: VaultPlan["subscriptions"][number] = { subscriptionId, vaults: listed.vaults.length };
  if (nameless) outcome.failure = failureRecord(nameless.failure, listedAt);
  return {
    vaults: [...planned].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, vault]) => vault),
    subscriptions: [outcome],
  };
}

/** The subscriptions of a scan. */
interface Chosen {
  ids: string[];
  /** The subscriptions of `ids` that the identity could read before and can't read now. */
  unseen: ReadonlySet<string>;
  /** Display names from the resource manager, as far as known. */
  names: ReadonlyMap<string, string>;
  unreadable: VaultPlan["subscriptions"];
}

/**
 * Returns the requested subscriptions, or those in scope. A subscription that the identity can no longer read is tried
 * nevertheless: its failed listing is recorded, and none of its vaults is removed.
 */
async function subscriptionsOf(requested: string[] | undefined, deps: PlanDeps): Promise<Chosen> {
  const once = (ids: string[]) => [...new Set(ids.map((id) => id.toLowerCase()))].sort();
  if (requested) return { ids: once(requested), unseen: new Set(), names: new Map(), unreadable: [] };
  const { all, named, discovered } = await deps.watched();
  const listed = await listSubscriptions(all, deps);
  const names = new Map(listed.subscriptions.map((one) => [one.subscriptionId.toLowerCase(), one.displayName]));
  const unseen = new Set(discovered.filter((id) => !names.has(id) && !named.includes(id)));
  return {
    ids: once(all ? [...named, ...names.keys(), ...unseen] : named),
    unseen,
    names,
    unreadable: all ? listed.unreadable : [],
  };
}

/** Lists the subscriptions that the identity can read. A scan of named subscriptions needs only their display names. */
async function listSubscriptions(
  required: boolean,
  { resourceManager, clock, signal, seen }: PlanDeps,
): Promise<{ subscriptions: SubscriptionResource[]; unreadable: VaultPlan["subscriptions"] }> {
  try {
    const { subscriptions, unreadable } = await resourceManager.subscriptions(signal);
    await seen(subscriptions, unreadable.length === 0);
    const at = clock.now().toISOString();
    return {
      subscriptions,
      unreadable: unreadable.map((failure) => ({
        subscriptionId: UNREADABLE_SUBSCRIPTION,
        vaults: 0,
        failure: failureRecord(failure, at),
      })),
    };
  } catch (error) {
    if (required || !(error instanceof CloudFailure)) throw error;
    return { subscriptions: [], unreadable: [] };
  }
}

/**
 * Lists every vault of a subscription.
 *
 * @throws {CloudFailure} when the list can't be read to its end.
 */
export async function listVaults(
  resourceManager: ResourceManager,
  subscriptionId: string,
  signal: AbortSignal,
): Promise<VaultPage> {
  const all: VaultPage = { vaults: [], unreadable: [] };
  for await (const page of resourceManager.vaults(subscriptionId, signal)) {
    all.vaults.push(...page.vaults);
    all.unreadable.push(...page.unreadable);
  }
  return all;
}

/** Returns the vaults of a subscription in the inventory: lower-case name and end of the back-off. */
async function knownVaults(tables: Tables, subscriptionId: string): Promise<Map<string, string | undefined>> {
  const prefix = vaultInSubscriptionKey(subscriptionId, "");
  const known = new Map<string, string | undefined>();
  const range = {
    partitionKey: VAULTS,
    from: prefix,
    before: keyEnd(prefix),
    select: ["name" as const, "retryAt" as const],
  };
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) known.set(row.name.toLowerCase(), row.retryAt);
  }
  return known;
}
