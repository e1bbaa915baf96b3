import { SCAN_LIST, Scans } from "../discovery/scan.ts";
import { sourceOf } from "../inventory/asset.ts";
import { VAULTS, Vaults, vaultKey } from "../inventory/vault.ts";
import type { Config } from "../platform/config/config.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { readEntries } from "./added-subscriptions.ts";

/** Statuses of scans that were planned. This version reads its settings before it plans one. */
const PLANNED = new Set(["completed", "partial", "timedOut"]);

/**
 * Returns whether an earlier version that wrote this store watched all subscriptions, which it did if none was added or
 * configured. Undefined if no version has scanned or has a subscription. Three requests, and up to one per 1,000 entries more.
 */
export async function watchedAllBefore(
  tables: Tables,
  config: Pick<Config, "AZURE_SUBSCRIPTION_IDS">,
): Promise<boolean | undefined> {
  const entries = await readEntries(tables);
  const named = config.AZURE_SUBSCRIPTION_IDS.length + entries.filter((entry) => !entry.removingSince).length;
  const used = entries.length > 0 || (await hasVaults(tables)) || (await hasScans(tables));
  return used ? named === 0 : undefined;
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
    return rows.some(({ status }) => PLANNED.has(status));
  return false;
}
