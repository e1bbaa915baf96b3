import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, type Tables } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import { ASSET_TYPES, sourceOf } from "./asset.ts";
import { expiriesColumn, expiriesOf, VAULTS, VaultRecord, Vaults } from "./vault.ts";

/**
 * The rows that mark vaults as changed since the stored totals were computed (totals.ts). `writeVault` writes a vault's row
 * together with its mark. A *holder* is the row that takes the place of a vault for credentials of a directory (holder.ts).
 */

/**
 * The fields of a vault that totals are computed from. `listedAt` changes with every scan, so a new `listedAt` alone does not
 * mark a vault as changed. It marks only a holder of credentials (`isCountedEqually`).
 */
export const CountedState = VaultRecord.pick({
  name: true,
  source: true,
  subscriptionId: true,
  listedAt: true,
  failedScans: true,
  certificateExpiries: true,
  keyExpiries: true,
  secretExpiries: true,
  certificateRenewals: true,
  owners: true,
});
export type CountedState = z.infer<typeof CountedState>;
export const COUNTED_FIELDS = Object.keys(CountedState.shape) as (keyof CountedState)[];

/**
 * Marks a vault whose current row differs from what the stored totals count (totals.ts). The mark is written in the transaction
 * that changes the vault's row, and removed in the transaction that writes totals with the vault's current state. Therefore:
 *
 * current totals = stored totals + the sum over all marks of (`now` - `before`).
 *
 * A holder of credentials always has a mark, because the stored totals count only vaults.
 */
export const ChangedVault = z.object({
  /** The state that the totals count, compressed. Empty if they don't count the vault. */
  before: z.instanceof(Uint8Array).optional(),
  /** The vault's current state, compressed. Empty if the vault is removed. */
  now: z.instanceof(Uint8Array).optional(),
  /** The owners of both states, read only on request. Earlier versions did not write them. */
  ownersBefore: z.instanceof(Uint8Array).optional(),
  ownersNow: z.instanceof(Uint8Array).optional(),
  /** True if the states are too large for this row. Readers then read the vault's own row. */
  unkept: z.boolean().optional(),
});
export type ChangedVault = z.infer<typeof ChangedVault>;
export const ChangedVaults = entity(Vaults.table, ChangedVault);

export const MARK_PREFIX = "l!";
export const markKey = (name: string): string => `${MARK_PREFIX}${name.toLowerCase()}`;

/** Limit for each of the two states, because an entity has at most 1 MiB. */
const MAX_STATE_BYTES = 500_000;

/** Returns compressed JSON with the expiries in base64. Empty for undefined. */
function packCounted(counted: CountedState | undefined): Uint8Array<ArrayBuffer> {
  if (!counted) return new Uint8Array();
  const values: Record<string, unknown> = {};
  for (const name of COUNTED_FIELDS) {
    const value = counted[name];
    if (name !== "owners") values[name] = value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value;
  }
  return pack(values);
}

function unpackCounted(packed: Uint8Array | undefined): CountedState | undefined {
  if (!packed || packed.length === 0) return undefined;
  const values = unpackBytes(packed, z.record(z.string(), z.unknown()));
  for (const column of [...ASSET_TYPES.map(expiriesColumn), "certificateRenewals"]) {
    const text = values[column];
    if (typeof text === "string") values[column] = new Uint8Array(Buffer.from(text, "base64"));
  }
  return CountedState.parse(values);
}

/**
 * Packs the owners of a state together with a hash of that state. An earlier version replaces the state but not the owners; the
 * hash then no longer matches.
 */
const packOwners = (packedState: Uint8Array, owners: CountedState["owners"]): Uint8Array<ArrayBuffer> =>
  packedState.length === 0 ? new Uint8Array() : pack([hashOf(packedState), owners ?? {}]);
const PackedOwners = z.tuple([z.string(), CountedState.shape.owners]);

/**
 * Unpacks a state and its owners.
 *
 * @throws if an earlier version replaced the state but not the owners.
 */
function unpackWithOwners(
  packedState: Uint8Array | undefined,
  packed: Uint8Array | undefined,
): CountedState | undefined {
  const counted = unpackCounted(packedState);
  if (!counted) return undefined;
  const [hash, owners] = unpackBytes(packed ?? new Uint8Array(), PackedOwners);
  if (hash !== hashOf(packedState!))
    throw new Error(
      "The stored owners belong to an older state of the vault. An earlier version replaced the state only.",
    );
  return { ...counted, owners };
}

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64url").slice(0, 11);

/** Returns the mark of a vault whose state in the totals is `before`. */
export function createMark(before: CountedState | undefined, now: CountedState | undefined): ChangedVault {
  const packed = { before: packCounted(before), now: packCounted(now) };
  const ownersBefore = packOwners(packed.before, before?.owners);
  const ownersNow = packOwners(packed.now, now?.owners);
  const isWithinLimit =
    packed.before.length + ownersBefore.length <= MAX_STATE_BYTES &&
    packed.now.length + ownersNow.length <= MAX_STATE_BYTES;
  return isWithinLimit ? { ...packed, ownersBefore, ownersNow } : { unkept: true };
}

/**
 * Returns both states of a changed vault. Undefined if only the vault's own row has them.
 *
 * @param owners - True if the owners are needed; their columns must have been read.
 */
export function readMark(row: Partial<ChangedVault>, owners: boolean): VaultChange | undefined {
  const { before, now, ownersBefore, ownersNow, unkept: isTooLarge } = row;
  if (isTooLarge) return undefined;
  try {
    return owners
      ? { before: unpackWithOwners(before, ownersBefore), now: unpackWithOwners(now, ownersNow) }
      : { before: unpackCounted(before), now: unpackCounted(now) };
  } catch {
    return undefined; // The content is corrupt, or an earlier version wrote it.
  }
}

export type VaultChange = Change<CountedState>;

/** Returns whether totals count both states equally. */
export function isCountedEqually(a: CountedState | undefined, b: CountedState | undefined): boolean {
  const countedValues = (vault: CountedState | undefined): string =>
    JSON.stringify(
      vault && [
        vault.name,
        vault.subscriptionId,
        vault.failedScans > 0,
        ASSET_TYPES.map((type) => Buffer.from(expiriesOf(vault, type) ?? []).toString("base64")),
        Buffer.from(vault.certificateRenewals ?? []).toString("base64"),
        ASSET_TYPES.map((type) => vault.owners?.[type]),
        sourceOf(vault) === "keyVault" ? null : vault.listedAt,
      ],
    );
  return countedValues(a) === countedValues(b);
}

/**
 * Writes or removes a vault's row in one transaction, together with its mark if totals count the new row differently.
 *
 * @param change - The vault's row before and after the operations. One of the operations must require the ETag of the row
 * before. `marked` is a hint that the mark already exists.
 * @returns the new ETags by row key.
 * @throws as `Tables.transaction`.
 */
export async function writeVault(
  tables: Tables,
  change: { before: VaultRecord | undefined; now: VaultRecord | undefined; marked?: boolean },
  operations: readonly Operation[],
): Promise<Map<string, string>> {
  const { before, now } = change;
  if (isCountedEqually(before, now)) return await tables.transaction(Vaults.table, VAULTS, operations);
  const key = markKey((now ?? before)!.name);
  const isHolder = sourceOf((now ?? before)!) !== "keyVault";
  const mark = createMark(isHolder ? undefined : before, now);
  // A new mark stores `before`, the state that the totals count. An existing mark keeps its own `before`.
  const { before: _, ownersBefore: _owners, ...updatedMark } = mark;
  const row = { inserted: insert(ChangedVaults, key, mark), merged: merge(ChangedVaults, key, updatedMark) };
  return await writeWithChangeRow(row, change.marked === true, (markOperation) =>
    tables.transaction(Vaults.table, VAULTS, [...operations, markOperation]),
  );
}
