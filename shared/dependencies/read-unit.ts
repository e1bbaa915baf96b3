import { CloudFailure } from "../platform/azure/failure.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { coverageOperations } from "./coverage.ts";
import type { EdgeSource, NotSeen } from "./edge-source.ts";
import {
  DEPENDENCIES,
  type Failure,
  fenceKey,
  type ReadTo,
  type ResourceRecord,
  Resources,
  rangeOf,
  resourceHash,
  resourcesPrefix,
  UnitFences,
  type UnitRecord,
  Units,
  unitKey,
  unitRowKey,
} from "./rows.ts";
import { createResourceWriter } from "./write-resource.ts";

/** An incremental run starts this long before the previous one, because Resource Graph lags and clocks differ. */
const OVERLAP_MS = 15 * MINUTE_MS;

const TIMED_OUT: Failure = {
  code: "timedOut",
  message: "The unit could not be read completely in time.",
  remedy: "The data that was read is kept. If this happens again, check which service responds slowly.",
};
/** Failure of a partial run, until its last part. */
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
  /** Why the unit could not be read completely. Everything that was read is stored, and nothing was deleted. */
  failure?: Failure;
  /** Position at which the next part continues, because the time was over. */
  readTo?: ReadTo;
}

/**
 * Reads a unit and updates its rows: first the dependencies of changed resources, then deletions, and last the unit's own row.
 * A unit is a part of a source that one worker reads, such as an Azure subscription. After a crash at any point the next worker
 * sees from the rows what remains. A fence, a row whose ETag is part of each transaction, rejects the writes of earlier
 * workers.
 *
 * A full run that takes too long continues in parts, if its source reports positions.
 *
 * @param mode - `changes` makes a full run if none was completed before.
 * @param readTo - Result of the previous part.
 * @throws A conflict if another worker has taken the unit; never CloudFailure.
 */
export async function readUnit(
  source: EdgeSource,
  unit: string,
  {
    mode,
    runId,
    owner,
    signal,
    readTo,
  }: {
    mode: "full" | "changes";
    runId: string;
    owner: string;
    signal?: AbortSignal;
    readTo?: ReadTo | undefined;
  },
  deps: ReadDeps,
): Promise<UnitOutcome> {
  const { tables, clock } = deps;
  const key = unitKey(source.name, unit);
  const fence = tables.fence(UnitFences, DEPENDENCIES, fenceKey(key), { owner, etag: undefined });
  await fence.take();
  const row = await tables.get(Units, DEPENDENCIES, unitRowKey(key));
  const before = row && withoutKeys(row);
  const stored = await resourcesOf(tables, key);
  const startedAt = readTo?.startedAt ?? clock.now().toISOString();
  const since = readTo ? undefined : sinceOf(source, before, mode);
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, stored });

  const notSeen: NotSeen[] = [];
  /** Hashes of the resources that the source reported, or reported as gone. */
  const reported = new Set<string>();
  /** Hashes of the resources that an earlier part of this run reported. */
  const earlier = new Set<string>();
  let place = readTo?.place;
  let failure: Failure | undefined;
  try {
    for await (const item of source.read(unit, { since, signal, runId, after: readTo?.place })) {
      if ("notSeen" in item) {
        notSeen.push(item.notSeen);
        continue;
      }
      if ("place" in item) {
        place = item.place;
        continue;
      }
      if ("earlier" in item) {
        earlier.add(resourceHash(key, item.earlier));
        continue;
      }
      const id = "gone" in item ? item.gone : item.resource.id;
      reported.add(resourceHash(key, id));
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
  // Time is over. The unit continues in another part if this part passed a new position. Otherwise more time would not help.
  const isLate = failure !== undefined && (failure.code === TIMED_OUT.code || signal?.aborted === true);
  const isUnfinished = isLate && since === undefined && place !== readTo?.place;
  if (isUnfinished) {
    failure = undefined;
    await settleUnreported({ isWhole: false });
    // Added after `settleUnreported`, so that resources of later parts are not marked as unreadable.
    notSeen.push({ ...UNFINISHED, scope: unit });
  }
  await writer.flush();

  /**
   * Handles stored resources that a full run did not report. Those that could not be read stay, marked as unconfirmed. The
   * others are deleted if the whole unit was read.
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
    { source: source.name, unit, key, before, reported, earlier, notSeen, failure, isFull, at: startedAt },
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
    ...(isUnfinished && place !== undefined && { readTo: { place, startedAt } }),
  };
}

/** Deletes all rows of a unit. Safe to repeat. @throws as `readUnit` */
export async function removeUnit(
  source: string,
  unit: string,
  { runId, owner }: { runId: string; owner: string },
  deps: ReadDeps,
): Promise<UnitOutcome> {
  const { tables, clock } = deps;
  const key = unitKey(source, unit);
  const fence = tables.fence(UnitFences, DEPENDENCIES, fenceKey(key), { owner, etag: undefined });
  await fence.take();
  const row = await tables.get(Units, DEPENDENCIES, unitRowKey(key));
  const before = row && withoutKeys(row);
  const stored = await resourcesOf(tables, key);
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, stored });
  for (const hash of stored.keys()) await writer.remove(hash);
  await writer.flush();
  const at = clock.now().toISOString();
  const emptyResult = {
    reported: new Set<string>(),
    earlier: new Set<string>(),
    notSeen: [],
    failure: undefined,
    isFull: true,
    at,
  };
  const { operations } = await coverageOperations({ source, unit, key, before, ...emptyResult }, tables);
  const last: Operation[] = row ? [remove(Units, unitRowKey(key))] : [];
  await fence.write([...operations, ...last]);
  return { changed: writer.changed };
}

/** Returns the stored resources of a unit by hash. Sends one request per 1,000 resources. */
async function resourcesOf(tables: Tables, unit: string): Promise<Map<string, ResourceRecord>> {
  const prefix = resourcesPrefix(unit);
  const resources = new Map<string, ResourceRecord>();
  for await (const rows of tables.pages(Resources, rangeOf(prefix)))
    for (const row of rows) resources.set(row.rowKey.slice(prefix.length), withoutKeys(row));
  return resources;
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
