import { encodeTime } from "ulid";
import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, type Range, remove, type Tables } from "../platform/storage/tables.ts";
import type { HistoryStore } from "../settings/retention.ts";
import { ENTRY_PREFIX, Entries, entryKeys, entryPrefix, SYNC, type SyncEntry } from "./record.ts";

/** Maximum number of entries that one purge call deletes: a few seconds of work. */
const PURGE_ROWS = 1000;

/** History of sync records. Entries are written in the transaction of the change that they describe. */
export interface SyncHistory {
  /** Returns the operations that add an entry, for the transaction of the change. */
  entryOperations(entry: SyncEntry): Operation[];
  /**
   * Lists the history of one record, newest first. With a cursor each page takes one request, or two with the maximum limit.
   * @throws {Problem} invalidCursor
   */
  list(recordId: string, request: PageRequest): Promise<Page<SyncEntry>>;
  /** Returns the newest entry of a record. */
  last(recordId: string): Promise<SyncEntry | undefined>;
  /** Lists the entries of all records after the given one, oldest first, for alerts. */
  since(entryId: string | undefined): AsyncGenerator<SyncEntry>;
  /** Returns this history as the retention job reads and purges it. */
  store(): HistoryStore;
}

/** Content of the API's cursor: the row key of the page's last entry, the number of entries up to it, and the total. */
const Cursor = z.object({ after: z.string().max(256), offset: z.int().min(0), total: z.int().min(0).nullable() });

export function createHistory(tables: Tables): SyncHistory {
  const rangeOf = (prefix: string) => ({ partitionKey: SYNC, from: prefix, before: keyEnd(prefix) });

  /**
   * Returns the exact number of entries (null above the counting limit), whether there are at least `offset` entries
   * (`isOffsetValid`), and the row key before the entry at `offset`.
   */
  async function count(range: Range, offset = 0) {
    let total = 0;
    let before: string | undefined;
    for await (const rows of tables.pages(Entries, { ...range, select: [] })) {
      if (total < offset) before = rows[Math.min(offset - total, rows.length) - 1]!.rowKey;
      total += rows.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, isOffsetValid: total >= offset, before };
  }

  /** Returns the first entries of a range. */
  async function readFirst(range: Range, limit: number) {
    const entries: (SyncEntry & { rowKey: string })[] = [];
    for await (const rows of tables.pages(Entries, { ...range, pageSize: Math.min(limit, 1000) })) {
      entries.push(...rows);
      if (entries.length >= limit) break;
    }
    return entries.slice(0, limit);
  }

  return {
    entryOperations: (entry) => entryKeys(entry).map((key) => put(Entries, key, entry)),

    async list(recordId, { limit, offset: requestedOffset, cursor: text }) {
      const range = rangeOf(entryPrefix(recordId));
      const cursor = text === undefined ? undefined : decodeCursor(Cursor, text);
      const countResult = cursor ? undefined : await count(range, requestedOffset);
      const total = cursor ? cursor.total : countResult!.total;
      const offset = cursor?.offset ?? requestedOffset;
      const after = cursor?.after ?? countResult?.before;
      // One more than the page, to know whether there is a next page.
      const rows =
        countResult?.isOffsetValid === false
          ? []
          : await readFirst({ ...range, ...(after !== undefined && { after }) }, limit + 1);
      const items = rows.slice(0, limit);
      const next = { after: items.at(-1)?.rowKey ?? "", offset: offset + items.length, total };
      return {
        items,
        ...countOf(total),
        limit,
        offset,
        nextCursor: rows.length > limit ? encodeCursor(next satisfies z.infer<typeof Cursor>) : null,
      };
    },

    last: async (recordId) => (await readFirst(rangeOf(entryPrefix(recordId)), 1))[0],

    async *since(entryId) {
      const after = entryId === undefined ? {} : { after: ENTRY_PREFIX + entryId };
      for await (const rows of tables.pages(Entries, { ...rangeOf(ENTRY_PREFIX), ...after })) yield* rows;
    },

    store: () => ({
      type: "sync",

      async stats() {
        const { total } = await count(rangeOf(ENTRY_PREFIX));
        return { ...countOf(total), oldest: (await readFirst(rangeOf(ENTRY_PREFIX), 1))[0]?.at ?? null };
      },

      async purge({ retentionDays, before }) {
        const end = ENTRY_PREFIX + encodeTime(Math.max(0, before.getTime()));
        const old = await readFirst({ ...rangeOf(ENTRY_PREFIX), before: end }, PURGE_ROWS);
        // Each entry has two rows: 0 is the key by record, 1 the key by time. The rows by time are deleted last, so that the
        // next purge finds them again after a crash.
        for (const keyIndex of [0, 1] as const) {
          const keys = old.map((entry) => remove(Entries, entryKeys(entry)[keyIndex]));
          await tables.write(Entries.table, SYNC, keys);
        }
        return { removed: old.length, retentionDays, more: old.length === PURGE_ROWS };
      },
    }),
  };
}

const countOf = (total: number | null) => (total === null ? { total, totalAtLeast: MAX_COUNTED } : { total });
