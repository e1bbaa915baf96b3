import { CloudFailure } from "../platform/azure/failure.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { coverageOperations } from "./coverage.ts";
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
import type { EdgeSource, NotSeen } from "./source.ts";
import { createResourceWriter } from "./write-resource.ts";

/** A reading of changes goes back so far behind the one before: what is asked lags, and clocks differ. */
const OVERLAP_MS = 15 * MINUTE_MS;

const TIMED_OUT: Failure = {
  code: "timedOut",
  message: "It could not be read to its end in time.",
  remedy: "The data that was read is kept. If this happens again, check which service responds slowly.",
};
/** Of a reading in parts, until its last. */
const GOES_ON: Failure = {
  code: TIMED_OUT.code,
  message: "It was not read to its end yet: that takes longer than there is time at once.",
  remedy: "No action needed: the run continues.",
};

export interface ReadDeps {
  tables: Tables;
  clock: Clock;
  randomness: Randomness;
  /** The service's own key vault is never a subject. */
  isServiceVault: (vaultName: string) => boolean;
}

/** What became of a unit. */
export interface UnitOutcome {
  /** Resources whose edges were written or taken away. */
  changed: number;
  /** It could not be read to its end. What was told until then is written, and nothing was taken away. */
  failure?: Failure;
  /** There was no time for all of it: the next part goes on from there. */
  readTo?: ReadTo;
}

/**
 * Reads a unit and brings its rows up to date: of each resource that is not as it stood its edges, then what is gone, and
 * last the unit's own row. A worker that dies anywhere leaves rows from which the next one sees what is still to be done.
 *
 * A full reading that runs out of time is gone on with in parts, where its source tells places.
 *
 * @param mode - `changes` is a full reading where none came to its end before.
 * @param readTo - What the part before answered.
 * @throws a conflict when another worker has taken the unit over; CloudFailure never.
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
  const standing = await resourcesOf(tables, key);
  const startedAt = readTo?.startedAt ?? clock.now().toISOString();
  const since = readTo ? undefined : sinceOf(source, before, mode);
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, standing });

  const notSeen: NotSeen[] = [];
  const reported = new Set<string>();
  const earlier = new Set<string>();
  let place = readTo?.place;
  let failure: Failure | undefined;
  try {
    for await (const one of source.read(unit, { since, signal, runId, after: readTo?.place })) {
      if ("notSeen" in one) {
        notSeen.push(one.notSeen);
        continue;
      }
      if ("place" in one) {
        place = one.place;
        continue;
      }
      if ("earlier" in one) {
        earlier.add(resourceHash(key, one.earlier));
        continue;
      }
      const id = "gone" in one ? one.gone : one.resource.id;
      reported.add(resourceHash(key, id));
      earlier.delete(resourceHash(key, id));
      if ("gone" in one) await writer.remove(resourceHash(key, id));
      else await writer.write(one);
    }
    if (since === undefined) await settleUntold({ isWhole: true });
  } catch (error) {
    if (error instanceof CloudFailure) failure = { code: error.code, message: error.message, remedy: error.remedy };
    else if (signal?.aborted) failure = TIMED_OUT;
    else throw error;
  }
  const isLate = failure !== undefined && (failure.code === TIMED_OUT.code || signal?.aborted === true);
  const goesOn = isLate && since === undefined && place !== readTo?.place;
  if (goesOn) {
    failure = undefined;
    await settleUntold({ isWhole: false });
    // After it: what is still to come is not held as if it could not be seen.
    notSeen.push({ ...GOES_ON, scope: unit });
  }
  await writer.flush();

  /** After a full reading: what was not told is gone, unless it could not be looked into. */
  async function settleUntold({ isWhole }: { isWhole: boolean }): Promise<void> {
    const hidden = scopes(notSeen);
    for (const [hash, { id }] of standing) {
      if (reported.has(hash) || earlier.has(hash)) continue;
      if (hidden(id)) await writer.hold(hash);
      else if (isWhole) await writer.remove(hash);
    }
  }

  const isFull = since === undefined && !goesOn;
  const coverage = await coverageOperations(
    { source: source.name, unit, key, before, reported, earlier, notSeen, failure, isFull, at: startedAt },
    tables,
  );
  const read = failure === undefined && !goesOn ? { lastReadAt: startedAt } : {};
  const full = failure === undefined && isFull ? { lastFullAt: startedAt } : {};
  const { lastFailure: _, ...last } = before ?? {};
  const after: UnitRecord = {
    ...last,
    source: source.name,
    unit,
    ...read,
    ...full,
    ...(failure === undefined ? {} : { lastFailure: { ...failure, at: startedAt } }),
    resources: standing.size,
    edges: [...standing.values()].reduce((sum, { count }) => sum + count, 0),
    notSeen: coverage.count,
    notSeenLeftOut: coverage.leftOut,
  };
  // The unit's row last: until then it says what was so before.
  await fence.write([...coverage.operations, put(Units, unitRowKey(key), after)]);
  return {
    changed: writer.changed,
    ...(failure === undefined ? {} : { failure }),
    ...(goesOn && place !== undefined && { readTo: { place, startedAt } }),
  };
}

/** Takes away all that is known of a unit; may be done again. @throws as `readUnit` */
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
  const standing = await resourcesOf(tables, key);
  const writer = createResourceWriter({ ...deps, fence, runId, unit: key, before, standing });
  for (const hash of standing.keys()) await writer.remove(hash);
  await writer.flush();
  const at = clock.now().toISOString();
  const nothing = {
    reported: new Set<string>(),
    earlier: new Set<string>(),
    notSeen: [],
    failure: undefined,
    isFull: true,
    at,
  };
  const { operations } = await coverageOperations({ source, unit, key, before, ...nothing }, tables);
  const last: Operation[] = row ? [remove(Units, unitRowKey(key))] : [];
  await fence.write([...operations, ...last]);
  return { changed: writer.changed };
}

/** A request per 1,000 resources. */
async function resourcesOf(tables: Tables, unit: string): Promise<Map<string, ResourceRecord>> {
  const prefix = resourcesPrefix(unit);
  const found = new Map<string, ResourceRecord>();
  for await (const rows of tables.pages(Resources, rangeOf(prefix)))
    for (const row of rows) found.set(row.rowKey.slice(prefix.length), withoutKeys(row));
  return found;
}

/** Undefined: read all. */
function sinceOf(source: EdgeSource, before: UnitRecord | undefined, mode: "full" | "changes"): Date | undefined {
  if (mode === "full" || source.whole || before?.lastFullAt === undefined || before.lastReadAt === undefined) return;
  return new Date(Date.parse(before.lastReadAt) - OVERLAP_MS);
}

/** Whether a resource lies in what could not be looked into. */
function scopes(notSeen: readonly NotSeen[]): (id: string) => boolean {
  const found = new Set(notSeen.map(({ scope }) => scope.toLowerCase()));
  return (id) => {
    const text = id.toLowerCase();
    if (found.has(text)) return true;
    for (let at = text.indexOf("/", 1); at > 0; at = text.indexOf("/", at + 1))
      if (found.has(text.slice(0, at))) return true;
    return false;
  };
}
