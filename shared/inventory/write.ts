import { type Clock, systemClock } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, type Tables } from "../platform/storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { changeOperations } from "./change-log.ts";
import { writeVault } from "./changed-vaults.ts";
import {
  type AssetChange,
  netChanges,
  pendingEntries,
  type RowChange,
  rowChanges,
  rowOperations,
  withAnnounced,
} from "./changes.ts";
import {
  type Claim,
  claimVault,
  conflictIsBusy,
  etagsOf,
  finished,
  type KnownVault,
  knownVault,
  LEASE_MS,
  VaultBusy,
} from "./claim.ts";
import { namePrefix, partitions } from "./layout.ts";
import { type IndexEntry, type Restored, removeOldFences, removeOldRemovals, restoreVault } from "./repair.ts";
import { expiriesColumn, RemovedVaults, removedKey, VAULTS, type VaultRecord, Vaults, vaultKey } from "./vault.ts";

export type { AssetChange } from "./changes.ts";
export { type KnownVault, VaultBusy } from "./claim.ts";
export type { IndexEntry, Restored } from "./repair.ts";

/**
 * Writes what another room derives from changed assets. May be run again for the same change.
 *
 * @param confirm - Makes sure that this worker still has the vault, for who had to read again what stands. Throws VaultBusy.
 */
export type RecordChanges = (changes: AssetChange[], confirm: () => Promise<void>) => Promise<void>;

/**
 * Run before the vault is claimed: what it reads is older than anything that a worker writes who takes the vault over, so
 * that a write that goes by it can be refused.
 */
export type PrepareRecord = () => Promise<RecordChanges>;

/**
 * The only writer of assets and vaults. A vault's rows change in this order: the claim (which index entries may stand from
 * now on), the copies in the partitions of all and of the subscription, what other rooms derive, the vault's own rows, and
 * last the vault's row with its totals and fingerprints, in the transaction that also ends the claim and writes down what
 * changed. A worker that dies
 * anywhere leaves the vault's row older than what it wrote, and the claim says what that was; the next one does it again.
 * Rows of assets are written under the fences of their partitions, so that nothing a dead or slow worker sent can be
 * applied once another one goes on.
 */
export interface InventoryWriter {
  /** A vault's row as it is now, to read. */
  find(name: string): Promise<Row<VaultRecord> | undefined>;
  /**
   * What a worker has to know before it reads the vault in the cloud. Takes over what a dead worker left.
   *
   * @throws {VaultBusy} while another worker holds the vault.
   */
  known(name: string): Promise<KnownVault>;
  /** When the listing was asked for by which a vault was removed lately that is not known any more. */
  removedAt(name: string): Promise<string | undefined>;
  /** One vault's assets of one type, by lower-cased name. */
  assetsOf(vaultName: string, type: AssetType): Promise<Map<string, AssetRecord>>;
  /** Writes a vault of which no asset changed and nothing is derived: one transaction. @throws {VaultBusy} */
  touch(known: KnownVault, vault: VaultRecord): Promise<void>;
  /**
   * Writes changed assets and then the vault, which is in the subscription where `known` has it, if that has it.
   *
   * @param owner - Names this worker in this one life to people who read the vault's row.
   * @throws {VaultBusy} when another worker has written the vault since `known`, or takes it over.
   */
  apply(
    known: KnownVault,
    vault: VaultRecord,
    changes: AssetChange[],
    owner: string,
    prepare: PrepareRecord,
  ): Promise<void>;
  /**
   * Removes a vault and everything known of its assets. Its row forgets its fingerprints first: a scan that finds the vault
   * again after a removal that never ended must read and write all of it. The fences stay, for removeOldFences.
   *
   * @param listedAt - When the complete listing was asked for that lacked it, for `removedAt`.
   * @returns the assets that left; none when the vault is not known.
   * @throws {VaultBusy} as `apply`.
   */
  forget(known: KnownVault, owner: string, prepare: PrepareRecord, listedAt?: string): Promise<AssetRecord[]>;
  /**
   * Brings the rows of these assets in every partition back to what the vault's own rows by name say. Removes the entries
   * named where they should not stand. Of a vault that is not known every row of these assets is removed.
   *
   * @returns how many rows were written and removed, right ones written anew included.
   * @throws {VaultBusy} while another worker writes the vault, or has not finished: the next scan does.
   */
  restore(vaultName: string, entries: IndexEntry[], owner: string): Promise<Restored>;
  /**
   * Clears the fingerprints of these lists, so that the next scan of any mode reads and compares all of them.
   *
   * @throws {VaultBusy} as `restore`.
   */
  forgetListings(vaultName: string, types: readonly AssetType[]): Promise<void>;
  /**
   * Removes the fences in these partitions that were left more than a day ago and whose vault is not there any more, and
   * what `removedAt` goes by of vaults that were removed more than a day ago. Answers how many fences. One request per 1,000
   * of each and per 1,000 vaults, two for each that is removed.
   */
  removeOldFences(partitionKeys: Iterable<string>): Promise<number>;
}

export function createInventoryWriter({
  tables,
  clock = systemClock,
}: {
  tables: Tables;
  /** Dates what changed. */
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

  /** Does the work under a claim of the vault, which says `standing` until the end and `end` from then on. */
  async function underClaim(
    known: KnownVault,
    work: {
      standing: VaultRecord;
      end: VaultRecord | undefined;
      changes: AssetChange[];
      owner: string;
      prepare: PrepareRecord;
      /** Written with the end. */
      also?: readonly Operation[];
    },
  ): Promise<void> {
    const { standing, end, owner } = work;
    const changes = withAnnounced(work.changes, known.pending);
    const rows = rowChanges(standing.name, changes, known.pending);
    const record = await work.prepare();
    const claim = await claimVault(tables, known, standing, pendingEntries(rows, known.pending), owner);
    await conflictIsBusy(standing.name, () =>
      repeatOnConflict(async (attempt) => {
        // A fence was not as the last worker should have left it, or another worker is taking the vault over.
        if (attempt > 1) await claim.retake();
        await writeCopies(claim, rows);
        await record(changes, claim.confirm);
        await claim.fences.vault.write(rowOperations(rows), { beforeEach: claim.renew });
      }, 2),
    );
    const logged = changeOperations(standing, netChanges(changes, known.pending), clock.now());
    await claim.end(end, { changes: logged, also: work.also });
  }

  return {
    find,
    assetsOf,
    known: (name) => knownVault(tables, name),

    async removedAt(name) {
      return (await tables.get(RemovedVaults, VAULTS, removedKey(name)))?.listedAt;
    },

    async touch(known, vault) {
      const fences = known.fences ? etagsOf(known.fences) : known.row?.fences;
      await conflictIsBusy(vault.name, () =>
        writeVault(tables, { before: known.row, now: vault }, finished(vault, fences, known.row?.etag)),
      );
    },

    async apply(known, vault, changes, owner, prepare) {
      if (known.row && known.row.subscriptionId.toLowerCase() !== vault.subscriptionId.toLowerCase())
        throw new TypeError("A vault that moved leaves its old subscription first.");
      // Until the end the row keeps saying what it said: the totals and fingerprints of what is known to stand.
      const standing = known.row ? withoutKeys(known.row) : unread(vault);
      await underClaim(known, { standing, end: vault, changes, owner, prepare });
    },

    async forget(known, owner, prepare, listedAt) {
      if (!known.row) return [];
      const gone: AssetRecord[] = [];
      for (const type of ASSET_TYPES) gone.push(...(await assetsOf(known.row.name, type)).values());
      const changes = gone.map((before) => ({ type: before.type, name: before.name, before, after: undefined }));
      const standing = unread(withoutKeys(known.row));
      const also = listedAt === undefined ? [] : [put(RemovedVaults, removedKey(known.row.name), { listedAt })];
      await underClaim(known, { standing, end: undefined, changes, owner, prepare, also });
      return gone;
    },

    restore: (vaultName, entries, owner) => restoreVault(tables, vaultName, entries, owner),

    async forgetListings(vaultName, types) {
      const row = await find(vaultName);
      if (!row) return;
      if (row.pending) throw new VaultBusy(vaultName, LEASE_MS);
      const vault = { ...withoutKeys(row), listings: { ...row.listings }, contents: { ...row.contents } };
      for (const type of types) {
        delete vault.listings[type];
        delete vault.contents[type];
      }
      await conflictIsBusy(vaultName, () =>
        tables.transaction(Vaults.table, VAULTS, finished(vault, row.fences, row.etag)),
      );
    },

    async removeOldFences(partitionKeys) {
      await removeOldRemovals(tables);
      return await removeOldFences(tables, partitionKeys);
    },
  };
}

/** Both partitions side by side. Returns or throws only when neither writes any more. */
async function writeCopies({ fences, renew }: Claim, rows: RowChange[]): Promise<void> {
  const written = await Promise.allSettled(
    [fences.all, fences.subscription].map((fence) => fence.write(rowOperations(rows), { beforeEach: renew })),
  );
  for (const one of written) if (one.status === "rejected") throw one.reason;
}

/** A vault's row before anything of it was written: known to exist, nothing listed. */
const unread = (vault: VaultRecord): VaultRecord => ({
  ...vault,
  listedAt: {},
  listings: {},
  contents: {},
  details: undefined,
  answers: undefined,
  owners: undefined,
  ...Object.fromEntries(ASSET_TYPES.map((type) => [expiriesColumn(type), undefined])),
});
