import { fingerprint } from "../inventory/asset.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { keysOnly } from "../platform/storage/entity.ts";
import { type Fence, merge, type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import { Edge, Resource } from "./edge.ts";
import type { ReadingItem } from "./edge-source.ts";
import {
  assetOfEdge,
  DEPENDENCIES,
  type EdgeRecord,
  Edges,
  edgeKey,
  Outdated,
  outdatedKey,
  packEdges,
  type Resolved,
  type ResourceRecord,
  Resources,
  resolvedOf,
  resourceHash,
  resourceKey,
  UNRESOLVED,
  type UnitRecord,
  UnresolvedRows,
  unpackEdges,
} from "./rows.ts";

// Writes what discovery read of one resource: its dependencies are compared with the stored ones, and only differences are
// written. A fence is a row whose ETag each transaction requires, so that writes of an earlier worker fail.

type ReadResource = Extract<ReadingItem, { resource: Resource }>;

/**
 * Maximum number of operations in one transaction, in addition to its fence. A resource that fits is written in one
 * transaction.
 */
const MAX_OPERATIONS = 99;
/** Maximum size of the rows in one transaction, far below its limit of 4 MiB. */
const MAX_CHARACTERS = 1_000_000;

/** Writes the resources of a unit (such as a subscription) with their dependencies, under the unit's fence. */
export interface ResourceWriter {
  /** Number of resources whose dependencies were written or deleted. */
  readonly changed: number;
  /**
   * Writes a resource and its dependencies, if they differ from the stored ones. Stored dependencies that were not read are
   * removed, but kept if the resource was read only in part (`partial`).
   */
  write(read: ReadResource): Promise<void>;
  /** Deletes a resource by its `resourceHash`. */
  remove(resource: string): Promise<void>;
  /** Marks a resource that could not be read: it stays, with the time of its last confirmation. */
  markUnconfirmed(resource: string): Promise<void>;
  /** Writes everything that earlier calls have collected for a common transaction. */
  flush(): Promise<void>;
}

/**
 * Creates a writer.
 *
 * @param deps.unit - Key of the unit.
 * @param deps.before - The unit's row before this run.
 * @param deps.stored - The unit's stored resources by `resourceHash`. Updated by each call.
 */
export function createResourceWriter(deps: {
  tables: Tables;
  fence: Fence;
  runId: string;
  unit: string;
  before: UnitRecord | undefined;
  stored: Map<string, ResourceRecord>;
  clock: Clock;
  randomness: Randomness;
  isServiceVault: (vaultName: string) => boolean;
}): ResourceWriter {
  const { tables, fence, runId, unit, before: unitBefore, stored, clock, randomness } = deps;
  // The last time when each stored resource was confirmed. An incremental run confirms only what changed.
  const lastSeenAt = unitBefore?.lastFullAt ?? clock.now().toISOString();
  let changed = 0;
  /** Operations for the next transaction, by row key. Several small resources share it. */
  let nextTransaction = new Map<string, Operation>();
  let characters = 0;

  async function flush(): Promise<void> {
    if (nextTransaction.size > 0) await fence.write(nextTransaction.values());
    nextTransaction = new Map();
    characters = 0;
  }

  /**
   * Writes a resource as a whole. Several resources share a transaction. If a resource needs several transactions, its row is
   * first written with an empty hash: after a crash in between, `edgesOf` checks which of its dependencies exist.
   */
  async function submit(
    resource: string,
    edges: ReadonlyMap<string, Operation>,
    before: ResourceRecord | undefined,
    after: ResourceRecord | undefined,
  ): Promise<void> {
    const key = resourceKey(unit, resource);
    const last = after ? put(Resources, key, after) : remove(Resources, key);
    const length = [...edges.values()].reduce((sum, { columns }) => sum + JSON.stringify(columns).length, 0);
    if (nextTransaction.size + edges.size + 1 > MAX_OPERATIONS || characters + length > MAX_CHARACTERS) await flush();
    if (edges.size + 1 <= MAX_OPERATIONS && length <= MAX_CHARACTERS) {
      for (const operation of [...edges.values(), last]) nextTransaction.set(operation.rowKey, operation);
      characters += length;
    } else {
      const known = before ? unpackEdges(before) : new Map<string, Resolved>();
      const added = [...(after ? unpackEdges(after) : [])].filter(([edge]) => !known.has(edge));
      // -1 (state unknown) for new dependencies, whose rows may not exist yet after a crash.
      const oldAndNew = new Map([...known, ...added.map(([edge]): [string, Resolved] => [edge, -1])]);
      const unfinished = { id: (after ?? before)!.id, hash: "", edges: packEdges(oldAndNew), count: known.size };
      await fence.write([put(Resources, key, unfinished)]);
      await fence.write(edges.values());
      await fence.write([last]);
    }
    if (after) stored.set(resource, after);
    else stored.delete(resource);
  }

  /**
   * Returns the stored dependencies of a resource. After a crashed write (`before.hash` is "") some may be missing, so each is
   * checked with one request.
   */
  async function edgesOf(before: ResourceRecord | undefined): Promise<Map<string, Resolved>> {
    const known = before ? unpackEdges(before) : new Map<string, Resolved>();
    if (before?.hash !== "") return known;
    for (const key of known.keys()) if (!(await tables.get(keysOnly(Edges), DEPENDENCIES, key))) known.delete(key);
    return known;
  }

  /**
   * Returns the operations for events and compliance if the platform's ability to resolve the reference changed. `was` and `is`
   * are 1 (resolved), 0 (unresolved) or -1 (not reported, or no such dependency).
   */
  function unresolvedOperations(key: string, edge: EdgeRecord | undefined, was: Resolved = -1): Operation[] {
    const is = edge ? resolvedOf(edge) : -1;
    if (was === is) return [];
    const asset = assetOfEdge(key);
    const outdated = put(Outdated, outdatedKey(asset), asset);
    if (edge === undefined || is !== 0) return [outdated];
    const id = fingerprint([key, runId]);
    const now = clock.now();
    return [outdated, put(UnresolvedRows, UNRESOLVED + randomness.ulid(now), { id, at: now.toISOString(), edge: key })];
  }

  return {
    get changed() {
      return changed;
    },
    flush,

    async write({ resource: given, edges, partial = false }) {
      const resource = Resource.parse(given);
      const idHash = resourceHash(unit, resource.id);
      const toldAt = clock.now().toISOString();
      const wanted = new Map<string, EdgeRecord>();
      for (const givenEdge of edges) {
        // Parsing puts the members into the order of the schema, so that equal dependencies have equal hashes.
        const edge = Edge.parse({ ...givenEdge, resource });
        // Access to the service's own vault is left out, but a reference to it is a mistake that must show.
        if (edge.strength === "references" || !deps.isServiceVault(edge.vaultName))
          wanted.set(edgeKey(edge, idHash), { ...edge, unit, toldAt });
      }
      const before = stored.get(idHash);
      const content = fingerprint([resource, [...wanted].sort(byKey).map(([, { toldAt: _, ...edge }]) => edge)]);
      // Nothing to write if the state is unchanged and confirmed. A complete read also deletes what a partial read had kept.
      if (before?.hash === content && before.lastSeenAt === undefined && (partial || !before.partial)) return;
      if (!before && wanted.size === 0) return;
      const known = await edgesOf(before);
      const after = new Map([...wanted].map(([key, edge]) => [key, resolvedOf(edge)]));
      const operations: Operation[] = [];
      for (const [key, edge] of wanted)
        operations.push(put(Edges, key, edge), ...unresolvedOperations(key, edge, known.get(key)));
      let hasKeptEdges = false;
      for (const [key, was] of known) {
        if (wanted.has(key)) continue;
        if (partial) {
          hasKeptEdges = true;
          after.set(key, was);
          operations.push(merge(Edges, key, { lastSeenAt }));
        } else operations.push(remove(Edges, key), ...unresolvedOperations(key, undefined, was));
      }
      const record: ResourceRecord = {
        id: resource.id,
        hash: content,
        edges: packEdges(after),
        count: after.size,
        ...(hasKeptEdges ? { partial: true } : {}),
      };
      await submit(idHash, byRow(operations), before, after.size === 0 ? undefined : record);
      changed++;
    },

    async remove(idHash) {
      const before = stored.get(idHash);
      if (!before) return;
      // Without `edgesOf`: removing a missing row succeeds.
      const known = [...unpackEdges(before)];
      const operations = known.flatMap(([key, was]) => [
        remove(Edges, key),
        ...unresolvedOperations(key, undefined, was),
      ]);
      await submit(idHash, byRow(operations), before, undefined);
      changed++;
    },

    async markUnconfirmed(idHash) {
      const before = stored.get(idHash);
      if (!before || before.lastSeenAt !== undefined) return;
      const known = await edgesOf(before);
      const operations = [...known.keys()].map((key) => merge(Edges, key, { lastSeenAt }));
      const edges = { edges: packEdges(known), count: known.size };
      await submit(idHash, byRow(operations), before, { ...before, ...edges, lastSeenAt });
    },
  };
}

/** Keeps one operation per row, because several dependencies may write the `Outdated` row of the same asset. */
const byRow = (operations: readonly Operation[]): Map<string, Operation> =>
  new Map(operations.map((operation) => [operation.rowKey, operation]));

const byKey = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : 1);
