import { CloudFailure } from "../platform/azure/failure.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { undefinedIfChanged } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { put, remove, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { coverageOperations } from "./coverage.ts";
import type { EdgeSource, NotSeen } from "./edge-source.ts";
import {
  DEPENDENCIES,
  EDGES,
  Edges,
  type Failure,
  fenceKey,
  packEdges,
  RESOURCES,
  type ReadTo,
  type Resolved,
  type ResourceRecord,
  Resources,
  rangeOf,
  resolvedOf,
  resourceHash,
  resourceOfEdge,
  resourcesPrefix,
  UnitFences,
  type UnitRecord,
  Units,
  unitKey,
  unitRowKey,
  unpackEdges,
} from "./rows.ts";
import { createResourceWriter } from "./write-resource.ts";

// Reads and removes one unit: a part of a source that one worker reads, such as a subscription.

/** An incremental run starts this long before the previous one, because Resource Graph lags and clocks differ. */
const OVERLAP_MS = 15 * MINUTE_MS;

const TIMED_OUT: Failure = {
  code: "timedOut",
  message: "The unit could not be read completely in time.",
  remedy: "The data that was read is kept. If this happens again, check which service responds slowly.",
};
/** Coverage item of a unit whose run continues in another part: the unit was not read completely. It is not a failure. */
const UNFINISHED: Failure = {
  code: TIMED_OUT.code,
  message: "The unit was not read completely yet, because reading it takes longer than one part of the run.",
  remedy: "No action needed: the run continues.",
};

/** Dependencies of reading and removing units. */
export interface ReadDeps {
  tables: Tables;
  clock: Clock;
  randomness: Randomness;
  /** The service's own key vault is excluded. */
  isServiceVault: (vaultName: string) => boolean;
}

/** Result of a run over a unit. */
export interface UnitOutcome {
  /** Number of resources whose dependencies were written or deleted. */
  changed: number;
  /** Why the unit could not be read completely. Everything that was read is stored. The rest is unchanged. */
  failure?: Failure;
  /** Position at which the next part continues, because the time ran out. */
  readTo?: ReadTo;
}

/**
 * Reads a unit and updates its rows: first each reported resource, then those that the source did not report, and last the
 * unit's own row.
 * After a crash at any point the next worker sees from the rows what remains. A fence, a row whose ETag is part of each
 * transaction, rejects the writes of earlier workers.
 *
 * A full run that takes too long continues in parts, if its source reports positions.
 *
 * @param mode - `changes` also makes a full run if none was completed before, if the source is always read completely, or if
 * rows can't be read.
 * @param readTo - Result of the previous part. Parts belong to a full run.
 * @throws A conflict if another worker has taken the unit; never CloudFailure.
 */
export async function readUnit(
  source: EdgeSource,
  unit: string,
  {
    mode,
    runId,
    workerId,
    signal,
    readTo,
  }: {
    mode: "full" | "changes";
    runId: string;
    workerId: string;
    signal?: AbortSignal;
    readTo?: ReadTo | undefined;
  },
  deps: ReadDeps,
): Promise<UnitOutcome> {
  const { tables, clock } = deps;
  const key = unitKey(source.name, unit);
  const fence = tables.fence(UnitFences, DEPENDENCIES, fenceKey(key), { owner: workerId, etag: undefined });
  await fence.take();
  const { before, stored, isDamaged } = await readStoredUnit(tables, key);
  const startedAt = readTo?.startedAt ?? clock.now().toISOString();
  /** Start of an incremental run. Undefined for a full run, which also writes the rows again that can't be read. */
  const since = readTo ? undefined : sinceOf(source, before, isDamaged ? "full" : mode);
  // The writer updates `stored` with each write.
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, stored });

  const notSeen: NotSeen[] = [];
  /** Hashes of the resources that the source reported, or reported as gone. */
  const reported = new Set<string>();
  /** Hashes of the resources that an earlier part of this run reported. */
  const earlier = new Set<string>();
  let position = readTo?.place;
  let failure: Failure | undefined;
  try {
    for await (const item of source.read(unit, { since, signal, runId, after: readTo?.place })) {
      if ("notSeen" in item) {
        notSeen.push(item.notSeen);
        continue;
      }
      if ("position" in item) {
        position = item.position;
        continue;
      }
      if ("earlier" in item) {
        earlier.add(resourceHash(key, item.earlier));
        continue;
      }
      const id = "gone" in item ? item.gone : item.resource.id;
      reported.add(resourceHash(key, id));
      // What this part read replaces what an earlier part found, also in the coverage.
      earlier.delete(resourceHash(key, id));
      if ("gone" in item) await writer.remove(resourceHash(key, id));
      else await writer.write(item);
    }
    if (since === undefined) await settleUnreported({ isWhole: true });
  } catch (error) {
    if (error instanceof CloudFailure) failure = { code: error.code, message: error.message, remedy: error.remedy };
    else if (signal?.aborted) failure = TIMED_OUT;
    else throw error;
  }
  /** The time ran out. A call that `signal` aborts can also fail with another code. */
  const isLate = failure !== undefined && (failure.code === TIMED_OUT.code || signal?.aborted === true);
  // A full run continues in another part if this part passed a new position. Otherwise more time would not help.
  const isUnfinished = isLate && since === undefined && position !== readTo?.place;
  if (isUnfinished) {
    failure = undefined;
    await settleUnreported({ isWhole: false });
    // Added after `settleUnreported`, so that resources of later parts are not marked as unreadable.
    notSeen.push({ ...UNFINISHED, scope: unit });
  }
  await writer.flush();

  /**
   * Handles stored resources that a full run did not report. Those that could not be read stay, marked as unconfirmed. The
   * others are deleted if the whole unit was read (`isWhole`), because they no longer exist.
   */
  async function settleUnreported({ isWhole }: { isWhole: boolean }): Promise<void> {
    const isUnreadable = unreadableScopes(notSeen);
    for (const [hash, { id }] of stored) {
      if (reported.has(hash) || earlier.has(hash)) continue;
      if (isUnreadable(id)) await writer.markUnconfirmed(hash);
      else if (isWhole) await writer.remove(hash);
    }
  }

  const isFull = since === undefined && !isUnfinished;
  const coverage = await coverageOperations(
    { source: source.name, unit, key, before, reported, earlier, notSeen, failure, isFull, startedAt },
    tables,
  );
  const read = failure === undefined && !isUnfinished ? { lastReadAt: startedAt } : {};
  const full = failure === undefined && isFull ? { lastFullAt: startedAt } : {};
  const { lastFailure: _, ...unitWithoutFailure } = before ?? {};
  const newUnitRow: UnitRecord = {
    ...unitWithoutFailure,
    source: source.name,
    unit,
    ...read,
    ...full,
    ...(failure === undefined ? {} : { lastFailure: { ...failure, at: startedAt } }),
    resources: stored.size,
    edges: [...stored.values()].reduce((sum, { count }) => sum + count, 0),
    notSeen: coverage.count,
    notSeenLeftOut: coverage.leftOut,
  };
  // The unit's row is written last. Until then it describes the previous run.
  await fence.write([...coverage.operations, put(Units, unitRowKey(key), newUnitRow)]);
  return {
    changed: writer.changed,
    ...(failure === undefined ? {} : { failure }),
    ...(isUnfinished && position !== undefined && { readTo: { place: position, startedAt } }),
  };
}

/** Deletes all rows of a unit. Safe to repeat. @throws as `readUnit` */
export async function removeUnit(
  source: string,
  unit: string,
  { runId, workerId }: { runId: string; workerId: string },
  deps: ReadDeps,
): Promise<UnitOutcome> {
  const { tables, clock } = deps;
  const key = unitKey(source, unit);
  const fence = tables.fence(UnitFences, DEPENDENCIES, fenceKey(key), { owner: workerId, etag: undefined });
  await fence.take();
  const { before, stored } = await readStoredUnit(tables, key);
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, stored });
  for (const hash of stored.keys()) await writer.remove(hash);
  await writer.flush();
  const startedAt = clock.now().toISOString();
  const emptyResult = {
    reported: new Set<string>(),
    earlier: new Set<string>(),
    notSeen: [],
    failure: undefined,
    isFull: true,
    startedAt,
  };
  const { operations } = await coverageOperations({ source, unit, key, before, ...emptyResult }, tables);
  // Removing a missing row succeeds.
  await fence.write([...operations, remove(Units, unitRowKey(key))]);
  return { changed: writer.changed };
}

/** A unit's rows as stored. */
interface StoredUnit {
  /** The unit's own row. Undefined before the first run, and if it can't be read. */
  before: UnitRecord | undefined;
  /** Its resources by `resourceHash`. */
  stored: Map<string, ResourceRecord>;
  /** Whether a row can't be read. */
  isDamaged: boolean;
}

/** Reads the rows of a unit. Costs one request, and one per 1,000 resources. */
async function readStoredUnit(tables: Tables, unit: string): Promise<StoredUnit> {
  const prefix = resourcesPrefix(unit);
  const stored = new Map<string, ResourceRecord>();
  const unreadable: string[] = [];
  const onCorrupt = ({ rowKey }: StorageCorrupt) => unreadable.push(rowKey.slice(prefix.length));
  for await (const rows of tables.pages(Resources, { ...rangeOf(prefix), onCorrupt }))
    for (const row of rows) stored.set(row.rowKey.slice(prefix.length), withoutKeys(row));
  if (unreadable.length > 0)
    for (const [hash, resource] of await rebuildResources(tables, unreadable)) stored.set(hash, resource);
  // A range of one key: `!` sorts before all characters that could follow. `onCorrupt` reports a row that can't be read.
  const own = { partitionKey: DEPENDENCIES, from: unitRowKey(unit), before: `${unitRowKey(unit)}!` };
  let before: UnitRecord | undefined;
  for await (const [row] of tables.pages(Units, { ...own, onCorrupt: ({ rowKey }) => unreadable.push(rowKey) }))
    before = row && withoutKeys(row);
  return { before, stored, isDamaged: unreadable.length > 0 };
}

/**
 * Rebuilds the rows of resources that can't be read from their dependencies, which have the resource in their keys. Like after
 * a crashed write, the empty hash makes the writer check each dependency and write the resource again. A dependency that can't
 * be read either gets -1: the state of its reference is unknown. Costs one request per 1,000 dependencies of all units.
 */
async function rebuildResources(tables: Tables, hashes: readonly string[]): Promise<Map<string, ResourceRecord>> {
  const found = new Map(hashes.map((hash) => [hash, { id: "", edges: new Map<string, Resolved>() }]));
  const resourceOf = (rowKey: string) => found.get(resourceOfEdge(rowKey));
  const onCorrupt = ({ rowKey }: StorageCorrupt) => resourceOf(rowKey)?.edges.set(rowKey, -1);
  for await (const rows of tables.pages(Edges, { ...rangeOf(EDGES), select: ["resource", "state"], onCorrupt })) {
    for (const { rowKey, resource, state } of rows) {
      const rebuilt = resourceOf(rowKey);
      if (!rebuilt) continue;
      rebuilt.id = resource.id;
      rebuilt.edges.set(rowKey, resolvedOf({ state }));
    }
  }
  const record = ({ id, edges }: { id: string; edges: ReadonlyMap<string, Resolved> }): ResourceRecord => ({
    id,
    hash: "",
    edges: packEdges(edges),
    count: edges.size,
  });
  return new Map([...found].map(([hash, rebuilt]) => [hash, record(rebuilt)]));
}

/**
 * Prepares a full run so that it writes dependencies again whose rows can't be read. It empties the hash of their resource, so
 * that the writer writes the resource again although it is unchanged. Removes such a row if no resource has its key. Costs one
 * request per 1,000 dependencies, and if there are such rows, one per 1,000 resources.
 */
export async function markDamagedResources(tables: Tables): Promise<void> {
  const damaged: StorageCorrupt[] = [];
  for await (const _ of tables.pages(Edges, { ...rangeOf(EDGES), onCorrupt: (row) => damaged.push(row) }));
  if (damaged.length === 0) return;
  const byResource = Map.groupBy(damaged, ({ rowKey }) => resourceOfEdge(rowKey));
  const hashOf = (rowKey: string) => rowKey.slice(rowKey.lastIndexOf("|") + 1);
  // `readStoredUnit` rebuilds the row of a resource that can't be read.
  const onCorrupt = ({ rowKey }: StorageCorrupt) => byResource.delete(hashOf(rowKey));
  for await (const rows of tables.pages(Resources, { ...rangeOf(RESOURCES), onCorrupt })) {
    for (const row of rows) {
      const edges = byResource.get(hashOf(row.rowKey));
      if (!edges) continue;
      byResource.delete(hashOf(row.rowKey));
      const all = new Map([...edges.map(({ rowKey }): [string, Resolved] => [rowKey, -1]), ...unpackEdges(row)]);
      // Another run may write the resource now. Then the next full run finds the row again.
      await undefinedIfChanged(tables.replace(Resources, { ...row, hash: "", edges: packEdges(all), count: all.size }));
    }
  }
  for (const { rowKey, etag } of [...byResource.values()].flat())
    await undefinedIfChanged(tables.remove(Edges, DEPENDENCIES, rowKey, etag));
}

/** Returns the start of an incremental run; undefined for a full run. */
function sinceOf(source: EdgeSource, before: UnitRecord | undefined, mode: "full" | "changes"): Date | undefined {
  if (mode === "full" || source.whole || before?.lastFullAt === undefined || before.lastReadAt === undefined) return;
  return new Date(Date.parse(before.lastReadAt) - OVERLAP_MS);
}

/** Returns a function that tests whether a resource belongs to a scope that could not be read. */
function unreadableScopes(notSeen: readonly NotSeen[]): (id: string) => boolean {
  const scopes = new Set(notSeen.map(({ scope }) => scope.toLowerCase()));
  return (id) => {
    const text = id.toLowerCase();
    if (scopes.has(text)) return true;
    for (let slash = text.indexOf("/", 1); slash > 0; slash = text.indexOf("/", slash + 1))
      if (scopes.has(text.slice(0, slash))) return true;
    return false;
  };
}
