import * as z from "zod";
import { fingerprint } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../platform/http/paging.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Operation, put, remove, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
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

/**
 * Coverage: the list of everything that dependency discovery could not read. A unit is the part of a source that one worker
 * reads, such as a subscription. A run over a unit updates the unit's items. A full run that takes too long is continued in
 * further parts, each of which updates the items.
 */

/** Maximum number of coverage rows of one unit. Further items are only counted. */
const MAX_ROWS = 1000;

/** Result of one part of a run over a unit. Most runs have only one part. */
interface UnitReading {
  source: string;
  unit: string;
  /** Key of the unit in row keys. */
  key: string;
  /** The unit's row before this run. */
  before: UnitRecord | undefined;
  /** `resourceHash` of each resource that this part of the run reported. */
  reported: ReadonlySet<string>;
  /** `resourceHash` of each resource that an earlier part of the same run reported, and this part did not. */
  earlier: ReadonlySet<string>;
  notSeen: readonly NotSeen[];
  /** Why the unit could not be read completely. */
  failure: Failure | undefined;
  /** True after the last part of a full run, also of one that failed. */
  isFull: boolean;
  /** Start of the run, ISO 8601. */
  startedAt: string;
}

/**
 * Returns the operations that update the coverage of a unit. The caller writes them under the unit's fence, which rejects
 * writes of workers that lost the unit. After the last part of a full run, only the items of this run remain. After an
 * incremental, unfinished or failed run, items of earlier runs also remain unless this part reported their resource. Reads the
 * stored items, with one request per 1,000, unless the unit is known to have none.
 */
export async function coverageOperations(
  { source, unit, key, before, reported, earlier, notSeen, failure, isFull, startedAt }: UnitReading,
  tables: Tables,
): Promise<{ operations: Operation[]; count: number; leftOut: number }> {
  /** Undefined for an item that can't be read, which is removed or written again. */
  const stored = new Map<string, NotSeenRecord | undefined>();
  const onCorrupt = ({ rowKey }: StorageCorrupt) => stored.set(rowKey, undefined);
  if (before === undefined || before.notSeen > 0)
    for await (const rows of tables.pages(NotSeenRows, { ...rangeOf(notSeenPrefix(key)), onCorrupt }))
      for (const row of rows) stored.set(row.rowKey, withoutKeys(row));
  const wanted = new Map<string, NotSeenRecord>();
  const addWanted = (item: NotSeen) => {
    const rowKey = notSeenKey(key, item);
    const { scope, code, message, remedy } = item;
    wanted.set(rowKey, { scope, code, message, remedy, source, unit, since: stored.get(rowKey)?.since ?? startedAt });
  };
  if (failure) addWanted({ ...failure, scope: unit });
  for (const item of notSeen) addWanted(item);
  for (const [rowKey, item] of stored) {
    if (!item) continue;
    const resource = resourceHash(key, item.scope);
    // An earlier part of this run reported the item, or this run did not read everything and so did not disprove the item.
    const isStillValid = earlier.has(resource) || ((!isFull || failure) && !reported.has(resource));
    // An item whose scope is the whole unit is the failure of an earlier run, which this run's own result replaces.
    if (!wanted.has(rowKey) && item.scope !== unit && isStillValid) wanted.set(rowKey, item);
  }
  const remaining = new Map([...wanted].slice(0, MAX_ROWS));
  const operations = [
    ...[...stored.keys()].filter((rowKey) => !remaining.has(rowKey)).map((rowKey) => remove(NotSeenRows, rowKey)),
    ...[...remaining]
      .filter(
        ([rowKey, item]) => fingerprint(comparedMembers(item)) !== fingerprint(comparedMembers(stored.get(rowKey))),
      )
      .map(([rowKey, item]) => put(NotSeenRows, rowKey, item)),
  ];
  return { operations, count: remaining.size, leftOut: wanted.size - remaining.size };
}

/** `since`, `source` and `unit` are left out: they never change for the same row. */
const comparedMembers = (item: NotSeenRecord | undefined) =>
  item ? [item.scope, item.code, item.message, item.remedy] : [];

/** Returns the rows of all units, by unit key. Makes one request per 1,000. The next run replaces rows that can't be read. */
export async function readUnits(tables: Tables): Promise<Map<string, UnitRecord>> {
  const units = new Map<string, UnitRecord>();
  for await (const rows of tables.pages(Units, { ...rangeOf(UNITS), onCorrupt: "leaveOut" }))
    for (const row of rows) units.set(row.rowKey.slice(UNITS.length), withoutKeys(row));
  return units;
}

/** Coverage of all units. */
export interface Coverage {
  /** The first items that could not be read. */
  items: NotSeenRecord[];
  /** Total number of items. */
  total: number;
  /**
   * Start of the oldest among the units' last full runs: every unit was read completely since. Undefined if a unit was never
   * read completely, or if there are no units.
   */
  lastFullAt: string | undefined;
}

/** The only item before the first run. */
const NEVER_READ: Omit<NotSeenRecord, "since"> = {
  // All scopes. Rotations show the message of this item without its scope.
  scope: "*",
  source: "",
  unit: "",
  code: "neverRead",
  message: "Dependencies have not been discovered yet.",
  remedy: "Start a run with POST /api/assets/dependencies/discover, or wait for the weekly run.",
};

/** Content of the API's cursor: the row key of the last item of the previous page. */
const Cursor = z.object({ after: z.string().max(1024) });

/**
 * Returns a page of the coverage. Makes one request per 1,000 items of the offset and the page, none if there are no items.
 *
 * @param units - Result of `readUnits`. @throws {Problem} invalidCursor
 */
export async function coveragePage(
  units: ReadonlyMap<string, UnitRecord>,
  { limit, offset, cursor: text }: PageRequest,
  tables: Tables,
): Promise<Page<NotSeenRecord> & Pick<Coverage, "lastFullAt">> {
  const cursor = text === undefined ? undefined : decodeCursor(Cursor, text);
  // A unit without a name only has the coverage item of a source that is off or whose units could not be listed.
  const fullRuns = [...units.values()].filter(({ unit }) => unit !== "").map(({ lastFullAt }) => lastFullAt);
  const lastFullAt = fullRuns.includes(undefined) ? undefined : (fullRuns as string[]).sort()[0];
  const page = { limit, offset, lastFullAt };
  if (units.size === 0) {
    const items = offset === 0 && !cursor ? [{ ...NEVER_READ, since: "" }] : [];
    return { ...page, items, total: 1, nextCursor: null };
  }
  const total = [...units.values()].reduce((sum, { notSeen, notSeenLeftOut }) => sum + notSeen + notSeenLeftOut, 0);
  const found: { key: string; item: NotSeenRecord }[] = [];
  let skip = cursor ? 0 : offset;
  const range = { ...rangeOf(NOT_SEEN), ...(cursor && { after: cursor.after }) };
  if (total > 0) {
    pages: for await (const rows of tables.pages(NotSeenRows, {
      ...range,
      pageSize: Math.min(1000, skip + limit + 1),
    })) {
      for (const row of rows) {
        if (skip-- > 0) continue;
        found.push({ key: row.rowKey, item: withoutKeys(row) });
        if (found.length > limit) break pages;
      }
    }
  }
  const items = found.slice(0, limit);
  const hasMore = found.length > limit;
  return {
    ...page,
    items: items.map(({ item }) => item),
    total,
    nextCursor: hasMore ? encodeCursor({ after: items.at(-1)!.key } satisfies z.infer<typeof Cursor>) : null,
  };
}
