import { SCAN_LIST, Scans } from "../discovery/scan.ts";
import { sourceOf } from "../inventory/asset.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Config } from "../platform/config/config.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { readAddedSubscriptions } from "./added-subscriptions.ts";

// Upgrade from versions without the setting `watchAll`, which watched all subscriptions until one was added or configured.

/**
 * Statuses of scans that got as far as the list of vaults to read. This version loads its settings before a scan makes that list,
 * and the first load stores `watchAll`. So if `watchAll` is not stored, a scan with such a status is from an earlier version.
 */
const PLANNED_STATUSES = new Set(["completed", "partial", "timedOut"]);

/**
 * Returns true if an earlier version used this storage account and watched all subscriptions, false if it watched only some.
 * Undefined if no version has scanned or added a subscription. Costs three requests, and more for more than 1,000 rows.
 */
export async function watchedAllBefore(
  tables: Tables,
  config: Pick<Config, "AZURE_SUBSCRIPTION_IDS">,
): Promise<boolean | undefined> {
  const entries = await readAddedSubscriptions(tables);
  const namedCount = config.AZURE_SUBSCRIPTION_IDS.length + entries.filter((entry) => !entry.removingSince).length;
  const isUsed = entries.length > 0 || (await hasVaults(tables)) || (await hasScans(tables));
  return isUsed ? namedCount === 0 : undefined;
}

async function hasVaults(tables: Tables): Promise<boolean> {
  const prefix = vaultKey("");
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix), select: ["source"] as const };
  for await (const rows of tables.pages(Vaults, range))
    if (rows.some((row) => sourceOf(row) === "keyVault")) return true;
  return false;
}

async function hasScans(tables: Tables): Promise<boolean> {
  for await (const rows of tables.pages(Scans, { partitionKey: SCAN_LIST, pageSize: 100, select: ["status"] }))
    return rows.some(({ status }) => PLANNED_STATUSES.has(status));
  return false;
}
