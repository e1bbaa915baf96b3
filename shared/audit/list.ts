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

/** A query of entries in `start <= instant < end`. Each member narrows it; without members it matches all entries. */
export interface AuditQuery extends EntryFilter {
  start?: Date | undefined;
  end?: Date | undefined;
}

/** The position after a page, with the count of the first page: later pages don't count again. */
const Cursor = z.object({
  query: z.string(),
  after: z.string(),
  offset: z.int(),
  total: z.int().nullable(),
});

/** Identifies a query, so that a cursor is rejected with other filters. */
export const queryName = ({ start, end, actor, eventType }: AuditQuery): string =>
  sha256(canonicalJson([start, end, actor?.toLowerCase(), eventType])).slice(0, 16);

/** @throws {Problem} invalidCursor */
export function refuseOtherQuery(name: string, query: AuditQuery): void {
  if (name === queryName(query)) return;
  throw new Problem(
    "invalidCursor",
    "This cursor belongs to other filters. Send it with those, or start without one.",
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
 * matching entry is reported as a finding. Verification checks that no index rows are missing.
 *
 * With a cursor it costs one request of the index (two for 1,000 entries) and the requests of `readIndexed`, on every page and
 * with every filter. Without a cursor it costs up to eleven more requests, which count up to 10,000 entries.
 */
export async function listEntries(tables: Tables, query: AuditQuery, request: PageRequest): Promise<AuditPage> {
  const prefix = indexPrefix(query);
  const range = {
    partitionKey: INDEX_PARTITION,
    ...indexRange(prefix, query.start?.getTime(), query.end?.getTime()),
  };

  async function read(after: string | undefined) {
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
   * Counts the entries after `after`, starting from `counted`, up to one more than the largest exact total. Also finds the row
   * at `offset`.
   */
  async function count(after: string | undefined, counted: number) {
    let before: string | undefined;
    let total = counted;
    const pages = tables.pages(IndexRow, { ...range, ...(after !== undefined && { after }), select: [] });
    for await (const page of pages) {
      if (total < request.offset) before = page[Math.min(request.offset - total, page.length) - 1]!.rowKey;
      total += page.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, reached: total >= request.offset, before };
  }

  async function answer(
    found: Awaited<ReturnType<typeof read>>,
    offset: number,
    total: number | null,
  ): Promise<AuditPage> {
    const last = found.rows.at(-1);
    const state = { query: queryName(query), after: last?.rowKey ?? "", offset: offset + found.rows.length, total };
    const { items, findings } = await readIndexed(tables, found.rows);
    return {
      items,
      total,
      ...(total === null && { totalAtLeast: MAX_COUNTED }),
      limit: request.limit,
      offset,
      nextCursor: found.more ? encodeCursor(state satisfies z.infer<typeof Cursor>) : null,
      ...(findings.length > 0 && { findings }),
    };
  }

  if (request.cursor !== undefined) {
    const cursor = decodeCursor(Cursor, request.cursor);
    refuseOtherQuery(cursor.query, query);
    return await answer(await read(cursor.after), cursor.offset, cursor.total);
  }
  if (request.offset === 0) {
    const found = await read(undefined);
    const { total } = found.more
      ? await count(found.rows.at(-1)!.rowKey, found.rows.length)
      : { total: found.rows.length };
    return await answer(found, 0, total);
  }
  const { total, reached, before } = await count(undefined, 0);
  const found = reached ? await read(before) : { rows: [], more: false };
  return await answer(found, request.offset, total);
}
