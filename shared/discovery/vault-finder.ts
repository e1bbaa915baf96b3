import { CloudFailure } from "../platform/azure/failure.ts";
import { parseResourceId } from "../platform/azure/resource-id.ts";
import type { ResourceManager, VaultResource } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { listVaults } from "./plan-vaults.ts";

/** Maximum duration of a search in one subscription. */
const MAX_SEARCH_MS = 8 * MINUTE_MS;
/** Time for which the listing of a subscription's vaults is reused. */
const MAX_LISTING_AGE_MS = 10 * MINUTE_MS;

/**
 * Finds a vault by its name and by resource IDs that it may have, also if it moved to another resource group.
 *
 * @returns The vault. `gone`: no watched subscription of the IDs has it. `outOfScope`: none of their subscriptions is watched.
 * @throws {CloudFailure} when it can't be read whether the vault exists.
 */
export type FindVault = (vaultName: string, ids: readonly string[]) => Promise<VaultResource | "gone" | "outOfScope">;

/** Creates the search, which remembers the listings of subscriptions for a few minutes. */
export function createVaultFinder(deps: {
  resourceManager: Pick<ResourceManager, "vault" | "vaults">;
  watched: (subscriptionId: string) => Promise<boolean>;
  clock: Clock;
}): FindVault {
  const { resourceManager, watched, clock } = deps;
  /** Listings by subscription. Without them, the reconciliation would list a subscription once for each lost vault. */
  const listings = new Map<string, { at: number; listing: Awaited<ReturnType<typeof listVaults>> }>();

  /** Returns the listing of the last minutes. */
  function recentListing(subscriptionId: string) {
    const recent = listings.get(subscriptionId);
    return recent && Math.abs(clock.now().getTime() - recent.at) < MAX_LISTING_AGE_MS ? recent.listing : undefined;
  }

  async function list(subscriptionId: string, signal: AbortSignal) {
    listings.delete(subscriptionId);
    const at = clock.now().getTime();
    const listing = await listVaults(resourceManager, subscriptionId, signal);
    listings.set(subscriptionId, { at, listing });
    return listing;
  }

  /** Returns undefined if no vault has this ID. */
  async function readVault(id: string, signal: AbortSignal): Promise<VaultResource | undefined> {
    try {
      return await resourceManager.vault(id, signal);
    } catch (error) {
      if (!(error instanceof CloudFailure) || error.code !== "notFound") throw error;
      return undefined;
    }
  }

  return async (vaultName, ids) => {
    const isWanted = (name: string | undefined) => name?.toLowerCase() === vaultName.toLowerCase();
    let isInScope = false;
    // Only the first ID of each subscription is read, because the subscription's listing has the vaults of all others. The
    // order is reversed, because a `Map` keeps the last entry of a key.
    const idBySubscription = new Map(
      ids.toReversed().map((id) => [parseResourceId(id)?.subscriptionId.toLowerCase(), id]),
    );
    for (const [subscriptionId, id] of idBySubscription) {
      if (subscriptionId === undefined || !(await watched(subscriptionId))) continue;
      isInScope = true;
      const signal = AbortSignal.timeout(MAX_SEARCH_MS);
      const recent = recentListing(subscriptionId);
      const listed = recent?.vaults.find(({ name }) => isWanted(name));
      if (listed) return listed;
      // Also after a recent listing: the vault may have been created since.
      const read = await readVault(id, signal);
      if (read && isWanted(read.name)) return read;
      // Only a complete listing proves that a vault was deleted.
      const { vaults, unreadable } = recent ?? (await list(subscriptionId, signal));
      const vault = vaults.find(({ name }) => isWanted(name));
      if (vault) return vault;
      const entry = unreadable.find(({ name }) => name === undefined || isWanted(name));
      if (entry) throw entry.failure;
    }
    return isInScope ? "gone" : "outOfScope";
  };
}
