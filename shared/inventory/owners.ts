import { type AssetRecord, sourceOf } from "./asset.ts";
import { ownersOf } from "./holder.ts";
import type { OwnerCounts, VaultRecord } from "./vault.ts";

/**
 * Numbers of assets by owner, which a scan counts for each vault and a summary adds up.
 */

/** Maximum number of owners per type in a vault's row: those with the most assets. The rest is one number. */
const MAX_OWNERS = 200;

/**
 * Returns the name of the tag whose value is an asset's owner. Empty for holders, the rows that take the place of a vault for
 * credentials of a directory, because the owners of a credential are those of its application.
 */
export const effectiveOwnerTag = (vault: Pick<VaultRecord, "source">, ownerTag: string): string =>
  sourceOf(vault) === "keyVault" ? ownerTag : "";

/** Counts each asset for its first owner, which lists show. */
export function countOwners(assets: Iterable<Pick<AssetRecord, "tags" | "credential">>, ownerTag: string): OwnerCounts {
  const counts = new Map<string, number>();
  for (const asset of assets) {
    const [owner] = ownersOf(asset, ownerTag);
    if (owner !== undefined) counts.set(owner, (counts.get(owner) ?? 0) + 1);
  }
  const owners = [...counts].sort(byCount);
  const others = owners.slice(MAX_OWNERS).reduce((sum, [, count]) => sum + count, 0);
  return { tag: ownerTag, owners: owners.slice(0, MAX_OWNERS), others };
}

/** Largest first, then by name. */
export const byCount = ([a, m]: [string, number], [b, n]: [string, number]): number => n - m || (a < b ? -1 : 1);
