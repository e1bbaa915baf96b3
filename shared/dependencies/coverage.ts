import * as z from "zod";
import { fingerprint } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../platform/http/paging.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Operation, put, remove, type Tables } from "../platform/storage/tables.ts";
import type { NotSeen } from "./edge-source.ts";
import {
  type Failure,
  NOT_SEEN,
  type NotSeenRecord,
  NotSeenRows,
  notSeenKey,
  notSeenPrefix,
  rangeOf,
  resourceHash,
  UNITS,
  type UnitRecord,
  Units,
} from "./rows.ts";

/** Maximum number of coverage rows of one unit. Further items are only counted. */
const MAX_ROWS = 1000;

/** Result of one run over a unit. */
interface Reading {
  source: string;
  unit: string;
  key: string;
  before: UnitRecord | undefined;
  /** `resourceHash` of each reported resource. */
  reported: ReadonlySet<string>;
  /** `resourceHash` of each resource that an earlier part of the run reported. */
  earlier: ReadonlySet<string>;
  notSeen: readonly NotSeen[];
  /** Why the unit could not be read completely. */
  failure: Failure | undefined;
  isFull: boolean;
  at: string;
}

/**
 * Returns the operations that update the coverage of a unit, for its fence. After a full run only the items of this run remain.
 * After an incremental, partial or failed run, earlier items also remain if their resource was not reported since. Makes one
 * request if there were earlier items.
 */
export async function coverageOperations(
  { source, unit, key, before, reported, earlier, notSeen, failure, isFull, at }: Reading,
  tables: Tables,
): Promise<{ operations: Operation[]; count: number; leftOut: number }> {
  const stored = new Map<string, NotSeenRecord>();
  if (before && before.notSeen > 0)
    for await (const rows of tables.pages(NotSeenRows, rangeOf(notSeenPrefix(key))))
      for (const row of rows) stored.set(row.rowKey, withoutKeys(row));
  const wanted = new Map<string, NotSeenRecord>();
  const addWanted = (one: NotSeen) => {
    const rowKey = notSeenKey(key, one);
    const { scope, code, message, remedy } = one;
    wanted.set(rowKey, { scope, code, message, remedy, source, unit, since: stored.get(rowKey)?.since ?? at });
  };
  if (failure) addWanted({ ...failure, scope: unit });
  for (const one of notSeen) addWanted(one);
  for (const [rowKey, one] of stored) {
    const resource = resourceHash(key, one.scope);
    const isStillValid = earlier.has(resource) || ((!isFull || failure) && !reported.has(resource));
    if (!wanted.has(rowKey) && one.scope !== unit && isStillValid) wanted.set(rowKey, one);
  }
  const kept = new Map([...wanted].slice(0, MAX_ROWS));
  const operations = [
    ...[...stored.keys()].filter((rowKey) => !kept.has(rowKey)).map((rowKey) => remove(NotSeenRows, rowKey)),
    ...[...kept]
      .filter(([rowKey, one]) => fingerprint(contentOf(one)) !== fingerprint(contentOf(stored.get(rowKey))))
      .map(([rowKey, one]) => put(NotSeenRows, rowKey, one)),
  ];
  return { operations, count: kept.size, leftOut: wanted.size - kept.size };
}

const contentOf = (one: NotSeenRecord | undefined) => (one ? [one.scope, one.code, one.message, one.remedy] : []);

/** Returns all units. Makes one request per 1,000. */
export async function allUnits(tables: Tables): Promise<Map<string, UnitRecord>> {
  const units = new Map<string, UnitRecord>();
  for await (const rows of tables.pages(Units, rangeOf(UNITS)))
    for (const row of rows) units.set(row.rowKey.slice(UNITS.length), withoutKeys(row));
  return units;
}

/** Coverage of all units. */
export interface Coverage {
  /** The first items that could not be read. */
  items: NotSeenRecord[];
  /** Total number of items. */
  total: number;
  /** Time of the oldest full run of any unit. Undefined if a unit was never read completely, or there is none. */
  lastFullAt: string | undefined;
}

const NEVER_READ: Omit<NotSeenRecord, "since"> = {
  scope: "*",
  source: "",
  unit: "",
  code: "neverRead",
  message: "Dependencies have not been discovered yet.",
  remedy: "Start a run with POST /api/assets/dependencies/discover, or wait for the weekly run.",
};

const Cursor = z.object({ after: z.string().max(1024) });

/**
 * Returns a page of the coverage, with one request.
 *
 * @param units - Result of `allUnits`. @throws {Problem} invalidCursor
 */
export async function coveragePage(
  units: ReadonlyMap<string, UnitRecord>,
  { limit, offset, cursor: text }: PageRequest,
  tables: Tables,
): Promise<Page<NotSeenRecord> & Pick<Coverage, "lastFullAt">> {
  const cursor = text === undefined ? undefined : decodeCursor(Cursor, text);
  const readings = [...units.values()].filter(({ unit }) => unit !== "").map(({ lastFullAt }) => lastFullAt);
  const lastFullAt = readings.includes(undefined) ? undefined : (readings as string[]).sort()[0];
  const page = { limit, offset, lastFullAt };
  if (units.size === 0) {
    const items = offset === 0 && !cursor ? [{ ...NEVER_READ, since: "" }] : [];
    return { ...page, items, total: 1, nextCursor: null };
  }
  const total = [...units.values()].reduce((sum, { notSeen, notSeenLeftOut }) => sum + notSeen + notSeenLeftOut, 0);
  const found: { key: string; one: NotSeenRecord }[] = [];
  let skip = cursor ? 0 : offset;
  const range = { ...rangeOf(NOT_SEEN), ...(cursor && { after: cursor.after }) };
  if (total > 0) {
    walk: for await (const rows of tables.pages(NotSeenRows, {
      ...range,
      pageSize: Math.min(1000, skip + limit + 1),
    })) {
      for (const row of rows) {
        if (skip-- > 0) continue;
        found.push({ key: row.rowKey, one: withoutKeys(row) });
        if (found.length > limit) break walk;
      }
    }
  }
  const items = found.slice(0, limit);
  const more = found.length > limit;
  return {
    ...page,
    items: items.map(({ one }) => one),
    total,
    nextCursor: more ? encodeCursor({ after: items.at(-1)!.key } satisfies z.infer<typeof Cursor>) : null,
  };
}
