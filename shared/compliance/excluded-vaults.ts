import { type CountingContext, HOLDER_SOURCES, holderSubscription, notCounted } from "../inventory/holder.ts";
import { readScope } from "../inventory/scope.ts";
import { VAULTS, Vaults, vaultInSubscriptionKey } from "../inventory/vault.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";

/** Returns whether a vault or a holder is excluded from counts at this time. */
export type IsExcluded = (vault: { name: string; subscriptionId: string }) => boolean;

/** Takes the place of a subscription in violations without one. */
export const HOLDERS: readonly string[] = HOLDER_SOURCES.map(holderSubscription);

/**
 * Reads which vaults and holders are excluded from counts. One request. If there are holders, also one for each source and
 * 1,000 of them.
 */
export async function uncountedNow(
  tables: Tables,
  at: { now: number; licensed: boolean },
  holders: boolean,
): Promise<IsExcluded> {
  const scope = await readScope(tables);
  const names = holders ? await uncountedHolders(tables, { ...at, scope }) : new Set();
  return ({ name, subscriptionId }) =>
    HOLDERS.includes(subscriptionId) ? names.has(name.toLowerCase()) : scope.leftAt(subscriptionId) !== undefined;
}

async function uncountedHolders(tables: Tables, now: CountingContext): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  for (const holders of HOLDERS) {
    const prefix = vaultInSubscriptionKey(holders, "");
    const range = { partitionKey: VAULTS, from: prefix, before: keyEnd(prefix) };
    for await (const rows of tables.pages(Vaults, {
      ...range,
      select: ["name", "source", "listedAt", "subscriptionId"],
    }))
      for (const row of rows) if (notCounted(row, now) !== undefined) names.add(row.name.toLowerCase());
  }
  return names;
}
