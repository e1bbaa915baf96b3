import type { Schemas } from "../../api/client.ts";

type Radius = Schemas["BlastRadius"];
type Graph = Pick<Radius, "nodes" | "edges">;

/** Number of possible consumers up to which each is drawn. */
export const MAX_UNFOLDED = 3;
/** Kind of the node that stands for all possible consumers. */
export const FOLDED_KIND = "folded";

/**
 * Returns the graph with one node for all possible consumers, which only have permission to read the asset, if there are more
 * than three. `count` is their number.
 */
export function foldPossibleConsumers(nodes: Radius["nodes"], edges: Radius["edges"]): Graph & { count: number } {
  // An edge leads from a consumer to an asset, so all other nodes are consumers.
  const assetIds = new Set(edges.map(({ to }) => to));
  const confirmedIds = new Set(edges.filter(({ strength }) => strength !== "entitled").map(({ from }) => from));
  const isPossible = ({ id }: { id: string }) => !assetIds.has(id) && !confirmedIds.has(id);
  const possible = nodes.filter(isPossible);
  if (possible.length <= MAX_UNFOLDED) return { nodes, edges, count: possible.length };
  const ids = new Set(possible.map(({ id }) => id));
  const name = `${possible.length.toLocaleString()} others that may read it`;
  // One line from the folded node to each asset. Its effect and its pattern are those of the last folded consumer.
  const lines = new Map(edges.filter(({ from }) => ids.has(from)).map((edge) => [edge.to, edge]));
  return {
    nodes: [
      ...nodes.filter((node) => !isPossible(node)),
      { ...possible[0]!, id: FOLDED_KIND, kind: FOLDED_KIND, name },
    ],
    edges: [
      ...edges.filter(({ from }) => !ids.has(from)),
      ...[...lines.values()].map((edge) => ({ ...edge, from: FOLDED_KIND })),
    ],
    count: possible.length,
  };
}
