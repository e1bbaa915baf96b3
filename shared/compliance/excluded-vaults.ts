/**
 * Vaults that don't count for compliance: those in subscriptions that left the scope of scans, and excluded holders. A holder
 * is an entry of the inventory that takes the place of a vault for credentials outside of key vaults.
 */
import { type CountingContext, exclusionReason, HOLDER_SOURCES, holderSubscription } from "../inventory/holder.ts";
import { readScope } from "../inventory/scope.ts";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** Returns whether a vault or a holder is excluded from counts at this time. */
export type IsExcluded = (vault: { name: string; subscriptionId: string }) => boolean;

/** Values of `subscriptionId` that mark an entry as a holder. There is one for each source of credentials. */
export const HOLDER_SUBSCRIPTIONS: readonly string[] = HOLDER_SOURCES.map(holderSubscription);

/**
 * Reads which vaults and holders are excluded from counts. One request. With `hasHolders`, one more for each source and 1,000
 * holders.
 *
 * @param hasHolders - False if there are no holders, so that their rows need not be read.
 */
export async function readExcludedVaults(
  tables: Tables,
  countingContext: { now: number; licensed: boolean },
  hasHolders: boolean,
): Promise<IsExcluded> {
  const scope = await readScope(tables);
  const excludedHolders = hasHolders ? await readExcludedHolders(tables, { ...countingContext, scope }) : new Set();
  return ({ name, subscriptionId }) =>
    HOLDER_SUBSCRIPTIONS.includes(subscriptionId)
      ? excludedHolders.has(name.toLowerCase())
      : scope.leftAt(subscriptionId) !== undefined;
}

/** Returns the lower-case names of excluded holders: without a license all, otherwise those not seen for days. */
async function readExcludedHolders(tables: Tables, context: CountingContext): Promise<ReadonlySet<string>> {
  const excludedHolders = new Set<string>();
  for (const holderSubscriptionId of HOLDER_SUBSCRIPTIONS) {
    const prefix = vaultInSubscriptionKey(holderSubscriptionId, "");
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(Vaults, {
      ...range,
      select: ["name", "source", "listedAt", "subscriptionId"],
    }))
      for (const row of rows)
        if (exclusionReason(row, context) !== undefined) excludedHolders.add(row.name.toLowerCase());
  }
  return excludedHolders;
}
