import type { Audit } from "../audit/audit.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { type AssetRecord, type AssetType, fingerprint } from "./asset.ts";
import type { Moment } from "./asset-status.ts";
import { packExpiries } from "./expiries.ts";
import { type HolderSource, newHolder } from "./holder.ts";
import { countOwners, effectiveOwnerTag } from "./owners.ts";
import { expiriesColumn, type VaultRecord } from "./vault.ts";
import type { AssetChange, InventoryWriter, StoredVault, WriteDerivedData } from "./write.ts";

/**
 * Writes the credentials of a holder (holder.ts): the discoveries of applications and of B2C tenants call it with
 * everything they read, and it writes only what changed.
 */

/** The result of a discovery: the content that the holder's rows should have. */
export interface HolderContent {
  name: string;
  source: HolderSource;
  tenantId: string;
  /** All assets of the holder. Their types are among `types`. */
  assets: AssetRecord[];
  /** The types that a holder of this kind can have. */
  types: readonly AssetType[];
  /** When the credentials were read, ISO 8601. */
  now: string;
  /** When all credentials of the holder were last listed completely. */
  seenAt: string;
  /** Identifies this attempt of the worker in the holder's row. */
  workerId: string;
}

/** Dependencies of `writeHolder`. */
export interface HolderWriting {
  writer: Pick<InventoryWriter, "readForUpdate" | "apply" | "writeVaultOnly" | "assetsOf">;
  /**
   * Called before a holder with changed assets is claimed. Returns the function that writes data derived from the change,
   * such as compliance results.
   */
  prepareChange: (change: {
    vault: VaultRecord;
    vaultBefore: VaultRecord | undefined;
    vaultGone: boolean;
  }) => Promise<WriteDerivedData>;
  /** Verifies that the discovery run still belongs to this worker, so that its data is not older than the stored data. */
  confirm: () => Promise<void>;
}

/** Dependencies of discoveries that write holders. */
export interface HolderDiscoveryDeps {
  tables: Tables;
  inventory: Omit<HolderWriting, "confirm">;
  moment: () => Promise<Moment>;
  audit: Pick<Audit, "append">;
  /** Called after a run that may have changed assets. */
  ended: () => Promise<void>;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

/**
 * Updates a holder's credentials. If none of them changed, at most the holder's row is written, with two requests in total.
 *
 * @throws {VaultBusy} while another worker writes the holder.
 */
export async function writeHolder(content: HolderContent, deps: HolderWriting): Promise<void> {
  const { writer } = deps;
  const { name, types, now, seenAt } = content;
  const stored = await writer.readForUpdate(name);
  await deps.confirm();
  const assets = [...content.assets].sort(byName);
  const vaultBefore = stored.row && withoutKeys(stored.row);
  if (!vaultBefore && assets.length === 0) return;
  const vault: VaultRecord = { ...(vaultBefore ?? newHolder(content, now)) };
  vault.listedAt = Object.fromEntries(types.map((type) => [type, seenAt]));
  vault.listings = { ...vault.listings };
  vault.contents = { ...vault.contents };

  const changes: AssetChange[] = [];
  for (const type of types) {
    const ownAssets = assets.filter((asset) => asset.type === type);
    const contents = fingerprint(ownAssets.map((asset) => [asset.name, asset.content]));
    // No owner tag: the owners of credentials are those of their application.
    vault.owners = { ...vault.owners, [type]: countOwners(ownAssets, effectiveOwnerTag(vault, "")) };
    const pendingOfType = stored.pending.filter(([pendingType]) => pendingType === type);
    const partlyWritten = new Set(pendingOfType.map(([, pendingName]) => pendingName));
    if (vaultBefore?.contents[type] === contents && partlyWritten.size === 0) continue;
    vault.contents[type] = contents;
    // Holders have no list entries, so one hash stands for both.
    vault.listings[type] = contents;
    vault[expiriesColumn(type)] = packExpiries(ownAssets.map(({ expiresOn }) => expiresOn));
    changes.push(...(await findChanges(type, ownAssets, stored, partlyWritten, writer)));
  }
  if (changes.length === 0 && !stored.interrupted && vaultBefore) {
    // `listedAt` changes with each complete listing, so that the credentials still count as seen.
    const comparedState = ({ listedAt, contents, owners }: VaultRecord) => JSON.stringify([listedAt, contents, owners]);
    if (comparedState(vaultBefore) !== comparedState(vault)) await writer.writeVaultOnly(stored, vault);
    return;
  }
  await writer.apply(stored, vault, changes, content.workerId, () =>
    deps.prepareChange({ vault, vaultBefore, vaultGone: false }),
  );
}

/**
 * Returns the changes from the stored to the wanted assets of one type.
 *
 * @param unfinished - Names of assets of which a crashed worker may have written only some rows.
 */
async function findChanges(
  type: AssetType,
  readAssets: readonly AssetRecord[],
  stored: StoredVault,
  unfinished: ReadonlySet<string>,
  writer: Pick<InventoryWriter, "assetsOf">,
): Promise<AssetChange[]> {
  const remaining = stored.row ? await writer.assetsOf(stored.row.name, type) : new Map<string, AssetRecord>();
  const changes: AssetChange[] = [];
  for (const asset of readAssets) {
    const assetBefore = remaining.get(asset.name);
    remaining.delete(asset.name);
    const assetAfter = assetBefore ? { ...asset, firstSeenAt: assetBefore.firstSeenAt } : asset;
    if (assetBefore?.content !== asset.content || unfinished.has(asset.name))
      changes.push({ type, name: asset.name, before: assetBefore, after: assetAfter });
  }
  for (const assetBefore of remaining.values())
    changes.push({ type, name: assetBefore.name, before: assetBefore, after: undefined });
  return changes;
}

const byName = (a: AssetRecord, b: AssetRecord): number => (a.name < b.name ? -1 : 1);
