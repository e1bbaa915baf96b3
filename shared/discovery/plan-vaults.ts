import pMap from "p-map";
import { CloudFailure } from "../azure/failure.ts";
import type { ResourceManager, VaultPage } from "../azure/resource-manager.ts";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import type { Clock } from "../runtime.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { failureRecord } from "./read-vault.ts";
import type { PlannedVault, ScanMode, ScanRecord } from "./scan.ts";

/** Subscriptions whose vaults are listed side by side. */
const SUBSCRIPTIONS_AT_ONCE = 8;

/** Stands for the id of a subscription whose entry in the list of subscriptions could not be read. */
const UNREADABLE_SUBSCRIPTION = "unreadable";

/** What a scan is about. */
export interface VaultPlan {
  vaults: PlannedVault[];
  subscriptions: ScanRecord["subscriptionOutcomes"];
}

interface PlanDeps {
  tables: Tables;
  resourceManager: ResourceManager;
  /** The subscriptions configured and added; empty for all that the identity may see. */
  configured: () => Promise<string[]>;
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
  const { ids, unreadable } = await subscriptionsOf(scan.subscriptions, deps);
  const parts = await pMap(ids, (id) => planSubscription(id, scan.mode, deps), { concurrency: SUBSCRIPTIONS_AT_ONCE });
  const vaults = parts.flatMap((part) => part.vaults);
  const listed = new Set(vaults.filter((one) => one.action !== "remove").map((one) => one.name.toLowerCase()));
  return {
    // A vault that moved is missing from one subscription and listed in another, whose worker takes it out of the first.
    vaults: vaults.filter((one) => one.action !== "remove" || !listed.has(one.name)),
    subscriptions: [...parts.flatMap((part) => part.subscriptions), ...unreadable],
  };
}

async function planSubscription(subscriptionId: string, mode: ScanMode, deps: PlanDeps): Promise<VaultPlan> {
  const known = await knownVaults(deps.tables, subscriptionId);
  let listed: VaultPage;
  try {
    listed = await listVaults(deps.resourceManager, subscriptionId, deps.signal);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    const failure = failureRecord(error, deps.clock.now().toISOString());
    return { vaults: [], subscriptions: [{ subscriptionId, vaults: 0, failure }] };
  }
  return planListed(subscriptionId, listed, known, mode, deps.clock.now().toISOString());
}

/**
 * The plan of one subscription from its complete listing.
 *
 * @param known - The vaults known there, by lower-cased name, with the end of their back-off.
 */
export function planListed(
  subscriptionId: string,
  listed: VaultPage,
  known: ReadonlyMap<string, string | undefined>,
  mode: ScanMode,
  now: string,
): VaultPlan {
  const planned = new Map<string, PlannedVault>();
  for (const resource of listed.vaults) {
    const key = resource.name.toLowerCase();
    const retryAt = known.get(key);
    const skip = mode !== "force" && retryAt !== undefined && retryAt > now;
    planned.set(key, {
      name: resource.name,
      subscriptionId,
      action: skip ? "skip" : "scan",
      resource: { ...resource },
    });
  }
  for (const { name, failure } of listed.unreadable) {
    if (name === undefined || planned.has(name.toLowerCase())) continue;
    const record = failureRecord(failure, now);
    planned.set(name.toLowerCase(), { name, subscriptionId, action: "fail", failure: record });
  }
  // An entry without a name may be any of the vaults that seem to be missing: none is taken out then.
  const nameless = listed.unreadable.find(({ name }) => name === undefined);
  for (const name of nameless ? [] : known.keys()) {
    if (!planned.has(name)) planned.set(name, { name, subscriptionId, action: "remove" });
  }
  const outcome: VaultPlan["subscriptions"][number] = { subscriptionId, vaults: listed.vaults.length };
  if (nameless) outcome.failure = failureRecord(nameless.failure, now);
  return {
    vaults: [...planned].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, vault]) => vault),
    subscriptions: [outcome],
  };
}

/** Those asked for; else those configured and added; else all the identity may see. Each once. */
async function subscriptionsOf(
  requested: string[] | undefined,
  { resourceManager, configured, clock, signal }: PlanDeps,
): Promise<{ ids: string[]; unreadable: VaultPlan["subscriptions"] }> {
  const once = (ids: string[]) => [...new Set(ids.map((id) => id.toLowerCase()))].sort();
  const chosen = requested ?? (await configured());
  if (chosen.length > 0) return { ids: once(chosen), unreadable: [] };
  const seen = await resourceManager.subscriptions(signal);
  const now = clock.now().toISOString();
  return {
    ids: once(seen.subscriptions.map((one) => one.subscriptionId)),
    unreadable: seen.unreadable.map((failure) => ({
      subscriptionId: UNREADABLE_SUBSCRIPTION,
      vaults: 0,
      failure: failureRecord(failure, now),
    })),
  };
}

async function listVaults(
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
