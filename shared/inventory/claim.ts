import { randomUUID } from "node:crypto";
import * as z from "zod";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { pack, unpack } from "../platform/storage/packed-members.ts";
import { type Fence, insert, type Operation, put, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { ChangeRows, type LoggedChanges } from "./change-log.ts";
import { countsAlike, writeVault } from "./changed-vaults.ts";
import { PendingEntry } from "./changes.ts";
import { AssetFences, fenceKey, partitions } from "./layout.ts";
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
 * How long a claim holds after its last sign of life, by the store's clock. It only keeps workers from doing the same work;
 * what makes writing safe are the fences.
 */
export const LEASE_MS = 15 * SECOND_MS;
const RENEW_AFTER_MS = 5 * SECOND_MS;
/** When to come again after another worker was faster. */
const AFTER_CONFLICT_MS = 2 * SECOND_MS;
/** Entries per PendingWrites row: deflated they stay far below the 1 MiB of an entity. */
const PENDING_PER_ROW = 10_000;

/** Another worker is writing this vault; try again after `waitMs` milliseconds. */
export class VaultBusy extends Error {
  readonly waitMs: number;
  constructor(name: string, waitMs: number) {
    super(`The vault ${name} is being written by another worker; try again in ${Math.ceil(waitMs / SECOND_MS)} s`);
    this.name = "VaultBusy";
    this.waitMs = waitMs;
  }
}

/** One worker's hold on the fences of a vault, in each partition its assets stand in. */
export interface VaultFences {
  readonly all: Fence;
  readonly subscription: Fence;
  readonly vault: Fence;
}

/** What is known of a vault when a worker begins. */
export interface KnownVault {
  row: Row<VaultRecord> | undefined;
  /** Entries a worker announced and may have written without finishing. */
  pending: PendingEntry[];
  /** True when another worker claimed the vault and did not finish: anything of its work may have been written. */
  interrupted: boolean;
  /** Only where they had to be taken from another worker. */
  fences: VaultFences | undefined;
}

export interface Claim {
  readonly fences: VaultFences;
  /** Says that this worker is alive, at most every five seconds. @throws {VaultBusy} when another took the vault over. */
  renew(): Promise<void>;
  /** Makes sure that no other worker has claimed the vault since. @throws {VaultBusy} */
  confirm(): Promise<void>;
  /** After a write was refused: takes every fence again, if the vault is still this worker's. @throws {VaultBusy} */
  retake(): Promise<void>;
  /**
   * Ends the work: the vault's row says `vault` from now on, or is gone. `also` is written in the same transaction, and
   * `changes` too, but for those that don't fit in it: these are written before. What a worker that died wrote of its own
   * is removed first.
   * @throws {VaultBusy}
   */
  end(
    vault: VaultRecord | undefined,
    beside?: { changes?: LoggedChanges; also?: readonly Operation[] | undefined },
  ): Promise<void>;
}

/**
 * Reads what a worker has to know before it looks at the vault. Where another worker did not finish, the order matters:
 * first its fences are taken, so that nothing it sent can be applied any more, and only then what stands is read.
 *
 * @throws {VaultBusy} while another worker holds the vault.
 */
export async function knownVault(tables: Tables, name: string): Promise<KnownVault> {
  const found = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (!found?.row.pending) return { row: found?.row, pending: [], interrupted: false, fences: undefined };
  refuseWhileHeld(found);
  const { subscriptionId } = found.row;
  const fences = openFences(tables, { name, subscriptionId }, undefined);
  await conflictIsBusy(name, () => takeAll(fences));
  const now = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (now?.row.pending) refuseWhileHeld(now);
  const stays = now?.row.subscriptionId.toLowerCase() === subscriptionId.toLowerCase();
  return {
    row: now?.row,
    pending: now?.row.pending ? await pendingOf(tables, name) : [],
    interrupted: now?.row.pending === true,
    fences: stays ? fences : undefined,
  };
}

/**
 * A vault's row while no worker writes the vault. A dead worker's claim is ended: should it be alive after all, it can't
 * finish any more, and what it did is done again.
 *
 * @throws {VaultBusy} while another worker holds the vault.
 */
export async function vaultAtRest(tables: Tables, name: string): Promise<Row<VaultRecord> | undefined> {
  const found = await tables.getWithAge(Vaults, VAULTS, vaultKey(name));
  if (!found?.row.pending || found.row.lockOwner === undefined) return found?.row;
  refuseWhileHeld(found);
  return await conflictIsBusy(name, () => tables.replace(Vaults, { ...found.row, lockOwner: undefined }));
}

/**
 * Claims the vault and writes down which index entries may stand from now on. `standing` is what the vault's row says until
 * the end; `owner` names the worker to people who read the row.
 *
 * @throws {VaultBusy} when the vault was written since `known` was read.
 */
export async function claimVault(
  tables: Tables,
  known: KnownVault,
  standing: VaultRecord,
  entries: PendingEntry[],
  owner: string,
): Promise<Claim> {
  const { name } = standing;
  const key = vaultKey(name);
  const copyKey = vaultInSubscriptionKey(standing.subscriptionId, name);
  const { fences: _left, lockedUntil: _until, ...rest } = standing;
  const claimed: VaultRecord = { ...rest, pending: true, lockOwner: owner };
  const marked = !countsAlike(known.row, claimed);
  const pendingRows = pendingOperations(name, entries);
  const pendingKeys = pendingRows.map(({ rowKey }) => rowKey);
  const lead = [
    known.row ? replace(Vaults, key, claimed, known.row.etag) : insert(Vaults, key, claimed),
    // Never a vault without its copy: by the copies a scan finds the vaults that left.
    put(Vaults, copyKey, claimed),
  ];
  const [first = [], ...further] = await fitting(tables, pendingRows, lead);
  const etags = await conflictIsBusy(name, () =>
    writeVault(tables, { before: known.row, now: claimed }, [...lead, ...first]),
  );
  let etag = etags.get(key)!;
  let renewedAt = performance.now();
  let renewing: Promise<void> | undefined;
  const fences = known.fences ?? openFences(tables, standing, known.row?.fences);

  async function confirm(): Promise<void> {
    renewedAt = performance.now();
    const row = { ...claimed, partitionKey: VAULTS, rowKey: key, etag };
    ({ etag } = await conflictIsBusy(name, () => tables.replace(Vaults, row)));
  }

  /** Rows that may only be written while the vault is this worker's. */
  async function writeHeld(rows: readonly Operation[]): Promise<void> {
    const operations = [replace(Vaults, key, claimed, etag), ...rows];
    etag = (await conflictIsBusy(name, () => tables.transaction(Vaults.table, VAULTS, operations))).get(key)!;
  }

  /** What a worker that died wrote of its changes. They are dated by it, and so are no place for those of this work. */
  async function removeWrittenChanges(): Promise<void> {
    const from = standing.changesKey;
    if (from === undefined) return;
    const removals: Operation[] = [];
    const range = { partitionKey: VAULTS, from, before: keyEnd(from), select: [] };
    for await (const rows of tables.pages(ChangeRows, range))
      for (const { rowKey } of rows) removals.push(remove(ChangeRows, rowKey));
    for (const some of await fitting(tables, removals, [])) await writeHeld(some);
  }

  // All are announced before any of them is written.
  for (const some of further) await writeHeld(some);

  return {
    fences,
    confirm,

    async renew() {
      if (renewing === undefined && performance.now() - renewedAt < RENEW_AFTER_MS) return;
      renewing ??= confirm().then(() => {
        renewing = undefined;
      });
      await renewing;
    },

    async retake() {
      await conflictIsBusy(name, () => takeAll(fences));
      // Whoever takes fences claims the vault before it writes, so this fails when that happened in between.
      await confirm();
    },

    async end(vault, { changes, also = [] } = {}) {
      const cleared = pendingKeys.map((pending) => remove(PendingWrites, pending));
      await removeWrittenChanges();
      const ending = () => [
        ...(vault ? finished(vault, etagsOf(fences), etag) : [remove(Vaults, key, etag), remove(Vaults, copyKey)]),
        ...cleared,
        ...also,
      ];
      let operations = ending();
      const [last = [], ...before] = await fitting(tables, changes?.rows ?? [], operations);
      if (before.length > 0) {
        claimed.changesKey = changes?.key;
        for (const some of before) await writeHeld(some);
        operations = ending();
      }
      await conflictIsBusy(name, () =>
        writeVault(tables, { before: claimed, now: vault, marked }, [...operations, ...last]),
      );
    },
  };
}

/** More than the row of a changed vault takes in a transaction: an entity has 1 MiB, its bytes go in base64. */
const CHANGED_VAULT_BYTES = 1.4 * 1024 * 1024;

/** These rows, as many together as one transaction takes beside the `lead`, by which a vault is written. */
const fitting = (tables: Tables, rows: readonly Operation[], lead: readonly Operation[]): Promise<Operation[][]> =>
  tables.batches(Vaults.table, VAULTS, rows, { lead, operations: 1, bytes: CHANGED_VAULT_BYTES });

/** The vault's row and its copy, with nothing under way. */
export function finished(
  vault: VaultRecord,
  fences: VaultRecord["fences"],
  etag: string | undefined,
): [Operation, Operation] {
  const { lockOwner: _owner, lockedUntil: _until, changesKey: _changes, ...free } = vault;
  const value: VaultRecord = { ...free, pending: false, fences };
  const key = vaultKey(vault.name);
  return [
    etag === undefined ? insert(Vaults, key, value) : replace(Vaults, key, value, etag),
    put(Vaults, vaultInSubscriptionKey(vault.subscriptionId, vault.name), value),
  ];
}

/** Somebody else changed the vault's rows: their work stands, ours is to be done again from what they left. */
export async function conflictIsBusy<T>(name: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write();
  } catch (error) {
    if (isConflict(error)) throw new VaultBusy(name, AFTER_CONFLICT_MS);
    throw error;
  }
}

export const openFence = (tables: Tables, partitionKey: string, vaultName: string, owner: string, etag?: string) =>
  tables.fence(AssetFences, partitionKey, fenceKey(vaultName), { owner, etag });

/** @param etags - Those the last worker left, where they are known. */
function openFences(
  tables: Tables,
  { name, subscriptionId }: Pick<VaultRecord, "name" | "subscriptionId">,
  etags: VaultRecord["fences"],
): VaultFences {
  const owner = randomUUID();
  return {
    all: openFence(tables, partitions.all, name, owner, etags?.all),
    subscription: openFence(tables, partitions.subscription(subscriptionId), name, owner, etags?.subscription),
    vault: openFence(tables, partitions.vault(name), name, owner, etags?.vault),
  };
}

async function takeAll({ all, subscription, vault }: VaultFences): Promise<void> {
  for (const fence of [all, subscription, vault]) await fence.take();
}

/** What the next worker goes on from; undefined where nothing of the vault was ever written. */
export function etagsOf({ all, subscription, vault }: VaultFences): VaultRecord["fences"] {
  if (all.etag === undefined || subscription.etag === undefined || vault.etag === undefined) return undefined;
  return { all: all.etag, subscription: subscription.etag, vault: vault.etag };
}

function refuseWhileHeld({ row, ageMs }: { row: VaultRecord; ageMs: number }): void {
  if (row.lockOwner !== undefined && ageMs < LEASE_MS) throw new VaultBusy(row.name, LEASE_MS - Math.max(0, ageMs));
}

async function pendingOf(tables: Tables, name: string): Promise<PendingEntry[]> {
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
