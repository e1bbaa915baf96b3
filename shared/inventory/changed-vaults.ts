import { createHash } from "node:crypto";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { pack, unpackBytes } from "../platform/storage/packed-members.ts";
import { insert, merge, type Operation, type Tables } from "../platform/storage/tables.ts";
import { type Change, writeWithChangeRow } from "../platform/storage/write-totals.ts";
import { ASSET_TYPES, sourceOf } from "./asset.ts";
import { expiriesColumn, expiriesOf, VAULTS, VaultRecord, Vaults } from "./vault.ts";

/**
 * What of a vault is counted in totals. `listedAt` is told, not counted: it
 * changes with every scan.
 */
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
 * That a vault is not as the totals count it (totals.ts). The row is written in the transaction that changes the vault's
 * own row, and removed in the one that writes totals which count the vault as it is. So at every moment
 *
 *     what the totals count - before + now, of each such row,
 *
 * is what the vaults' rows come to. A holder of credentials has one as long as it stands: totals count vaults alone.
 */
export const ChangedVault = z.object({
  /** As the totals count it, packed; nothing where they don't. */
  before: z.instanceof(Uint8Array).optional(),
  /** As its row has it, packed; nothing where it is gone. */
  now: z.instanceof(Uint8Array).optional(),
  /** The owners of either, for who asks for them. A version before writes none. */
  ownersBefore: z.instanceof(Uint8Array).optional(),
  ownersNow: z.instanceof(Uint8Array).optional(),
  /** It was too large to be kept here: then its own row is read. */
  unkept: z.boolean().optional(),
});
export type ChangedVault = z.infer<typeof ChangedVault>;
export const ChangedVaults = entity(Vaults.table, ChangedVault);

export const CHANGED = "l!";
export const changedKey = (name: string): string => `${CHANGED}${name.toLowerCase()}`;

/** Of either state, since a later change leaves how the totals count the vault as it stands: an entity has 1 MiB. */
const MAX_STATE_BYTES = 500_000;

/** Deflated JSON, the expiries in base64; no bytes for undefined. */
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

/** With a hash of what they belong to: a version before changes that and leaves them as they are. */
const packOwners = (of: Uint8Array, owners: Counted["owners"]): Uint8Array<ArrayBuffer> =>
  of.length === 0 ? new Uint8Array() : pack([hashOf(of), owners ?? {}]);
const PackedOwners = z.tuple([z.string(), Counted.shape.owners]);

/** @throws where a version before wrote what they belong to. */
function withOwners(of: Uint8Array | undefined, packed: Uint8Array | undefined): Counted | undefined {
  const counted = unpackCounted(of);
  if (!counted) return undefined;
  const [hash, owners] = unpackBytes(packed ?? new Uint8Array(), PackedOwners);
  if (hash !== hashOf(of!)) throw new Error("These are the owners of another state of the vault.");
  return { ...counted, owners };
}

const hashOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("base64url").slice(0, 11);

/** The row of a vault that the totals count as `before`. */
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
 * How the totals count a changed vault, and how its row has it. Undefined where only the vault's own row knows.
 *
 * @param owners - Whether their owners are asked for: their columns were read.
 */
export function readChanged(row: Partial<ChangedVault>, owners: boolean): Changed | undefined {
  const { before, now, ownersBefore, ownersNow, unkept } = row;
  if (unkept) return undefined;
  try {
    return owners
      ? { before: withOwners(before, ownersBefore), now: withOwners(now, ownersNow) }
      : { before: unpackCounted(before), now: unpackCounted(now) };
  } catch {
    return undefined; // no version of this service wrote it, or one before
  }
}

export type Changed = Change<Counted>;

/** Whether both are counted alike. */
export function countsAlike(one: Counted | undefined, other: Counted | undefined): boolean {
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
 * One transaction that writes or removes a vault's own row, and says so to the totals where they count it otherwise.
 *
 * @param change - The row as it stood, which the transaction must name by its ETag, and as it will. `marked`: it was
 *   counted otherwise a moment ago already, so that the row that says so is most likely there.
 * @returns The new ETags by row key.
 * @throws as `Tables.transaction`.
 */
export async function writeVault(
  tables: Tables,
  change: { before: VaultRecord | undefined; now: VaultRecord | undefined; marked?: boolean },
  operations: readonly Operation[],
): Promise<Map<string, string>> {
  const { before, now } = change;
  if (countsAlike(before, now)) return await tables.transaction(Vaults.table, VAULTS, operations);
  const key = changedKey((now ?? before)!.name);
  const isHolder = sourceOf((now ?? before)!) !== "keyVault";
  const changed = changedFrom(isHolder ? undefined : before, now);
  // The totals count it as it stood, unless such a row says otherwise: that keeps how they do.
  const { before: _, ownersBefore: _owners, ...again } = changed;
  const row = { inserted: insert(ChangedVaults, key, changed), merged: merge(ChangedVaults, key, again) };
  return await writeWithChangeRow(row, change.marked === true, (mark) =>
    tables.transaction(Vaults.table, VAULTS, [...operations, mark]),
  );
}
