/** Lists the vaults that a scan must read, skip or remove, from the resource manager's listings and the inventory. */
import pMap from "p-map";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager, SubscriptionResource, VaultPage } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { failureRecord } from "./read-list.ts";
import { type PlannedVault, type ScanMode, type ScanRecord, UNREADABLE_SUBSCRIPTION } from "./scan.ts";

/** Maximum number of subscriptions that are listed concurrently. */
const MAX_CONCURRENT_SUBSCRIPTIONS = 8;

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
  /** Called with every subscription that the identity can read. `complete` is false if some entries could not be read. */
  onSubscriptionsListed: (subscriptions: readonly SubscriptionResource[], complete: boolean) => Promise<void>;
  clock: Clock;
  /** Ends the listing. Subscriptions that are not listed by then are recorded as failed. */
  signal: AbortSignal;
}

/**
 * Plans the vaults of a scan: vaults that the resource manager lists, and known vaults that are missing from a complete
 * listing. Vaults in back-off are planned as skipped, and vaults whose description can't be read as failed. Back-off is the
 * time after failed scans in which only a scan with the mode `force` reads the vault.
 *
 * @throws {CloudFailure} when the subscriptions can't be listed.
 */
export async function planVaults(
  scan: { mode: ScanMode; subscriptions?: string[] | undefined },
  deps: PlanDeps,
): Promise<VaultPlan> {
  const selected = await subscriptionsOf(scan.subscriptions, deps);
  const parts = await pMap(selected.ids, (id) => planSubscription(id, scan.mode, selected, deps), {
    concurrency: MAX_CONCURRENT_SUBSCRIPTIONS,
  });
  const vaults = parts.flatMap((part) => part.vaults);
  const listed = new Set(vaults.filter((one) => one.action !== "remove").map((one) => one.name.toLowerCase()));
  return {
    // A moved vault is missing from one subscription and listed in another. The worker that scans it in the new subscription
    // also removes it from the old one. Names of vaults to remove are in lower case.
    vaults: vaults.filter((one) => one.action !== "remove" || !listed.has(one.name)),
    subscriptions: [...parts.flatMap((part) => part.subscriptions), ...selected.unreadable],
  };
}

async function planSubscription(
  subscriptionId: string,
  mode: ScanMode,
  { names, unseen }: SelectedSubscriptions,
  deps: PlanDeps,
): Promise<VaultPlan> {
  const storedVaults = await readStoredVaults(deps.tables, subscriptionId);
  // The identity can no longer read the subscription, and none of its vaults is stored. So there is nothing to plan or report.
  if (storedVaults.size === 0 && unseen.has(subscriptionId)) return { vaults: [], subscriptions: [] };
  const name = names.get(subscriptionId);
  const nameIfKnown = name === undefined ? {} : { name };
  const listedAt = deps.clock.now().toISOString();
  let listed: VaultPage;
  try {
    listed = await listVaults(deps.resourceManager, subscriptionId, deps.signal);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    const failure = failureRecord(error, deps.clock.now().toISOString());
    return { vaults: [], subscriptions: [{ subscriptionId, ...nameIfKnown, vaults: 0, failure }] };
  }
  const plan = planSubscriptionVaults(subscriptionId, listed, storedVaults, mode, listedAt);
  return { ...plan, subscriptions: plan.subscriptions.map((outcome) => ({ ...outcome, ...nameIfKnown })) };
}

/**
 * Returns the plan of one subscription from its complete listing.
 *
 * @param storedVaults - Vaults of the subscription in the inventory: lower-case name and end of the back-off.
 * @param listedAt - When the listing was requested.
 */
export function planSubscriptionVaults(
  subscriptionId: string,
  listed: VaultPage,
  storedVaults: ReadonlyMap<string, string | undefined>,
  mode: ScanMode,
  listedAt: string,
): VaultPlan {
  const planned = new Map<string, PlannedVault>();
  for (const resource of listed.vaults) {
    const key = resource.name.toLowerCase();
    const retryAt = storedVaults.get(key);
    const isInBackOff = mode !== "force" && retryAt !== undefined && retryAt > listedAt;
    planned.set(key, {
      name: resource.name,
      subscriptionId,
      action: isInBackOff ? "skip" : "scan",
      listedAt,
      resource: { ...resource },
    });
  }
  for (const { name, failure } of listed.unreadable) {
    if (name === undefined || planned.has(name.toLowerCase())) continue;
    const record = failureRecord(failure, listedAt);
    planned.set(name.toLowerCase(), { name, subscriptionId, action: "fail", failure: record });
  }
  // An unreadable entry without a name may be any vault that seems to be missing. Then no vault is removed.
  const nameless = listed.unreadable.find(({ name }) => name === undefined);
  for (const name of nameless ? [] : storedVaults.keys()) {
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
interface SelectedSubscriptions {
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
async function subscriptionsOf(requested: string[] | undefined, deps: PlanDeps): Promise<SelectedSubscriptions> {
  const uniqueLowerCase = (ids: string[]) => [...new Set(ids.map((id) => id.toLowerCase()))].sort();
  if (requested) return { ids: uniqueLowerCase(requested), unseen: new Set(), names: new Map(), unreadable: [] };
  const { all, named, discovered } = await deps.watched();
  const listed = await listSubscriptions(all, deps);
  const names = new Map(listed.subscriptions.map((one) => [one.subscriptionId.toLowerCase(), one.displayName]));
  const unseen = new Set(discovered.filter((id) => !names.has(id) && !named.includes(id)));
  return {
    ids: uniqueLowerCase(all ? [...named, ...names.keys(), ...unseen] : named),
    unseen,
    names,
    unreadable: all ? listed.unreadable : [],
  };
}

/** Lists the subscriptions that the identity can read. A scan of named subscriptions needs only their display names. */
async function listSubscriptions(
  required: boolean,
  { resourceManager, clock, signal, onSubscriptionsListed }: PlanDeps,
): Promise<{ subscriptions: SubscriptionResource[]; unreadable: VaultPlan["subscriptions"] }> {
  try {
    const { subscriptions, unreadable } = await resourceManager.subscriptions(signal);
    await onSubscriptionsListed(subscriptions, unreadable.length === 0);
    const listedAt = clock.now().toISOString();
    return {
      subscriptions,
      unreadable: unreadable.map((failure) => ({
        subscriptionId: UNREADABLE_SUBSCRIPTION,
        vaults: 0,
        failure: failureRecord(failure, listedAt),
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
  resourceManager: Pick<ResourceManager, "vaults">,
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
async function readStoredVaults(tables: Tables, subscriptionId: string): Promise<Map<string, string | undefined>> {
  const prefix = vaultInSubscriptionKey(subscriptionId, "");
  const storedVaults = new Map<string, string | undefined>();
  const range = {
    partitionKey: VAULTS,
    from: prefix,
    before: keyEnd(prefix),
    select: ["name" as const, "retryAt" as const],
  };
  for await (const rows of tables.pages(Vaults, range)) {
    for (const row of rows) storedVaults.set(row.name.toLowerCase(), row.retryAt);
  }
  return storedVaults;
}
