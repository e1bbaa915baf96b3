import { randomUUID } from "node:crypto";
import * as z from "zod";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { pack, unpack } from "../platform/storage/packed-members.ts";
import { type Fence, insert, type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { AssetFences, fenceKey, partitions } from "./asset-keys.ts";
import { PendingEntry } from "./asset-row-changes.ts";
import { ChangeRows, type LoggedChanges } from "./change-log.ts";
import { isCountedEqually, writeVault } from "./changed-vaults.ts";
import {
  PendingWrites,
  pendingPrefix,
  VAULTS,
  type VaultRecord,
  Vaults,
  vaultInSubscriptionKey,
  vaultKey,
} from "./vault.ts";

/**
 * The claim of a vault: the right of one worker to write its assets.
 * - A worker claims a vault by writing its name into the vault's row. The claim ends after 15 seconds without a
 *   renewal, so that another worker can take the vault over from a crashed one.
 * - A claim alone does not stop late requests of the earlier worker. *Fences* stop them. Each partition with rows of
 *   the vault has a fence row, and each transaction on these rows requires its ETag. A worker that takes the fences
 *   changes their ETags, so that every later request of the earlier worker fails.
 * - Before it writes, a worker announces the index entries it is going to write (PendingWrites). The worker that takes
 *   over removes or completes them.
 */

/**
 * How long a claim is valid after its last renewal, by the clock of the storage. Claims only prevent duplicate work. Fences
 * make writes safe.
 */
export const LEASE_MS = 15 * SECOND_MS;
const RENEWAL_INTERVAL_MS = 5 * SECOND_MS;
/** Delay before the next attempt if another worker was faster. */
const CONFLICT_RETRY_DELAY_MS = 2 * SECOND_MS;
/** Entries per PendingWrites row. Compressed, they stay far below the 1 MiB limit of an entity. */
const PENDING_PER_ROW = 10_000;

/** Thrown while another worker writes the vault. Retry after `waitMs` milliseconds. */
export class VaultBusy extends Error {
  readonly waitMs: number;
  constructor(name: string, waitMs: number) {
    super(`The vault ${name} is being written by another worker; try again in ${Math.ceil(waitMs / SECOND_MS)} s`);
    this.name = "VaultBusy";
    this.waitMs = waitMs;
  }
}

/** The fences of a vault that one worker has taken, one in each partition of the vault's assets. */
export interface VaultFences {
  readonly all: Fence;
  readonly subscription: Fence;
  readonly vault: Fence;
}

/** The stored state of a vault when a worker starts. */
export interface StoredVault {
  row: Row<VaultRecord> | undefined;
  /** Entries that a worker announced and may have written without finishing. */
  pending: PendingEntry[];
  /** True if another worker claimed the vault and did not finish. Any part of its work may have been written. */
  interrupted: boolean;
  /** Set only if the fences were taken over from another worker. */
  fences: VaultFences | undefined;
}

/** A valid claim, with which its worker writes the vault's assets under the fences. */
export interface Claim {
  readonly fences: VaultFences;
  /**
   * Renews the claim, at most every five seconds.
   *
   * @throws {VaultBusy} when another worker took the vault over.
   */
  renew(): Promise<void>;
  /**
   * Verifies that no other worker has claimed the vault.
   *
   * @throws {VaultBusy}
   */
  confirm(): Promise<void>;
  /**
   * Takes every fence again after a write conflict, if the claim is still valid.
   *
   * @throws {VaultBusy}
   */
  retake(): Promise<void>;
  /**
   * Ends the claim and replaces the vault's row by `vault`, or removes the row if `vault` is undefined. The same transaction
   * writes `also` and the logged `changes`. Changes that don't fit into it are written before. Logged changes that a crashed
   * worker wrote are removed first.
   *
   * @throws {VaultBusy}
   */
  end(
    vault: VaultRecord | undefined,
    further?: { changes?: LoggedChanges; also?: readonly Operation[] | undefined },
  ): Promise<void>;
}

/**
 * Reads a vault's stored state before a worker reads the vault in the cloud. If another worker did not finish, the fences are
 * taken first, so that none of its late requests can succeed, and only then the rows are read.
 *
 * @throws {VaultBusy} while another worker's claim of the vault is valid.
 */
export async function readStoredVault(tables: Tables, name: string): Promise<StoredVault> {
  const stored = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (!stored?.row.pending) return { row: stored?.row, pending: [], interrupted: false, fences: undefined };
  throwIfClaimed(stored);
  const { subscriptionId } = stored.row;
  const fences = openFences(tables, { name, subscriptionId }, undefined);
  await busyOnConflict(name, () => takeFences(fences));
  // Meanwhile another worker may have claimed the vault, finished it, or moved it to another subscription.
  const current = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (current?.row.pending) throwIfClaimed(current);
  const isInSameSubscription = current?.row.subscriptionId.toLowerCase() === subscriptionId.toLowerCase();
  return {
    row: current?.row,
    pending: current?.row.pending ? await readPendingEntries(tables, name) : [],
    interrupted: current?.row.pending === true,
    fences: isInSameSubscription ? fences : undefined,
  };
}

/**
 * Returns a vault's row while no worker writes the vault. Ends a crashed worker's claim: if that worker is still running, it
 * can no longer finish, and its work is repeated.
 *
 * @throws {VaultBusy} while another worker's claim of the vault is valid.
 */
export async function readUnclaimedVault(tables: Tables, name: string): Promise<Row<VaultRecord> | undefined> {
  const stored = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (!stored?.row.pending || stored.row.lockOwner === undefined) return stored?.row;
  throwIfClaimed(stored);
  return await busyOnConflict(name, () => tables.replace(Vaults, { ...stored.row, lockOwner: undefined }));
}

/**
 * Claims the vault and announces the index entries that are going to be written.
 *
 * @param current - Content of the vault's row until the claim ends.
 * @param workerId - Identifies the worker in the row.
 * @throws {VaultBusy} when the vault was written since `storedVault` was read.
 */
export async function claimVault(
  tables: Tables,
  storedVault: StoredVault,
  current: VaultRecord,
  entries: PendingEntry[],
  workerId: string,
): Promise<Claim> {
  const { name } = current;
  const key = vaultKey(name);
  const copyKey = vaultInSubscriptionKey(current.subscriptionId, name);
  // Without the ETags of the fences, which are wrong as soon as this worker writes. Earlier versions wrote `lockedUntil`.
  const { fences: _fences, lockedUntil: _until, ...unclaimed } = current;
  const claimed: VaultRecord = { ...unclaimed, pending: true, lockOwner: workerId };
  // True if the write below also writes the vault's mark (changed-vaults.ts), from which readers correct the stored totals.
  const hasMark = !isCountedEqually(storedVault.row, claimed);
  const pendingRows = pendingOperations(name, entries);
  const pendingKeys = pendingRows.map(({ rowKey }) => rowKey);
  const leadOperations = [
    storedVault.row ? replace(Vaults, key, claimed, storedVault.row.etag) : insert(Vaults, key, claimed),
    // A vault's row and its copy are always written together, because scans find removed vaults by the copies.
    put(Vaults, copyKey, claimed),
  ];
  const [firstBatch = [], ...furtherBatches] = await splitIntoBatches(tables, pendingRows, leadOperations);
  const etags = await busyOnConflict(name, () =>
    writeVault(tables, { before: storedVault.row, now: claimed }, [...leadOperations, ...firstBatch]),
  );
  let etag = etags.get(key)!;
  let claimRenewedAt = performance.now();
  let renewing: Promise<void> | undefined;
  const fences = storedVault.fences ?? openFences(tables, current, storedVault.row?.fences);

  async function confirm(): Promise<void> {
    claimRenewedAt = performance.now();
    const row = { ...claimed, partitionKey: VAULTS, rowKey: key, etag };
    ({ etag } = await busyOnConflict(name, () => tables.replace(Vaults, row)));
  }

  /** Writes rows in a transaction that fails if the claim is no longer valid. */
  async function writeUnderClaim(rows: readonly Operation[]): Promise<void> {
    const operations = [replace(Vaults, key, claimed, etag), ...rows];
    etag = (await busyOnConflict(name, () => tables.transaction(Vaults.table, VAULTS, operations))).get(key)!;
  }

  /** Removes the logged changes of a crashed worker. They carry that worker's time, so they can't be reused. */
  async function removeChangesOfCrashedWorker(): Promise<void> {
    const from = current.changesKey;
    if (from === undefined) return;
    const removals: Operation[] = [];
    const range = { partitionKey: VAULTS, from, before: keyEnd(from), select: [] };
    for await (const rows of tables.pages(ChangeRows, range))
      for (const { rowKey } of rows) removals.push(remove(ChangeRows, rowKey));
    for (const batch of await splitIntoBatches(tables, removals, [])) await writeUnderClaim(batch);
  }

  // All entries are announced before any index row is written.
  for (const batch of furtherBatches) await writeUnderClaim(batch);

  return {
    fences,
    confirm,

    async renew() {
      if (renewing === undefined && performance.now() - claimRenewedAt < RENEWAL_INTERVAL_MS) return;
      // After a failure `renewing` stays rejected: the claim is lost, so each later call throws too.
      renewing ??= confirm().then(() => {
        renewing = undefined;
      });
      await renewing;
    },

    async retake() {
      await busyOnConflict(name, () => takeFences(fences));
      // A worker claims the vault before it takes fences and writes. So this fails if another worker did so in between.
      await confirm();
    },

    async end(vault, { changes, also = [] } = {}) {
      const pendingRemovals = pendingKeys.map((pending) => remove(PendingWrites, pending));
      await removeChangesOfCrashedWorker();
      const endOperations = () => [
        ...(vault
          ? unclaimedRowOperations(vault, fenceEtags(fences), etag)
          : [remove(Vaults, key, etag), remove(Vaults, copyKey)]),
        ...pendingRemovals,
        ...also,
      ];
      let operations = endOperations();
      const [lastBatch = [], ...earlierBatches] = await splitIntoBatches(tables, changes?.rows ?? [], operations);
      if (earlierBatches.length > 0) {
        // Stored with the first batch, so that after a crash the next worker finds and removes these logged changes.
        claimed.changesKey = changes?.key;
        for (const batch of earlierBatches) await writeUnderClaim(batch);
        // Again, because these writes changed the ETag of the vault's row.
        operations = endOperations();
      }
      await busyOnConflict(name, () =>
        writeVault(tables, { before: claimed, now: vault, marked: hasMark }, [...operations, ...lastBatch]),
      );
    },
  };
}

/** Upper bound of a changed vault's rows in a transaction: an entity has at most 1 MiB, and its bytes are sent in base64. */
const MAX_CHANGED_VAULT_BYTES = 1.4 * 1024 * 1024;

/** Splits rows into transaction-sized batches that leave room for `lead` and for the vault's own row. */
const splitIntoBatches = (
  tables: Tables,
  rows: readonly Operation[],
  lead: readonly Operation[],
): Promise<Operation[][]> =>
  tables.batches(Vaults.table, VAULTS, rows, { lead, operations: 1, bytes: MAX_CHANGED_VAULT_BYTES });

/**
 * Returns the operations that store the vault's row and its copy without a claim, whether or not the stored row has one.
 *
 * @param fences - ETags of the fences, for the next worker.
 * @param etag - ETag that the stored row must have. Undefined if there is no row.
 */
export function unclaimedRowOperations(
  vault: VaultRecord,
  fences: VaultRecord["fences"],
  etag: string | undefined,
): [Operation, Operation] {
  const { lockOwner: _owner, lockedUntil: _until, changesKey: _changes, ...unclaimed } = vault;
  const value: VaultRecord = { ...unclaimed, pending: false, fences };
  const key = vaultKey(vault.name);
  return [
    etag === undefined ? insert(Vaults, key, value) : replace(Vaults, key, value, etag),
    put(Vaults, vaultInSubscriptionKey(vault.subscriptionId, vault.name), value),
  ];
}

/**
 * Converts a write conflict to VaultBusy: another worker changed the vault's rows, so the work must be repeated from the new
 * state.
 */
export async function busyOnConflict<T>(name: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (isConflict(error)) throw new VaultBusy(name, CONFLICT_RETRY_DELAY_MS);
    throw error;
  }
}

/** Returns the fence of a vault in one partition. Sends no request. */
export const openFence = (tables: Tables, partitionKey: string, vaultName: string, workerId: string, etag?: string) =>
  tables.fence(AssetFences, partitionKey, fenceKey(vaultName), { owner: workerId, etag });

/** @param etags - ETags of the fences as the last worker left them, if known. */
function openFences(
  tables: Tables,
  { name, subscriptionId }: Pick<VaultRecord, "name" | "subscriptionId">,
  etags: VaultRecord["fences"],
): VaultFences {
  const workerId = randomUUID();
  return {
    all: openFence(tables, partitions.all, name, workerId, etags?.all),
    subscription: openFence(tables, partitions.subscription(subscriptionId), name, workerId, etags?.subscription),
    vault: openFence(tables, partitions.vault(name), name, workerId, etags?.vault),
  };
}

async function takeFences({ all, subscription, vault }: VaultFences): Promise<void> {
  for (const fence of [all, subscription, vault]) await fence.take();
}

/** Returns the ETags for the next worker. Undefined if nothing of the vault was ever written. */
export function fenceEtags({ all, subscription, vault }: VaultFences): VaultRecord["fences"] {
  if (all.etag === undefined || subscription.etag === undefined || vault.etag === undefined) return undefined;
  return { all: all.etag, subscription: subscription.etag, vault: vault.etag };
}

function throwIfClaimed({ row, ageMs }: { row: VaultRecord; ageMs: number }): void {
  if (row.lockOwner !== undefined && ageMs < LEASE_MS) throw new VaultBusy(row.name, LEASE_MS - Math.max(0, ageMs));
}

async function readPendingEntries(tables: Tables, name: string): Promise<PendingEntry[]> {
  const pending: PendingEntry[] = [];
  const prefix = pendingPrefix(name);
  const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
  for await (const rows of tables.pages(PendingWrites, range)) {
    for (const row of rows) pending.push(...unpack(PendingWrites, row, "entries", z.array(PendingEntry)));
  }
  return pending;
}

function pendingOperations(name: string, entries: PendingEntry[]): Operation[] {
  const operations: Operation[] = [];
  for (let start = 0; start < entries.length; start += PENDING_PER_ROW) {
    const key = `${pendingPrefix(name)}${String(operations.length).padStart(3, "0")}`;
    operations.push(put(PendingWrites, key, { entries: pack(entries.slice(start, start + PENDING_PER_ROW)) }));
  }
  return operations;
}
