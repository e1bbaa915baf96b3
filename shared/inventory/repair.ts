import { randomUUID } from "node:crypto";
import pMap from "p-map";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Entity, keysOnly, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Fence, StorageCorrupt, Tables } from "../platform/storage/tables.ts";
import { DAY_MS } from "../platform/time.ts";
import { Assets, type AssetType } from "./asset.ts";
import { AssetFences, fenceRange, nameKey, partitions, vaultOfFence } from "./asset-keys.ts";
import {
  type AssetChange,
  type PendingEntry,
  pendingEntries,
  type RowChange,
  rowChanges,
  rowOperations,
} from "./asset-row-changes.ts";
import { REMOVED, RemovedVaults, VAULTS, Vaults, vaultKey } from "./vault.ts";
import { busyOnConflict, claimVault, LEASE_MS, openFence, readStoredVault, VaultBusy } from "./vault-claim.ts";

/**
 * Repairs asset rows that the reconciliation found to be wrong. Removes fences and removal markers that are no longer
 * needed. A fence is a row whose ETag each write requires, so that late requests of a crashed worker fail. A removal marker
 * records that a vault was removed. Both stay for a day.
 */

/** An index row of an asset that is missing, should not exist, or is outdated. */
export interface IndexEntry {
  type: AssetType;
  name: string;
  /** Expiry in the row's key, in unix seconds. Undefined for no expiry and for a row by name. */
  expiresOn: number | undefined;
  /** Subscription of the partition in which the row was found, if the vault is in another one or in none. */
  subscriptionId?: string | undefined;
}

/** Numbers of rows written and removed. */
export interface Restored {
  written: number;
  removed: number;
}

const MAX_CONCURRENT_READS = 8;
/**
 * A delayed `take()` of another worker, which changes the fence's ETag, can make this worker's write conflict while the claim
 * is still valid. So the write is retried once.
 */
const WRITE_ATTEMPTS = 2;
/** How long a fence stays after its vault was removed: longer than any request or scan can take. */
const FENCE_RETENTION_MS = DAY_MS;

/** Rewrites the rows of assets, as described at `InventoryWriter.restore`. */
export async function restoreVault(
  tables: Tables,
  vaultName: string,
  entries: IndexEntry[],
  workerId: string,
): Promise<Restored> {
  const storedVault = await readStoredVault(tables, vaultName);
  // The next scan completes the work of a crashed worker, with the vault's current state.
  if (storedVault.interrupted) throw new VaultBusy(vaultName, LEASE_MS);
  // Announced entries are index entries that may exist. Those that the wanted state does not contain are removed.
  const announced = entries.map(({ type, name, expiresOn }): PendingEntry => [type, name, expiresOn ?? null]);
  const removedAssets = entries.map(
    ({ type, name }): AssetChange => ({ type, name, before: undefined, after: undefined }),
  );
  // Removes the entries from partitions in which the vault no longer is.
  const removals = rowChanges(vaultName, removedAssets, announced);
  const currentSubscription = storedVault.row?.subscriptionId.toLowerCase();
  const otherPartitions = [...new Set(entries.map(({ subscriptionId }) => subscriptionId?.toLowerCase()))]
    .filter((id) => id !== undefined && id !== currentSubscription)
    .map((id) => partitions.subscription(id!));
  const openFences = (partitionKeys: string[]) =>
    partitionKeys.map((partitionKey) => openFence(tables, partitionKey, vaultName, randomUUID()));

  return await busyOnConflict(vaultName, async () => {
    if (!storedVault.row) {
      const fences = openFences([...otherPartitions, partitions.all, partitions.vault(vaultName)]);
      return await repeatOnConflict(async () => {
        for (const fence of fences) await fence.take();
        // A worker claims a vault before it takes these fences and writes. So this read detects it.
        if (await tables.get(Vaults, VAULTS, vaultKey(vaultName))) throw new VaultBusy(vaultName, LEASE_MS);
        return await writeEach(fences, removals);
      }, WRITE_ATTEMPTS);
    }
    // Rewrites the entries in the vault's current partitions.
    const rows = rowChanges(vaultName, await readCurrentAssets(tables, vaultName, entries), announced);
    const vault = withoutKeys(storedVault.row);
    const claim = await claimVault(tables, storedVault, vault, pendingEntries(rows, []), workerId);
    const otherFences = openFences(otherPartitions);
    const { all, subscription, vault: ownFence } = claim.fences;
    const restored = await repeatOnConflict(async () => {
      for (const fence of otherFences) await fence.take();
      // Also in the first attempt, so that late requests of earlier workers fail. One of them may have caused the fault.
      await claim.retake();
      const { removed } = await writeEach(otherFences, removals);
      const { written, removed: alsoRemoved } = await writeEach([all, subscription, ownFence], rows);
      return { written, removed: removed + alsoRemoved };
    }, WRITE_ATTEMPTS);
    await claim.end(vault);
    return restored;
  });
}

/** Returns the current state of the assets from the vault's own rows by name. Undefined states if there is no row. */
async function readCurrentAssets(tables: Tables, vaultName: string, entries: IndexEntry[]): Promise<AssetChange[]> {
  const read = async ({ type, name }: IndexEntry): Promise<AssetChange> => {
    const row = await tables.get(Assets, partitions.vault(vaultName), nameKey(type, name, vaultName));
    const asset = row && withoutKeys(row);
    return { type, name, before: asset, after: asset };
  };
  return await pMap(entries, read, { concurrency: MAX_CONCURRENT_READS });
}

async function writeEach(fences: Fence[], rows: RowChange[]): Promise<Restored> {
  const counts: Restored = { written: 0, removed: 0 };
  for (const fence of fences) {
    const { written, removed } = await fence.write(rowOperations(rows));
    counts.written += written;
    counts.removed += removed;
  }
  return counts;
}

/** Deletes removal markers older than a day (see `removedAt`). */
export async function removeOldMarkers(tables: Tables): Promise<void> {
  const range = { partitionKey: VAULTS, from: REMOVED, before: keyEnd(REMOVED) };
  for await (const rows of tables.pages(RemovedVaults, { ...range, select: [] })) {
    for (const { rowKey } of rows) await removeOldRow(tables, RemovedVaults, VAULTS, rowKey);
  }
}

/** Removes old fences, as described at `InventoryWriter.purgeFencesAndMarkers`. */
export async function removeOldFences(tables: Tables, partitionKeys: Iterable<string>): Promise<number> {
  const subscriptions = await subscriptionsOfVaults(tables);
  let removed = 0;
  for (const partitionKey of partitionKeys) {
    for await (const rows of tables.pages(AssetFences, { ...fenceRange(partitionKey), select: [] })) {
      for (const { rowKey } of rows) {
        const vault = vaultOfFence(rowKey);
        const subscription = subscriptions.get(vault);
        // The vault was removed, or left this subscription.
        const isUnused =
          !subscriptions.has(vault) ||
          (partitionKey.startsWith("sub:") &&
            subscription !== undefined &&
            partitionKey !== partitions.subscription(subscription));
        if (isUnused && (await removeOldRow(tables, AssetFences, partitionKey, rowKey))) removed++;
      }
    }
  }
  return removed;
}

/** Returns every vault's subscription by lower-case name; undefined if its row can't be read. One request per 1,000 vaults. */
export async function subscriptionsOfVaults(tables: Tables): Promise<Map<string, string | undefined>> {
  const subscriptions = new Map<string, string | undefined>();
  const onCorrupt = ({ rowKey }: StorageCorrupt) => {
    subscriptions.set(rowKey.slice(vaultKey("").length), undefined);
  };
  const range = { partitionKey: VAULTS, from: vaultKey(""), before: keyEnd(vaultKey("")), onCorrupt };
  for await (const rows of tables.pages(Vaults, { ...range, select: ["name", "subscriptionId"] })) {
    for (const { name, subscriptionId } of rows) subscriptions.set(name.toLowerCase(), subscriptionId);
  }
  return subscriptions;
}

/**
 * Removes a row, such as a fence or a removal marker, that was not written for a day by the clock of the storage. Returns
 * whether it was removed.
 */
export async function removeOldRow(
  tables: Tables,
  entity: Entity<unknown>,
  partitionKey: string,
  rowKey: string,
): Promise<boolean> {
  const stored = await tables.getWithAge(keysOnly(entity), partitionKey, rowKey);
  if (!stored || stored.ageMs < FENCE_RETENTION_MS) return false;
  try {
    return await tables.remove(entity, partitionKey, rowKey, stored.row.etag);
  } catch (error) {
    if (isConflict(error)) return false; // The row was written again: the vault exists again.
    throw error;
  }
}
