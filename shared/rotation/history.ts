import { encodeTime } from "ulid";
import * as z from "zod";
import { fingerprint } from "../inventory/asset.ts";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { remove, type Tables } from "../platform/storage/tables.ts";
import type { HistoryStore } from "../settings/retention.ts";
import {
  isOver,
  ROTATIONS,
  RotationEvents,
  type RotationStatus,
  RotationSummaries,
  type RotationSummary,
} from "./rotation.ts";
import { EVENTS_PREFIX, listPrefix, listRange, type RotationRows } from "./rows.ts";
import { isOver as isRunOver, RUNS, runKey, SecretlessRuns } from "./secretless-run.ts";

// The lists of rotations for the API, the events of rotations for alerts, and the purge of old rotations.

/** Filters of the list of rotations. Undefined members filter nothing. */
export interface HistoryFilter {
  status?: RotationStatus | undefined;
  /** Client ID of an application, an asset ID or a resource ID. */
  subject?: string | undefined;
  start?: Date | undefined;
  /** Exclusive. */
  end?: Date | undefined;
}

/**
 * An event for alerts: a rotation ended, needs attention or, with `leftOut`, started but does not write a newly found copy of
 * the old secret. `after` is the position of the event, from which a reader continues.
 */
export type RotationEvent = RotationSummary & { at: string; after: string; leftOut?: boolean | undefined };

/** Maximum number of rotations that one purge call deletes. */
const MAX_PURGED_PER_CALL = 200;

/**
 * Position in a list: fingerprint of the filters, key of the last row that was returned, and the number of rows up to it.
 * `total` is null above `MAX_COUNTED`.
 */
const Cursor = z.object({
  filter: z.string(),
  after: z.string().max(1024),
  offset: z.int().min(0),
  total: z.int().min(0).nullable(),
});

/** Lists current and past rotations and their events, and purges old ones. */
export interface RotationHistory {
  /** Newest first. @throws {Problem} invalidCursor */
  list(filter: HistoryFilter, request: PageRequest): Promise<Page<RotationSummary>>;
  /**
   * Lists events after the position `after`, oldest first: rotations that ended, need attention, or started but skip a newly
   * found copy of the old secret.
   */
  events(after?: string): AsyncGenerator<RotationEvent[]>;
  /** Returns the access to past rotations by which the module `settings` counts them and deletes old ones. */
  store(): HistoryStore;
}

export function createRotationHistory(tables: Tables, rows: RotationRows): RotationHistory {
  /** Deletes the runs that replaced a client secret and ended before a time. They are no entries of this history. */
  async function purgeRuns(before: Date): Promise<void> {
    const newest = encodeTime(Math.max(0, before.getTime() - 1)) + "Z".repeat(16);
    const range = { partitionKey: RUNS, from: runKey(newest), before: keyEnd("r|"), onCorrupt: "leaveOut" as const };
    for await (const page of tables.pages(SecretlessRuns, range)) {
      const old = page.filter(({ status, endedAt }) => isRunOver(status) && Date.parse(endedAt!) < before.getTime());
      const removals = old.map(({ rowKey }) => remove(SecretlessRuns, rowKey));
      await tables.write(SecretlessRuns.table, RUNS, removals);
    }
  }

  /**
   * Counts a list up to `MAX_COUNTED`.
   *
   * @returns `total`: null if it is larger. `rowBeforePage`: key of the row before the page at `offset`; undefined for the first
   * page.
   */
  async function countRotations(range: ReturnType<typeof listRange>, offset: number) {
    let rowBeforePage: string | undefined;
    let total = 0;
    for await (const page of tables.pages(RotationSummaries, { ...range, select: [] })) {
      if (total < offset) rowBeforePage = page[Math.min(offset - total, page.length) - 1]!.rowKey;
      total += page.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, rowBeforePage };
  }

  return {
    async list(filter, request) {
      const filterFingerprint = fingerprint([filter.start, filter.end, filter.status, filter.subject]);
      const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
      if (cursor && cursor.filter !== filterFingerprint) {
        const detail = "This cursor belongs to other filters. Send the same filters with it, or start without it.";
        throw new Problem("invalidCursor", detail);
      }
      const range = listRange(listPrefix(filter), filter);
      // A cursor repeats the total of the first page, so that later pages count nothing.
      const { total, rowBeforePage } = cursor
        ? { total: cursor.total, rowBeforePage: cursor.after }
        : await countRotations(range, request.offset);
      const offset = cursor?.offset ?? request.offset;
      const startsAfterEnd = cursor === undefined && total !== null && total < offset;
      const pageRows: Row<RotationSummary>[] = [];
      const lowerBound = rowBeforePage === undefined ? {} : { after: rowBeforePage };
      const pageSize = Math.min(request.limit + 1, 1000);
      if (!startsAfterEnd) {
        for await (const page of tables.pages(RotationSummaries, { ...range, ...lowerBound, pageSize })) {
          pageRows.push(...page);
          if (pageRows.length > request.limit) break;
        }
      }
      const items = pageRows.slice(0, request.limit);
      const next = {
        filter: filterFingerprint,
        after: items.at(-1)?.rowKey ?? "",
        offset: offset + items.length,
        total,
      };
      return {
        items: items.map(withoutKeys),
        ...totalMembers(total),
        limit: request.limit,
        offset,
        nextCursor: pageRows.length > request.limit ? encodeCursor(next) : null,
      };
    },

    async *events(after) {
      const range = { partitionKey: ROTATIONS, from: EVENTS_PREFIX, before: keyEnd(EVENTS_PREFIX) };
      for await (const page of tables.pages(RotationEvents, { ...range, ...(after !== undefined && { after }) })) {
        yield page.map((row) => ({ ...withoutKeys(row), after: row.rowKey }));
      }
    },

    store() {
      return {
        type: "rotation",

        async stats() {
          const range = listRange(listPrefix({}), {});
          const { total } = await countRotations(range, 0);
          // Lists are sorted newest first, so the last row of the last page is the oldest.
          let oldest: string | null = null;
          for await (const page of tables.pages(RotationSummaries, { ...range, select: ["createdAt"] })) {
            oldest = page.at(-1)?.createdAt ?? oldest;
          }
          return { ...totalMembers(total), oldest };
        },

        async purge({ retentionDays, before }) {
          let removed = 0;
          for await (const page of tables.pages(RotationSummaries, {
            ...listRange(listPrefix({}), { end: before }),
            onCorrupt: "leaveOut",
          })) {
            for (const summary of page) {
              // A rotation that has not ended stays, however old it is.
              if (!isOver(summary.status)) continue;
              if (removed === MAX_PURGED_PER_CALL) return { removed, retentionDays, more: true };
              await rows.deleteRotation(summary);
              removed++;
            }
          }
          const oldEvents = {
            partitionKey: ROTATIONS,
            from: EVENTS_PREFIX,
            before: EVENTS_PREFIX + encodeTime(Math.max(0, before.getTime())),
          };
          for await (const page of tables.pages(RotationEvents, { ...oldEvents, select: [] })) {
            const removals = page.map(({ rowKey }) => remove(RotationEvents, rowKey));
            await tables.write(RotationEvents.table, ROTATIONS, removals);
          }
          await purgeRuns(before);
          return { removed, retentionDays, more: false };
        },
      };
    },
  };
}

const totalMembers = (total: number | null) => (total === null ? { total, totalAtLeast: MAX_COUNTED } : { total });
