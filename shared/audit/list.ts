import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { canonicalJson, sha256 } from "./canonical.ts";
import type { Finding } from "./chain/findings.ts";
import type { AuditEntry } from "./entry.ts";
import { type IndexedRow, readIndexed } from "./read-indexed.ts";
import { readRows } from "./read-rows.ts";
import { type EntryFilter, INDEX_PARTITION, IndexRow, indexPrefix, indexRange } from "./rows.ts";
import type { Span } from "./span.ts";

/** Lists of the audit log, in pages. The index has the order of the entries for each combination of filters. */

/** A query of entries in `start <= occurredAt < end`. Each member narrows it; without members it matches all entries. */
export interface AuditQuery extends EntryFilter {
  start?: Date | undefined;
  end?: Date | undefined;
  /** Text that the entries contain. Only lists use it (search.ts). */
  search?: string | undefined;
}

/** The position after a page. `total` is the count that was made for the first page: later pages don't count again. */
const Cursor = z.object({
  query: z.string(),
  after: z.string(),
  offset: z.int().min(0),
  total: z.int().min(0).nullable(),
});

/** Identifies a query, so that a cursor is rejected with other filters. */
export const queryName = ({ start, end, actor, eventType, search }: AuditQuery): string =>
  sha256(canonicalJson([start, end, actor?.toLowerCase(), eventType, ...(search === undefined ? [] : [search])])).slice(
    0,
    16,
  );

/** Checks that a cursor belongs to a query. @throws {Problem} invalidCursor */
export function rejectOtherQuery(name: string, query: AuditQuery): void {
  if (name === queryName(query)) return;
  throw new Problem(
    "invalidCursor",
    "This cursor belongs to other filters. Send it with those filters, or send no cursor to start from the beginning.",
    {
      errors: [{ path: "query.cursor", message: "belongs to other filters" }],
    },
  );
}

/** A page of the log. */
export interface AuditPage extends Page<AuditEntry> {
  /** Rows of the index on this page without a matching entry. Absent if there are none. */
  findings?: Finding[];
}

/**
 * Returns one page, newest first. The index selects the entries, the primary rows give their content. An index row without a
 * matching entry is reported as a finding, as is an entry that was changed or that this service did not write. Entries outside of
 * the log's span are left out. Verification checks that no index rows are missing.
 *
 * With a cursor it costs one request of the index (two for 1,000 entries) and the requests of `readIndexed`, on every page and
 * with every filter. Without a cursor it costs up to eleven more requests, which count up to 10,000 entries.
 */
export async function listEntries(
  tables: Tables,
  span: Span,
  query: AuditQuery,
  request: PageRequest,
): Promise<AuditPage> {
  const prefix = indexPrefix(query);
  const start = Math.max(query.start?.getTime() ?? 0, span.from ?? 0);
  const end = Math.min(query.end?.getTime() ?? span.to, span.to);
  const range = { partitionKey: INDEX_PARTITION, ...indexRange(prefix, start, end) };

  /** Reads the index rows of a page, after the row key `after`. */
  async function readPage(after: string | undefined) {
    const rows: IndexedRow[] = [];
    const pageSize = Math.min(request.limit + 1, 1000);
    for await (const page of readRows(tables, IndexRow, {
      ...range,
      ...(after !== undefined && { after }),
      pageSize,
    })) {
      for (const { rowKey, value } of page) rows.push({ rowKey, position: rowKey.slice(prefix.length), value });
      if (rows.length > request.limit) break;
    }
    return { rows: rows.slice(0, request.limit), more: rows.length > request.limit };
  }

  /**
   * Counts the entries after the row key `after`, in addition to `counted` entries before it. Stops when the total exceeds the
   * largest exact total. Also finds the row directly before the requested offset (`beforeOffset`), after which the page starts.
   */
  async function count(after: string | undefined, counted: number) {
    let beforeOffset: string | undefined;
    let total = counted;
    const pages = tables.pages(IndexRow, { ...range, ...(after !== undefined && { after }), select: [] });
    for await (const page of pages) {
      // If the offset is beyond this page, this is the page's last row, which the next page replaces.
      if (total < request.offset) beforeOffset = page[Math.min(request.offset - total, page.length) - 1]!.rowKey;
      total += page.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, reachesOffset: total >= request.offset, beforeOffset };
  }

  /** Returns the response for the index rows of a page. */
  async function responseOf(
    page: Awaited<ReturnType<typeof readPage>>,
    offset: number,
    total: number | null,
  ): Promise<AuditPage> {
    const lastRow = page.rows.at(-1);
    const state = { query: queryName(query), after: lastRow?.rowKey ?? "", offset: offset + page.rows.length, total };
    const { items, findings } = await readIndexed(tables, page.rows, span.isAuthentic);
    return {
      items,
      total,
      ...(total === null && { totalAtLeast: MAX_COUNTED }),
      limit: request.limit,
      offset,
      nextCursor: page.more ? encodeCursor(state satisfies z.infer<typeof Cursor>) : null,
      ...(findings.length > 0 && { findings }),
    };
  }

  if (request.cursor !== undefined) {
    const cursor = decodeCursor(Cursor, request.cursor);
    rejectOtherQuery(cursor.query, query);
    return await responseOf(await readPage(cursor.after), cursor.offset, cursor.total);
  }
  if (request.offset === 0) {
    const page = await readPage(undefined);
    const { total } = page.more ? await count(page.rows.at(-1)!.rowKey, page.rows.length) : { total: page.rows.length };
    return await responseOf(page, 0, total);
  }
  const { total, reachesOffset, beforeOffset } = await count(undefined, 0);
  const page = reachesOffset ? await readPage(beforeOffset) : { rows: [], more: false };
  return await responseOf(page, request.offset, total);
}
