import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { Clock } from "../runtime.ts";
import type { Row } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import {
  insert,
  type Operation,
  put,
  RowChanged,
  RowExists,
  RowMissing,
  remove,
  replace,
  type Tables,
} from "../storage/tables.ts";
import { ASSET_TYPES, type AssetRecord, Assets, type AssetType } from "./asset.ts";
import { namePrefix, partitions, type RowChange, rowOperations } from "./layout.ts";
import {
  expiriesColumn,
  PendingWrites,
  pendingPrefix,
  VAULTS,
  type VaultRecord,
  Vaults,
  vaultInSubscriptionKey,
  vaultKey,
} from "./vault.ts";

/** How long a worker may write before it must say again that it is alive. */
const LOCK_MS = 15_000;
const RENEW_AFTER_MS = 5_000;
/** Entries per PendingWrites row: deflated they stay far below the 1 MiB of an entity. */
const PENDING_PER_ROW = 10_000;
/** Transactions of one partition under way at once. Each holds some 600 KB, times two partitions, times the workers. */
const PARALLEL = 2;

/** Another worker is writing this vault; try again at `until`. */
export class VaultBusy extends Error {
  readonly until: Date;
  constructor(name: string, until: Date) {
    super(`The vault ${name} is being written by another worker until ${until.toISOString()}`);
    this.name = "VaultBusy";
    this.until = until;
  }
}

/** One asset that differs: `before` as the vault's rows have it, `after` as it should be. */
export interface AssetChange {
  type: AssetType;
  name: string;
  before: AssetRecord | undefined;
  after: AssetRecord | undefined;
}

/** An index entry that a worker announced before it wrote it. */
type PendingEntry = [type: AssetType, name: string, expiresOn: number | null];

/** What is known of a vault when a worker begins. */
export interface KnownVault {
  row: Row<VaultRecord> | undefined;
  /** Entries a worker announced and may have written without finishing. */
  pending: PendingEntry[];
}

/**
 * The only writer of assets and vaults. A vault's rows change in this order: the intent (which index entries, under a
 * lock), the copies in the partitions of all and of the subscription, the vault's own rows, and last the vault's row with
 * its totals and fingerprints, in the transaction that also clears the intent. A worker that dies anywhere leaves the
 * vault's row older than what it wrote, and the intent to say what that was; the next one does it again.
 */
export function createInventoryWriter(deps: { tables: Tables; clock: Clock }) {
  const { tables, clock } = deps;

  return {
    async known(name: string): Promise<KnownVault> {
      const row = await tables.get(Vaults, VAULTS, vaultKey(name));
      return { row, pending: row?.pending ? await pendingOf(name) : [] };
    },

    /** One vault's assets of one type, by lower-cased name. */
    async assetsOf(vaultName: string, type: AssetType): Promise<Map<string, AssetRecord>> {
      const assets = new Map<string, AssetRecord>();
      const range = { from: namePrefix(type), before: keyEnd(namePrefix(type)) };
      for await (const rows of tables.pages(Assets, { partitionKey: partitions.vault(vaultName), ...range })) {
        for (const { partitionKey: _p, rowKey: _r, etag: _e, ...asset } of rows)
          assets.set(asset.name.toLowerCase(), asset);
      }
      return assets;
    },

    /** Writes a vault of which no asset changed: one transaction. */
    async touch(known: KnownVault, vault: VaultRecord): Promise<void> {
      refuseWhenLocked(known.row, clock);
      await commit(vault, known.row, []);
    },

    /**
     * Writes changed assets and then the vault. `owner` names this worker in this one life. `record` is run after the copies and before the vault's own rows, for what other rooms derive from a change;
     * it may run again for the same change.
     * @throws {VaultBusy} while another worker writes this vault.
     */
    async apply(
      known: KnownVault,
      vault: VaultRecord,
      changes: AssetChange[],
      owner: string,
      record: (changes: AssetChange[]) => Promise<void>,
    ): Promise<void> {
      refuseWhenLocked(known.row, clock);
      const rows = rowChanges(vault.name, changes, known.pending);
      // Until the end the row keeps saying what it said: the totals and fingerprints of what is known to stand.
      const lock = await begin(known, known.row ? recordOf(known.row) : unread(vault), rows, owner);
      const write = (partitionKey: string) =>
        tables.write(Assets.table, partitionKey, rowOperations(rows), { parallel: PARALLEL, beforeEach: lock.renew });
      await Promise.all([write(partitions.all), write(partitions.subscription(vault.subscriptionId))]);
      await record(changes);
      await write(partitions.vault(vault.name));
      await commit(vault, lock.row(), lock.pendingKeys);
    },

    /**
     * Removes a vault and everything known of its assets, under the same intent and lock as `apply`. Its row forgets its
     * fingerprints first: a scan that finds the vault again after a removal that never ended must read and write all of it.
     * Answers the assets that left.
     * @throws {VaultBusy} while another worker writes this vault, or when it was written since `row` was read.
     */
    async forget(row: Row<VaultRecord>, record: (changes: AssetChange[]) => Promise<void>): Promise<AssetRecord[]> {
      refuseWhenLocked(row, clock);
      const { name, subscriptionId } = row;
      const gone: AssetRecord[] = [];
      for (const type of ASSET_TYPES) gone.push(...(await this.assetsOf(name, type)).values());
      const pending = row.pending ? await pendingOf(name) : [];
      const changes = gone.map(
        (before): AssetChange => ({ type: before.type, name: before.name, before, after: undefined }),
      );
      const rows = rowChanges(name, changes, pending);
      const lock = await begin({ row, pending }, unread(recordOf(row)), rows, "removal");
      const write = (partitionKey: string) =>
        tables.write(Assets.table, partitionKey, rowOperations(rows), { parallel: PARALLEL, beforeEach: lock.renew });
      await Promise.all([write(partitions.all), write(partitions.subscription(subscriptionId))]);
      await record(changes);
      await write(partitions.vault(name));
      await conflictIsBusy(name, () =>
        tables.transaction(Vaults.table, VAULTS, [
          remove(Vaults, vaultKey(name), lock.row().etag),
          remove(Vaults, vaultInSubscriptionKey(subscriptionId, name)),
          ...lock.pendingKeys.map((key) => remove(PendingWrites, key)),
        ]),
      );
      return gone;
    },
  };

  async function pendingOf(name: string): Promise<PendingEntry[]> {
    const pending: PendingEntry[] = [];
    const prefix = pendingPrefix(name);
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(PendingWrites, range)) {
      for (const { entries } of rows)
        pending.push(...(JSON.parse(inflateRawSync(entries).toString()) as PendingEntry[]));
    }
    return pending;
  }

  /**
   * Takes the lock and writes down which index entries may stand from now on. `standing` is what the vault's row says
   * until the end.
   */
  async function begin(known: KnownVault, standing: VaultRecord, rows: RowChange[], owner: string) {
    const { name } = standing;
    const entries = pendingEntries(rows, known.pending);
    const pendingKeys: string[] = [];
    const operations: Operation[] = [];
    for (let start = 0; start < entries.length; start += PENDING_PER_ROW) {
      const key = pendingKey(name, pendingKeys.length);
      const chunk = deflateRawSync(JSON.stringify(entries.slice(start, start + PENDING_PER_ROW)));
      operations.push(put(PendingWrites, key, { entries: new Uint8Array(chunk) }));
      pendingKeys.push(key);
    }
    let lockedAt = clock.now().getTime();
    const locked = (): VaultRecord => ({
      ...standing,
      pending: true,
      lockOwner: owner,
      lockedUntil: new Date(lockedAt + LOCK_MS).toISOString(),
    });
    const first = locked();
    const key = vaultKey(name);
    const etags = await conflictIsBusy(name, () =>
      tables.transaction(Vaults.table, VAULTS, [
        known.row ? replace(Vaults, key, first, known.row.etag) : insert(Vaults, key, first),
        // Never a vault without its copy: by the copies a scan finds the vaults that left.
        put(Vaults, vaultInSubscriptionKey(standing.subscriptionId, name), first),
        ...operations,
      ]),
    );
    let row: Row<VaultRecord> = { ...first, partitionKey: VAULTS, rowKey: key, etag: etags.get(key)! };
    let renewing: Promise<void> | undefined;
    return {
      row: () => row,
      pendingKeys,
      renew: async () => {
        if (clock.now().getTime() - lockedAt < RENEW_AFTER_MS) return;
        renewing ??= (async () => {
          lockedAt = clock.now().getTime();
          row = await conflictIsBusy(name, () => tables.replace(Vaults, { ...row, ...locked() }));
          renewing = undefined;
        })();
        await renewing;
      },
    };
  }

  async function commit(vault: VaultRecord, row: Row<VaultRecord> | undefined, pendingKeys: string[]): Promise<void> {
    const { lockOwner: _owner, lockedUntil: _until, ...free } = vault;
    const value: VaultRecord = { ...free, pending: false };
    const key = vaultKey(vault.name);
    await conflictIsBusy(vault.name, () =>
      tables.transaction(Vaults.table, VAULTS, [
        row ? replace(Vaults, key, value, row.etag) : insert(Vaults, key, value),
        put(Vaults, vaultInSubscriptionKey(vault.subscriptionId, vault.name), value),
        ...pendingKeys.map((pending) => remove(PendingWrites, pending)),
      ]),
    );
  }

  /** Somebody else changed the vault's row: their work stands, ours is to be done again from what they left. */
  async function conflictIsBusy<T>(name: string, write: () => Promise<T>): Promise<T> {
    try {
      return await write();
    } catch (error) {
      if (error instanceof RowChanged || error instanceof RowExists || error instanceof RowMissing) {
        throw new VaultBusy(name, new Date(clock.now().getTime() + 2_000));
      }
      throw error;
    }
  }
}

export type InventoryWriter = ReturnType<typeof createInventoryWriter>;

const pendingKey = (vaultName: string, index: number): string =>
  `${pendingPrefix(vaultName)}${String(index).padStart(3, "0")}`;

const recordOf = ({ partitionKey: _p, rowKey: _r, etag: _e, ...record }: Row<VaultRecord>): VaultRecord => record;

/** A vault's row before anything of it was written: known to exist, nothing listed. */
const unread = (vault: VaultRecord): VaultRecord => ({
  ...vault,
  listedAt: {},
  listings: {},
  contents: {},
  ...Object.fromEntries(ASSET_TYPES.map((type) => [expiriesColumn(type), undefined])),
});

function refuseWhenLocked(row: Row<VaultRecord> | undefined, clock: Clock): void {
  if (!row?.lockedUntil) return;
  const until = new Date(row.lockedUntil);
  if (until > clock.now()) throw new VaultBusy(row.name, until);
}

const changeKey = (type: AssetType, name: string): string => `${type}!${name.toLowerCase()}`;

/** The row changes of all assets that changed, and of those a dead worker may have touched. */
function rowChanges(vaultName: string, changes: AssetChange[], pending: PendingEntry[]): RowChange[] {
  const rows = new Map<string, RowChange>();
  for (const { type, name, before, after } of changes) {
    const staleExpiries = before ? [before.expiresOn] : [];
    rows.set(changeKey(type, name), { type, name, vaultName, asset: after, staleExpiries });
  }
  for (const [type, name, expiresOn] of pending) {
    // The caller names every pending asset among its changes; one it does not know is gone.
    const row = rows.get(changeKey(type, name)) ?? { type, name, vaultName, asset: undefined, staleExpiries: [] };
    row.staleExpiries.push(expiresOn ?? undefined);
    rows.set(changeKey(type, name), row);
  }
  return [...rows.values()];
}

/** All index entries by expiry that may stand once these rows begin to be written. */
function pendingEntries(rows: RowChange[], earlier: PendingEntry[]): PendingEntry[] {
  return [
    ...earlier,
    ...rows.map(({ type, name, asset }): PendingEntry => [type, name.toLowerCase(), asset?.expiresOn ?? null]),
  ];
}
