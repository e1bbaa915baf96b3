import type { LostVault, Rescans } from "../discovery/rescans.ts";
import { Assets, sourceOf } from "../inventory/asset.ts";
import { partitions } from "../inventory/asset-keys.ts";
import { VAULTS, type VaultRecord, Vaults, vaultInSubscriptionKey, vaultKey } from "../inventory/vault.ts";
import type { Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { indexRange, readRowOrCorrupt, type SuspectedDifference } from "./suspected-differences.ts";

/**
 * Decides about rows whose vault has no row of its own. If the vault exists, its row was lost: it is restored from its copy, and
 * the vault is scanned again. Until then, none of its other rows is removed, so that lists and the score stay complete.
 */

/** Maximum number of the vault's assets whose rows are read. A row names the resource ID of its vault. */
const ROWS_READ = 20;

/** A vault whose own row is missing although the vault exists, or is expected to. */
export interface FoundLostVault {
  /** Its copy, from which its own row can be restored. */
  readonly copy: Row<VaultRecord> | undefined;
  /** Whether a re-scan was requested now. False if a re-scan is already due, or none is needed. */
  readonly isRequested: boolean;
}

/**
 * Returns the vault if its own row is lost. Undefined if the row exists or can't be read, or if the vault no longer exists: its
 * other rows are then superfluous.
 *
 * @throws {CloudFailure} if the service can't determine whether the vault exists.
 */
export async function findLostVault(
  tables: Tables,
  name: string,
  suspected: readonly SuspectedDifference[],
  rescans: Pick<Rescans, "requestForLostVault">,
): Promise<FoundLostVault | undefined> {
  const own = await readRowOrCorrupt(tables, Vaults, VAULTS, vaultKey(name));
  if (own.row || own.unreadable) return undefined;
  const assets = await assetsOf(tables, name, suspected);
  const copy = await copyOf(tables, name, suspected, assets);
  // Applications and B2C tenants also have vault rows. Their discovery, not a scan, restores such a row while it has credentials.
  if (copy && sourceOf(copy) !== "keyVault") return assets.length > 0 ? { copy, isRequested: false } : undefined;
  const vaultIds = new Set([...(copy ? [copy.id] : []), ...assets.map(({ vaultId }) => vaultId)]);
  const state: LostVault = await rescans.requestForLostVault(name, [...vaultIds]);
  // No scan reads the vault, and its rows stay until their retention ends.
  if (state === "outOfScope") return copy && { copy, isRequested: false };
  return state === "gone" ? undefined : { copy, isRequested: state === "requested" };
}

/** Returns some of the vault's assets: from its own partition, and from the rows that are suspected. */
async function assetsOf(tables: Tables, name: string, suspected: readonly SuspectedDifference[]) {
  const range = { ...indexRange(partitions.vault(name)), pageSize: ROWS_READ, onCorrupt: () => undefined };
  for await (const rows of tables.pages(Assets, range)) if (rows.length > 0) return rows;
  const rows = suspected.filter((difference) => difference.about === "row").slice(0, ROWS_READ);
  const read = rows.map(async ({ partitionKey, key }) => await readRowOrCorrupt(tables, Assets, partitionKey, key));
  return (await Promise.all(read)).flatMap(({ row }) => row ?? []);
}

/** Returns the copy of the vault's row under the subscriptions that the suspected copies and the assets name. */
async function copyOf(
  tables: Tables,
  name: string,
  suspected: readonly SuspectedDifference[],
  assets: readonly { subscriptionId: string }[],
): Promise<Row<VaultRecord> | undefined> {
  const keys = new Set([
    ...suspected.flatMap((difference) => (difference.about === "copy" ? difference.key : [])),
    ...assets.map(({ subscriptionId }) => vaultInSubscriptionKey(subscriptionId, name)),
  ]);
  for (const key of keys) {
    const { row } = await readRowOrCorrupt(tables, Vaults, VAULTS, key);
    if (row && key === vaultInSubscriptionKey(row.subscriptionId, row.name) && row.name.toLowerCase() === name)
      return row;
  }
  return undefined;
}
