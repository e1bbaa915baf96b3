import type { Tables } from "../platform/storage/tables.ts";
import type { Resource } from "./edge.ts";
import { assetOfEdge, EDGES, Edges, rangeOf, resourceOfEdge, vaultPrefix } from "./rows.ts";

/** A resource that uses an asset: its configuration names the asset, or a log shows a read. */
export interface AssetConsumer {
  /** `<vault>.<type>.<name>` in lower case. */
  assetId: string;
  resource: Pick<Resource, "id" | "kind" | "name">;
}

/**
 * Yields the consumers of all assets of a vault, or of all vaults, each resource once for each asset. A resource that only has
 * access to an asset is no consumer. Makes one request per 1,000 dependencies.
 */
export async function* consumersOfAssets(tables: Tables, vaultName: string | undefined): AsyncGenerator<AssetConsumer> {
  const range = rangeOf(vaultName === undefined ? EDGES : vaultPrefix(vaultName));
  const select = ["resource", "strength"] as const;
  // The keys are in the order of assets, then resources, so the dependencies of a resource on an asset are adjacent.
  let previous = "";
  for await (const rows of tables.pages(Edges, { ...range, select, onCorrupt: "leaveOut" })) {
    for (const { rowKey, resource, strength } of rows) {
      const { vaultName: vault, asset } = assetOfEdge(rowKey);
      if (asset === undefined || strength === "entitled") continue;
      const assetId = `${vault}.${asset}`.toLowerCase();
      const key = `${assetId}|${resourceOfEdge(rowKey)}`;
      if (key === previous) continue;
      previous = key;
      yield { assetId, resource };
    }
  }
}
