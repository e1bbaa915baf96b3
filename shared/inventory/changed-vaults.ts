import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, type Tables } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import { ASSET_TYPES, sourceOf } from "./asset.ts";
import { expiriesColumn, expiriesOf, VAULTS, VaultRecord, Vaults } from "./vault.ts";

/** The fields of a vault that totals count. `listedAt` is only displayed, since it changes with every scan. */
export const Counted = VaultRecord.pick({
  name: true,
  source: true,
  subscriptionId: true,
  listedAt: true,
  failedScans: true,
  certificateExpiries: true,
  keyExpiries: true,
  secretExpiries: true,
  owners: true,
});
export type Counted = z.infer<typeof Counted>;
export const COUNTED = Object.keys(Counted.shape) as (keyof Counted)[];

/**
 * Marks a vault whose current row differs from what the stored totals count (totals.ts). The mark is written in the transaction
 * that changes the vault's row, and removed in the transaction that writes totals with the vault's current state. Therefore the
 * sum over the vaults' rows always equals
 *
 * the totals - before + now, of each mark.
 *
 * A holder of credentials always has a mark, because totals count only vaults.
 */
export const ChangedVault = z.object({
  /** The state that the totals count, compressed. Empty if they don't count the vault. */
  before: z.instanceof(Uint8Array).optional(),
  /** The vault's current state, compressed. Empty if the vault is removed. */
  now: z.instanceof(Uint8Array).optional(),
  /** The owners of both states, read only on request. Earlier versions did not write them. */
  ownersBefore: z.instanceof(Uint8Array).optional(),
  ownersNow: z.instanceof(Uint8Array).optional(),
  /** True if the states are too large for this row. Then the vault's own row is read. */
  unkept: z.boolean().optional(),
});
export type ChangedVault = z.infer<typeof ChangedVault>;
export const ChangedVaults = entity(Vaults.table, ChangedVault);

export const CHANGED = "l!";
export const changedKey = (name: string): string => `${CHANGED}${name.toLowerCase()}`;

/** Limit for each of the two states, because an entity has at most 1 MiB. */
const MAX_STATE_BYTES = 500_000;

/** Returns compressed JSON with the expiries in base64. Empty for undefined. */
function packCounted(counted: Counted | undefined): Uint8Array<ArrayBuffer> {
  if (!counted) return new Uint8Array();
  const values: Record<string, unknown> = {};
  for (const name of COUNTED) {
    const value = counted[name];
    if (name !== "owners") values[name] = value instanceof Uint8Array ? Buffer.from(value).toString("base64") : value;
  }
  return pack(values);
}

function unpackCounted(packed: Uint8Array | undefined): Counted | undefined {
  if (!packed || packed.length === 0) return undefined;
  const values = unpackBytes(packed, z.record(z.string(), z.unknown()));
  for (const type of ASSET_TYPES) {
    const column = expiriesColumn(type);
    const text = values[column];
    if (typeof text === "string") values[column] = new Uint8Array(Buffer.from(text, "base64"));
  }
  return Counted.parse(values);
}

/** Stores a hash of the state with its owners, because earlier versions replace the state without the owners. */
const packOwners = (of: Uint8Array, owners: Counted["owners"]): Uint8Array<ArrayBuffer> =>
  of.length === 0 ? new Uint8Array() : pack([hashOf(of), owners ?? {}]);
const PackedOwners = z.tuple([z.string(), Counted.shape.owners]);

/**
 * Returns the state with its owners.
 *
 * @throws if an earlier version replaced the state.
 */
function withOwners(of: Uint8Array | undefined, packed: Uint8Array | undefined): Counted | undefined {
  const counted = unpackCounted(of);
  if (!counted) return undefined;
  const [hash, owners] = unpackBytes(packed ?? new Uint8Array(), PackedOwners);
  if (hash !== hashOf(of!)) throw new Error("These are the owners of another state of the vault.");
  return { ...counted, owners };
}

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64url").slice(0, 11);

/** Returns the mark of a vault whose state in the totals is `before`. */
export function changedFrom(before: Counted | undefined, now: Counted | undefined): ChangedVault {
  const packed = { before: packCounted(before), now: packCounted(now) };
  const ownersBefore = packOwners(packed.before, before?.owners);
  const ownersNow = packOwners(packed.now, now?.owners);
  const isKept =
    packed.before.length + ownersBefore.length <= MAX_STATE_BYTES &&
    packed.now.length + ownersNow.length <= MAX_STATE_BYTES;
  return isKept ? { ...packed, ownersBefore, ownersNow } : { unkept: true };
}

/**
 * Returns both states of a changed vault. Undefined if only the vault's own row has them.
 *
 * @param owners - True if the owners are needed; their columns must have been read.
 */
export function readChanged(row: Partial<ChangedVault>, owners: boolean): Changed | undefined {
  const { before, now, ownersBefore, ownersNow, unkept } = row;
  if (unkept) return undefined;
  try {
    return owners
      ? { before: withOwners(before, ownersBefore), now: withOwners(now, ownersNow) }
      : { before: unpackCounted(before), now: unpackCounted(now) };
  } catch {
    return undefined; // The content is corrupt, or an earlier version wrote it.
  }
}

export type Changed = Change<Counted>;

/** Returns whether totals count both states equally. */
export function countedEqually(one: Counted | undefined, other: Counted | undefined): boolean {
  const counted = (vault: Counted | undefined): string =>
    JSON.stringify(
      vault && [
        vault.name,
        vault.subscriptionId,
        vault.failedScans > 0,
        ASSET_TYPES.map((type) => Buffer.from(expiriesOf(vault, type) ?? []).toString("base64")),
        ASSET_TYPES.map((type) => vault.owners?.[type]),
        sourceOf(vault) === "keyVault" ? null : vault.listedAt,
      ],
    );
  return counted(one) === counted(other);
}

/**
 * Writes or removes a vault's row in one transaction, together with the mark if the totals count it differently now.
 *
 * @param change - The row before, which one of the operations must name by its ETag, and after. `marked` is a hint that the
 * mark already exists.
 * @returns the new ETags by row key.
 * @throws as `Tables.transaction`.
 */
export async function writeVault(
  tables: Tables,
  change: { before: VaultRecord | undefined; now: VaultRecord | undefined; marked?: boolean },
  operations: readonly Operation[],
): Promise<Map<string, string>> {
  const { before, now } = change;
  if (countedEqually(before, now)) return await tables.transaction(Vaults.table, VAULTS, operations);
  const key = changedKey((now ?? before)!.name);
  const isHolder = sourceOf((now ?? before)!) !== "keyVault";
  const changed = changedFrom(isHolder ? undefined : before, now);
  // The totals count the previous state, unless a mark exists already. An existing mark keeps its `before`.
  const { before: _, ownersBefore: _owners, ...again } = changed;
  const row = { inserted: insert(ChangedVaults, key, changed), merged: merge(ChangedVaults, key, again) };
  return await writeWithChangeRow(row, change.marked === true, (mark) =>
    tables.transaction(Vaults.table, VAULTS, [...operations, mark]),
  );
}
