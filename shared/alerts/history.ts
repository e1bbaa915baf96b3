import { encodeTime } from "ulid";
import * as z from "zod";
import { fingerprint } from "../inventory/asset.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { put, RowExists, RowMissing, remove, type Tables } from "../platform/storage/tables.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import type { HistoryStats, HistoryStore } from "../settings/retention.ts";
import {
  DELIVERY_ROW,
  DELIVERY_STATUSES,
  Deliveries,
  type DeliveryRecord,
  type DeliveryStatus,
  DeliverySummary,
  itemsIn,
  LISTED_ITEMS,
} from "./delivery.ts";

/** The alert history: deliveries, and lists of them by rule and status. */

/**
 * A list entry of a delivery. One row per combination of filters: all, by status, by rule, by rule and status; and one row in
 * ascending order of time.
 */
export const HistoryRow = entity("AlertHistory", DeliverySummary);
const HISTORY = "history";

/** Filters of a list of deliveries. An omitted member matches all. */
export interface HistoryFilter {
  start?: Date | undefined;
  /** Exclusive. */
  end?: Date | undefined;
  status?: DeliveryStatus | undefined;
  ruleId?: string | undefined;
}

/**
 * Returns the key prefix of the list for a filter: `a|` all, `s|` by status, `r|` by rule, `b|` by both. The rest of a key is
 * the delivery's id, inverted by `newestFirst`, so that later deliveries sort before earlier ones.
 */
const prefixOf = ({ status, ruleId }: HistoryFilter): string =>
  ruleId === undefined
    ? status === undefined
      ? "a|"
      : `s|${status}|`
    : status === undefined
      ? `r|${ruleId}|`
      : `b|${ruleId}|${status}|`;

/** The list in ascending order of time, for the oldest entry and for purging. */
const OLDEST_FIRST = "o|";

/** Returns the keys of all list entries of a delivery. */
const keysOf = (ruleId: string, deliveryId: string, status: DeliveryStatus): string[] => [
  ...[{}, { status }, { ruleId }, { ruleId, status }].map((filter) => prefixOf(filter) + newestFirst(deliveryId)),
  OLDEST_FIRST + deliveryId,
];

/** Returns the key after all deliveries that were created at this time or later. An id is its time and 16 random characters. */
const endOfInstant = (time: Date): string =>
  keyEnd(newestFirst(encodeTime(Math.max(0, time.getTime())) + "0".repeat(16)));
/** Returns the first key of deliveries that were created before this time. */
const startBefore = (time: Date): string => newestFirst(encodeTime(Math.max(0, time.getTime() - 1)) + "Z".repeat(16));

/** The position after a page. `filter` identifies the filters; `total` is the count that was made for the first page. */
const Cursor = z.object({
  filter: z.string(),
  after: z.string().max(256),
  offset: z.int().min(0),
  total: z.int().min(0).nullable(),
});

/** Maximum number of deliveries that are counted by status: one page. */
const MAX_COUNTED_SINCE = 1000;
/** Maximum number of deliveries that one purge removes, a few seconds of work. */
const PURGE_ROWS = 1000;
/** Number of deliveries that are removed in parallel. */
const PURGE_PARALLEL = 8;

/** Deliveries and their lists. */
export interface History {
  /**
   * Writes the list entries of a delivery and removes those of its former status, in one transaction unless the delivery was
   * held (a restore of the store set it to `inDoubt`). Idempotent.
   */
  updateLists(delivery: DeliveryRecord): Promise<void>;
  /** Adds a new delivery and its list entries. If the delivery exists, only writes its list entries again. */
  record(delivery: DeliveryRecord): Promise<void>;
  /** Returns a delivery. Undefined for an unknown or invalid id. */
  get(deliveryId: string): Promise<Row<DeliveryRecord> | undefined>;
  /**
   * Returns one page, newest first. One request per page with a cursor, for all filters.
   *
   * @throws {Problem} invalidCursor
   */
  list(filter: HistoryFilter, request: PageRequest): Promise<Page<DeliverySummary>>;
  /** Returns the number of deliveries per status since a time, without tests. Counts at most the newest 1,000. One request. */
  countsSince(since: Date): Promise<Record<DeliveryStatus, number>>;
  /** Returns the ids of pending deliveries whose next step was due before this time: their queue message was probably lost. */
  overdue(before: Date): Promise<string[]>;
  /** Returns the history as a store whose entries the retention settings purge. */
  store(): HistoryStore;
}

/** Creates the alert history: lists, filters and purges the summaries of deliveries. */
export function createHistory(tables: Tables): History {
  const rangeOf = (filter: HistoryFilter) => {
    const prefix = prefixOf(filter);
    return {
      partitionKey: HISTORY,
      from: prefix + (filter.end ? startBefore(filter.end) : ""),
      before: filter.start ? prefix + endOfInstant(filter.start) : keyEnd(prefix),
    };
  };

  return {
    async updateLists(delivery) {
      // A list entry contains only the first of the delivery's items (`news`).
      const { news: _, ...members } = delivery;
      const row: DeliverySummary = { ...members, firstNews: itemsIn(delivery).slice(0, LISTED_ITEMS) };
      const { ruleId, deliveryId, status } = delivery;
      const entries = keysOf(ruleId, deliveryId, status).map((key) => put(HistoryRow, key, row));
      // A delivery changes from `pending` to a final status. One that was held after a restore (`heldAt`) was `inDoubt` in
      // between, and can be `pending` again. `stale` are its entries under the former statuses.
      const formerStatuses = delivery.heldAt === undefined ? (["pending"] as const) : (["pending", "inDoubt"] as const);
      const stale = formerStatuses
        .filter((former) => former !== status)
        .flatMap((former) => keysOf(ruleId, deliveryId, former))
        // The keys without a status are the same for each status.
        .filter((key, index, keys) => keys.indexOf(key) === index && !entries.some(({ rowKey }) => rowKey === key))
        .map((key) => remove(HistoryRow, key));
      // Writes without a transaction, which would fail for a missing row: a held delivery may lack some stale entries.
      if (delivery.heldAt !== undefined) return await tables.write(HistoryRow.table, HISTORY, [...entries, ...stale]);
      try {
        await tables.transaction(HistoryRow.table, HISTORY, [...entries, ...stale]);
      } catch (error) {
        // An earlier attempt already removed the pending entries.
        if (!(error instanceof RowMissing)) throw error;
        await tables.transaction(HistoryRow.table, HISTORY, entries);
      }
    },

    async record(delivery) {
      try {
        await tables.insert(Deliveries, delivery.deliveryId, DELIVERY_ROW, delivery);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
        const existing = await tables.get(Deliveries, delivery.deliveryId, DELIVERY_ROW);
        if (existing) await this.updateLists(withoutKeys(existing));
        return;
      }
      await this.updateLists(delivery);
    },

    get: (deliveryId) =>
      isUlid(deliveryId) ? tables.get(Deliveries, deliveryId, DELIVERY_ROW) : Promise.resolve(undefined),

    async list(filter, request) {
      const filterFingerprint = fingerprint([filter.start, filter.end, filter.status, filter.ruleId]);
      const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
      if (cursor && cursor.filter !== filterFingerprint) {
        throw new Problem(
          "invalidCursor",
          "This cursor belongs to other filters. Send it with the same filters, or start without a cursor.",
        );
      }
      const range = rangeOf(filter);
      const offset = cursor?.offset ?? request.offset;
      let after = cursor?.after;
      let total = cursor?.total;
      if (cursor === undefined) {
        const counted = await count(range, request.offset);
        total = counted.total;
        after = counted.rowBeforePage;
        if (!counted.reachesOffset)
          return { ...countOf(total), items: [], limit: request.limit, offset, nextCursor: null };
      }
      const rows: (DeliverySummary & { rowKey: string })[] = [];
      const pageSize = Math.min(request.limit + 1, 1000);
      for await (const page of tables.pages(HistoryRow, { ...range, ...(after ? { after } : {}), pageSize })) {
        rows.push(...page);
        if (rows.length > request.limit) break;
      }
      const items = rows.slice(0, request.limit);
      return {
        items,
        ...countOf(total ?? null),
        limit: request.limit,
        offset,
        nextCursor:
          rows.length > request.limit
            ? encodeCursor({
                filter: filterFingerprint,
                after: items.at(-1)!.rowKey,
                offset: offset + items.length,
                total: total ?? null,
              } satisfies z.infer<typeof Cursor>)
            : null,
      };
    },

    async countsSince(since) {
      const counts = Object.fromEntries(DELIVERY_STATUSES.map((status) => [status, 0])) as Record<
        DeliveryStatus,
        number
      >;
      const range = { ...rangeOf({ start: since }), pageSize: MAX_COUNTED_SINCE, select: ["status", "test"] as const };
      let read = 0;
      for await (const rows of tables.pages(HistoryRow, range)) {
        for (const { status, test } of rows) if (!test) counts[status]++;
        read += rows.length;
        if (read >= MAX_COUNTED_SINCE) break;
      }
      return counts;
    },

    async overdue(before) {
      const deliveryIds: string[] = [];
      const select = ["deliveryId" as const, "nextAt" as const];
      const range = { ...rangeOf({ status: "pending" }), select, onCorrupt: "leaveOut" as const };
      for await (const rows of tables.pages(HistoryRow, range))
        for (const row of rows) if (row.nextAt < before.toISOString()) deliveryIds.push(row.deliveryId);
      return deliveryIds;
    },

    store() {
      return {
        type: "alerts",
        async stats(): Promise<HistoryStats> {
          const { total } = await count(rangeOf({}), 0);
          return { ...countOf(total), oldest: (await oldest(1))[0]?.createdAt ?? null };
        },
        async purge({ retentionDays, before }, _caller: Caller) {
          const rows = await oldest(PURGE_ROWS, before);
          for (let start = 0; start < rows.length; start += PURGE_PARALLEL)
            await Promise.all(rows.slice(start, start + PURGE_PARALLEL).map(purgeOne));
          return { removed: rows.length, retentionDays, more: rows.length === PURGE_ROWS };
        },
      };
    },
  };

  type Purgeable = Pick<DeliverySummary, "deliveryId" | "ruleId" | "status" | "createdAt">;

  /** Removes the list entries last, so that an interrupted purge finds the delivery again. */
  async function purgeOne({ ruleId, deliveryId, status }: Purgeable): Promise<void> {
    await tables.remove(Deliveries, deliveryId, DELIVERY_ROW);
    const keys = keysOf(ruleId, deliveryId, status);
    await tables.write(
      HistoryRow.table,
      HISTORY,
      keys.map((key) => remove(HistoryRow, key)),
    );
  }

  /** Returns the oldest deliveries, with `before` only those that were created before that time. */
  async function oldest(limit: number, before?: Date): Promise<Purgeable[]> {
    const rows: Purgeable[] = [];
    const end = before ? OLDEST_FIRST + encodeTime(Math.max(0, before.getTime())) : keyEnd(OLDEST_FIRST);
    const range = { partitionKey: HISTORY, from: OLDEST_FIRST, before: end, pageSize: Math.min(1000, limit) };
    const select = ["deliveryId", "ruleId", "status", "createdAt"] as const;
    for await (const page of tables.pages(HistoryRow, { ...range, select: [...select], onCorrupt: "leaveOut" })) {
      rows.push(...page);
      if (rows.length >= limit) break;
    }
    return rows.slice(0, limit);
  }

  /** Returns the number of rows (null above `MAX_COUNTED`), and the key of the row before the page at `offset`. */
  async function count(range: ReturnType<typeof rangeOf>, offset: number) {
    let rowBeforePage: string | undefined;
    let total = 0;
    for await (const page of tables.pages(HistoryRow, { ...range, select: [] })) {
      if (total < offset) rowBeforePage = page[Math.min(offset - total, page.length) - 1]!.rowKey;
      total += page.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, reachesOffset: total >= offset, rowBeforePage };
  }
}

const countOf = (total: number | null) => (total === null ? { total, totalAtLeast: MAX_COUNTED } : { total });
