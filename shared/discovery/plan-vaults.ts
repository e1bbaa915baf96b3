import pMap from "p-map";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { ResourceManager, SubscriptionResource, VaultPage } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { failureRecord } from "./read-list.ts";
import { type PlannedVault, type ScanMode, type ScanRecord, UNREADABLE_SUBSCRIPTION } from "./scan.ts";

/** Subscriptions whose vaults are listed side by side. */
const SUBSCRIPTIONS_AT_ONCE = 8;

/** What a scan is about. */
export interface VaultPlan {
  vaults: PlannedVault[];
  subscriptions: ScanRecord["subscriptionOutcomes"];
}

/** Which subscriptions a scan is about that names none. Ids in lower case. */
export interface WatchedSubscriptions {
  /** True: the named ones, and every other one that the identity may see. */
  all: boolean;
  named: string[];
  /** Those that the identity was ever seen to see. */
  discovered: string[];
}

interface PlanDeps {
  tables: Tables;
  resourceManager: ResourceManager;
  watched: () => Promise<WatchedSubscriptions>;
  /** Told of every subscription that the identity sees; `complete` is false where some could not be read. */
  seen: (subscriptions: readonly SubscriptionResource[], complete: boolean) => Promise<void>;
  clock: Clock;
  /** Ends the listing; what is not listed by then is a failure of its subscription. */
  signal: AbortSignal;
}

/**
 * Which vaults a scan is about: those the resource manager lists in each subscription, those known there that a complete
 * listing no longer has, and of both which are left alone for now. A vault whose description can't be read is planned as
 * that vault's failure.
 * @throws {CloudFailure} when not even the subscriptions could be listed.
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
    // A vault that moved is missing from one subscription and listed in another, whose worker takes it out of the first.
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
  // Nothing is known of it and the identity does not see it any more: it has gone.
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
 * The plan of one subscription from its complete listing.
 *
 * @param known - The vaults known there, by lower-cased name, with the end of their back-off.
 * @param listedAt - When the listing was asked for.
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
  // An entry without a name may be any of the vaults that seem to be missing: none is taken out then.
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
  /** Those of `ids` that the identity saw once and does not see now. */
  unseen: ReadonlySet<string>;
  /** What the resource manager calls them, as far as it said. */
  names: ReadonlyMap<string, string>;
  unreadable: VaultPlan["subscriptions"];
}

/**
 * Those asked for; else those that are watched. One that the identity has seen before and does not see any more is tried
 * nevertheless: that its vaults can't be listed is that subscription's failure, and none of them is taken out.
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

/** What the identity sees. A scan of those that are named needs it for their names alone. */
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

/** Every vault of a subscription. @throws {CloudFailure} when the list can't be read to its end. */
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

/** The vaults known in a subscription, by lower-cased name, with the end of their back-off. */
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
