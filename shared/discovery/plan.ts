import { CloudFailure } from "../azure/failure.ts";
import type { ResourceManager, VaultResource } from "../azure/resource-manager.ts";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import type { Clock } from "../runtime.ts";
import { keyEnd } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { failureRecord } from "./read-vault.ts";
import type { PlannedVault, ScanMode, ScanRecord } from "./scan.ts";

/** Subscriptions whose vaults are listed side by side. */
const SUBSCRIPTIONS_AT_ONCE = 8;

export interface Plan {
  vaults: PlannedVault[];
  subscriptions: ScanRecord["subscriptionOutcomes"];
}

/**
 * Which vaults a scan is about: those the resource manager lists in each subscription, those known there that a complete
 * listing no longer has, and of both which are left alone for now.
 * @throws {CloudFailure} when not even the subscriptions could be listed.
 */
export async function planScan(
  scan: { mode: ScanMode; subscriptions?: string[] | undefined },
  deps: { tables: Tables; resourceManager: ResourceManager; configured: () => Promise<string[]>; clock: Clock },
): Promise<Plan> {
  const ids = await subscriptionsOf(scan.subscriptions, deps);
  const parts = new Array<Plan>(ids.length);
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < ids.length; at = next++) parts[at] = await planSubscription(ids[at]!, scan.mode, deps);
  };
  await Promise.all(Array.from({ length: SUBSCRIPTIONS_AT_ONCE }, worker));
  const vaults = parts.flatMap((part) => part.vaults);
  const listed = new Set(vaults.filter((one) => one.action !== "remove").map((one) => one.name.toLowerCase()));
  return {
    // A vault that moved is missing from one subscription and listed in another, whose worker takes it out of the first.
    vaults: vaults.filter((one) => one.action !== "remove" || !listed.has(one.name)),
    subscriptions: parts.flatMap((part) => part.subscriptions),
  };
}

async function planSubscription(
  subscriptionId: string,
  mode: ScanMode,
  deps: { tables: Tables; resourceManager: ResourceManager; clock: Clock },
): Promise<Plan> {
  const known = await knownVaults(deps.tables, subscriptionId);
  let listed: VaultResource[];
  try {
    listed = await listVaults(deps.resourceManager, subscriptionId);
  } catch (error) {
    if (!(error instanceof CloudFailure)) throw error;
    const failure = failureRecord(error, deps.clock.now().toISOString());
    return { vaults: [], subscriptions: [{ subscriptionId, vaults: 0, failure }] };
  }
  const now = deps.clock.now().toISOString();
  const vaults: PlannedVault[] = [];
  for (const resource of listed.sort((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1))) {
    const name = resource.name.toLowerCase();
    const retryAt = known.get(name);
    known.delete(name);
    const skip = mode !== "force" && retryAt !== undefined && retryAt > now;
    vaults.push({ name: resource.name, subscriptionId, action: skip ? "skip" : "scan", resource: { ...resource } });
  }
  for (const name of known.keys()) vaults.push({ name, subscriptionId, action: "remove" });
  return { vaults, subscriptions: [{ subscriptionId, vaults: listed.length }] };
}

/** Those asked for; else those configured and added; else all the identity may see. Each once. */
async function subscriptionsOf(
  requested: string[] | undefined,
  deps: { resourceManager: ResourceManager; configured: () => Promise<string[]> },
): Promise<string[]> {
  let ids = requested ?? (await deps.configured());
  if (ids.length === 0) ids = (await deps.resourceManager.subscriptions()).map((one) => one.subscriptionId);
  return [...new Set(ids.map((id) => id.toLowerCase()))].sort();
}

async function listVaults(resourceManager: ResourceManager, subscriptionId: string): Promise<VaultResource[]> {
  const vaults: VaultResource[] = [];
  for await (const page of resourceManager.vaults(subscriptionId)) vaults.push(...page);
  return vaults;
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
