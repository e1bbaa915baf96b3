import { type Clock, systemClock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, type Tables } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { namePrefix, partitions } from "./asset-keys.ts";
import {
  type AssetChange,
  netChanges,
  pendingEntries,
  type RowChange,
  rowChanges,
  rowOperations,
  withAnnouncedRemovals,
} from "./asset-row-changes.ts";
import { changeOperations } from "./change-log.ts";
import { writeVault } from "./changed-vaults.ts";
import { type IndexEntry, type Restored, removeOldFences, removeOldMarkers, restoreVault } from "./repair.ts";
import { expiriesColumn, RemovedVaults, removedKey, VAULTS, type VaultRecord, Vaults, vaultKey } from "./vault.ts";
import {
  busyOnConflict,
  type Claim,
  claimVault,
  fenceEtags,
  LEASE_MS,
  readStoredVault,
  type StoredVault,
  unclaimedRowOperations,
  VaultBusy,
} from "./vault-claim.ts";

/**
 * Writes vaults and their assets. See `InventoryWriter` for the order of the writes. A *claim* is the right of one worker to
 * write a vault's assets. A *fence* is a row whose ETag each write of the vault requires, so that a worker that lost its claim
 * can't write (vault-claim.ts). *Fingerprints* are the hashes by which a scan recognizes unchanged lists and assets.
 */

export type { AssetChange } from "./asset-row-changes.ts";
export type { IndexEntry, Restored } from "./repair.ts";
export { type StoredVault, VaultBusy } from "./vault-claim.ts";

/**
 * Writes data that another module derives from changed assets. The writer may call this function repeatedly for the same
 * changes.
 *
 * @param confirm - Throws VaultBusy if this worker lost its claim of the vault. For functions that read stored data again.
 */
export type WriteDerivedData = (changes: AssetChange[], confirm: () => Promise<void>) => Promise<void>;

/**
 * Reads what the derived data depends on, and returns the function that writes that data. The writer calls it before it claims
 * the vault. Therefore another worker that takes the vault over writes later than these reads, and derived data from outdated
 * reads can be rejected.
 */
export type PrepareDerivedData = () => Promise<WriteDerivedData>;

/**
 * The only writer of assets and vaults. It writes a vault in this order:
 * 1. The claim, which announces the index entries to be written.
 * 2. The copies of the asset rows in the partition of all assets and in the partition of the subscription.
 * 3. Data that other modules derive from the changes.
 * 4. The asset rows in the vault's own partition. After a crash the next worker compares with these rows, so they are last.
 * 5. The vault's row with totals and fingerprints. This transaction also ends the claim and logs the changes.
 *
 * If a worker crashes, the vault's row still has its content before the change, and the claim lists the entries that the worker
 * may have written. The next worker repeats the writes. Asset rows are written under the fences of their partitions, so
 * that late requests of a crashed or slow worker fail.
 */
export interface InventoryWriter {
  /** Returns a vault's current row. */
  find(name: string): Promise<Row<VaultRecord> | undefined>;
  /**
   * Reads a vault's stored state, before the caller reads the vault in the cloud and writes it. If a worker crashed while it
   * wrote the vault, takes the vault over.
   *
   * @throws {VaultBusy} while another worker's claim of the vault is valid.
   */
  readForUpdate(name: string): Promise<StoredVault>;
  /**
   * For a vault that was removed in the last day: returns when the complete listing that no longer contained the vault was
   * requested. Otherwise undefined.
   */
  removedAt(name: string): Promise<string | undefined>;
  /** Returns one vault's assets of one type, by lower-case name. */
  assetsOf(vaultName: string, type: AssetType): Promise<Map<string, AssetRecord>>;
  /**
   * Writes the row of a vault whose assets did not change, in one transaction.
   *
   * @throws {VaultBusy}
   */
  writeVaultOnly(stored: StoredVault, vault: VaultRecord): Promise<void>;
  /**
   * Writes changed assets and then the vault's row. A stored vault must be in the same subscription as in `stored`.
   *
   * @param workerId - Identifies this attempt of the worker in the vault's row.
   * @throws {VaultBusy} when another worker has written the vault since `stored` was read, or takes it over.
   */
  apply(
    stored: StoredVault,
    vault: VaultRecord,
    changes: AssetChange[],
    workerId: string,
    prepare: PrepareDerivedData,
  ): Promise<void>;
  /**
   * Removes a vault and its assets. The fingerprints are removed first: if the removal does not finish and a scan finds the
   * vault again, that scan must read and write all of the vault. The fences stay until `purgeFencesAndMarkers`.
   *
   * @param listedAt - When the complete listing that no longer contained the vault was requested, for `removedAt`.
   * @returns the removed assets; none if the vault is not stored.
   * @throws {VaultBusy} as `apply`.
   */
  forget(stored: StoredVault, workerId: string, prepare: PrepareDerivedData, listedAt?: string): Promise<AssetRecord[]>;
  /**
   * Rewrites all rows of these assets from the rows by name in the vault's own partition. Removes the entries that should not
   * exist. If the vault is not stored, removes every row of these assets.
   *
   * @returns the numbers of rows written and removed, including rows that were already correct.
   * @throws {VaultBusy} while another worker writes the vault, or if another worker crashed. The next scan completes its work.
   */
  restore(vaultName: string, entries: IndexEntry[], workerId: string): Promise<Restored>;
  /**
   * Removes the fingerprints of these lists, so that the next scan of any mode reads and compares all of them.
   *
   * @throws {VaultBusy} as `restore`.
   */
  forgetListings(vaultName: string, types: readonly AssetType[]): Promise<void>;
  /**
   * Removes the fences in these partitions that are older than a day and whose vault no longer exists. Also removes the removal
   * markers (`removedAt`) that are older than a day. One request per 1,000 fences, markers and vaults, and two for each removed
   * row.
   *
   * @returns the number of removed fences.
   */
  purgeFencesAndMarkers(partitionKeys: Iterable<string>): Promise<number>;
}

export function createInventoryWriter({
  tables,
  clock = systemClock,
}: {
  tables: Tables;
  /** Clock for the times of logged changes. */
  clock?: Clock;
}): InventoryWriter {
  const find = (name: string) => tables.get(Vaults, VAULTS, vaultKey(name));

  async function assetsOf(vaultName: string, type: AssetType): Promise<Map<string, AssetRecord>> {
    const assets = new Map<string, AssetRecord>();
    const range = { from: namePrefix(type), before: keyEnd(namePrefix(type)) };
    for await (const rows of tables.pages(Assets, { partitionKey: partitions.vault(vaultName), ...range })) {
      for (const row of rows) assets.set(row.name.toLowerCase(), withoutKeys(row));
    }
    return assets;
  }

  /**
   * Writes the changes under a claim. The vault's row has the content `current` while the claim is valid, and `end` afterwards.
   */
  async function withClaim(
    stored: StoredVault,
    work: {
      current: VaultRecord;
      end: VaultRecord | undefined;
      changes: AssetChange[];
      workerId: string;
      prepare: PrepareDerivedData;
      /** Further operations for the transaction that ends the claim. */
      also?: readonly Operation[];
    },
  ): Promise<void> {
    const { current, end, workerId } = work;
    // Adds the removal of assets that a crashed worker announced (`pending`) and that `work.changes` does not include.
    const changes = withAnnouncedRemovals(work.changes, stored.pending);
    const rows = rowChanges(current.name, changes, stored.pending);
    const writeDerived = await work.prepare();
    const claim = await claimVault(tables, stored, current, pendingEntries(rows, stored.pending), workerId);
    await busyOnConflict(current.name, () =>
      repeatOnConflict(async (attempt) => {
        // A write conflicted: a fence has changed, or another worker is taking the vault over.
        if (attempt > 1) await claim.retake();
        await writeCopies(claim, rows);
        await writeDerived(changes, claim.confirm);
        await claim.fences.vault.write(rowOperations(rows), { beforeEach: claim.renew });
      }, 2),
    );
    // Logs the difference from the state before any crashed worker wrote, because `changes` omits what such a worker wrote.
    const loggedChanges = changeOperations(current, netChanges(changes, stored.pending), clock.now());
    await claim.end(end, { changes: loggedChanges, also: work.also });
  }

  return {
    find,
    assetsOf,
    readForUpdate: (name) => readStoredVault(tables, name),

    async removedAt(name) {
      return (await tables.get(RemovedVaults, VAULTS, removedKey(name)))?.listedAt;
    },

    async writeVaultOnly(stored, vault) {
      // If `readForUpdate` took the fences over, their ETags changed. Otherwise those in the row are still valid.
      const fences = stored.fences ? fenceEtags(stored.fences) : stored.row?.fences;
      await busyOnConflict(vault.name, () =>
        writeVault(tables, { before: stored.row, now: vault }, unclaimedRowOperations(vault, fences, stored.row?.etag)),
      );
    },

    async apply(stored, vault, changes, workerId, prepare) {
      if (stored.row && stored.row.subscriptionId.toLowerCase() !== vault.subscriptionId.toLowerCase())
        throw new TypeError("A vault that moved leaves its old subscription first.");
      // While the claim is valid, the row has the totals and fingerprints of the assets that were stored before.
      const current = stored.row ? withoutKeys(stored.row) : withoutListings(vault);
      await withClaim(stored, { current, end: vault, changes, workerId, prepare });
    },

    async forget(stored, workerId, prepare, listedAt) {
      if (!stored.row) return [];
      const removedAssets: AssetRecord[] = [];
      for (const type of ASSET_TYPES) removedAssets.push(...(await assetsOf(stored.row.name, type)).values());
      const changes = removedAssets.map((before) => ({
        type: before.type,
        name: before.name,
        before,
        after: undefined,
      }));
      const current = withoutListings(withoutKeys(stored.row));
      const furtherOperations =
        listedAt === undefined ? [] : [put(RemovedVaults, removedKey(stored.row.name), { listedAt })];
      await withClaim(stored, { current, end: undefined, changes, workerId, prepare, also: furtherOperations });
      return removedAssets;
    },

    restore: (vaultName, entries, workerId) => restoreVault(tables, vaultName, entries, workerId),

    async forgetListings(vaultName, types) {
      const row = await find(vaultName);
      if (!row) return;
      if (row.pending) throw new VaultBusy(vaultName, LEASE_MS);
      const vault = { ...withoutKeys(row), listings: { ...row.listings }, contents: { ...row.contents } };
      for (const type of types) {
        delete vault.listings[type];
        delete vault.contents[type];
      }
      await busyOnConflict(vaultName, () =>
        tables.transaction(Vaults.table, VAULTS, unclaimedRowOperations(vault, row.fences, row.etag)),
      );
    },

    async purgeFencesAndMarkers(partitionKeys) {
      await removeOldMarkers(tables);
      return await removeOldFences(tables, partitionKeys);
    },
  };
}

/** Writes the copies in both partitions concurrently. Returns or throws only after both writes have ended. */
async function writeCopies({ fences, renew }: Claim, rows: RowChange[]): Promise<void> {
  const results = await Promise.allSettled(
    [fences.all, fences.subscription].map((fence) => fence.write(rowOperations(rows), { beforeEach: renew })),
  );
  for (const result of results) if (result.status === "rejected") throw result.reason;
}

/** Returns the vault's row without the results of listings: no totals, fingerprints or owners. */
const withoutListings = (vault: VaultRecord): VaultRecord => ({
  ...vault,
  listedAt: {},
  listings: {},
  contents: {},
  details: undefined,
  answers: undefined,
  owners: undefined,
  ...Object.fromEntries(ASSET_TYPES.map((type) => [expiriesColumn(type), undefined])),
  certificateRenewals: undefined,
});
