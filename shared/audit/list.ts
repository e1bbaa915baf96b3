import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_COUNTED, type Page, type PageRequest } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import type { Tables } from "../storage/tables.ts";
import { canonicalJson, sha256 } from "./canonical.ts";
import { type AuditEntry, entryFrom } from "./entry.ts";
import { type EntryFilter, INDEX_PARTITION, IndexRow, indexPrefix, indexRange } from "./rows.ts";

/** Entries in `start <= instant < end`; every member narrows, none is everything. */
export interface AuditQuery extends EntryFilter {
  start?: Date | undefined;
  end?: Date | undefined;
}

/** Where a page ended, with what was counted on the first one: later pages don't count again. */
const Cursor = z.object({
  query: z.string(),
  after: z.string(),
  offset: z.int(),
  total: z.int().nullable(),
});

/** Names a query, so that a cursor is refused beside other filters. */
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

/**
 * One page of the index, newest first. With a cursor it costs one request (two for 1,000 entries), on every page and with
 * every filter; without one up to eleven more, which count to 10,000.
 */
export async function listEntries(tables: Tables, query: AuditQuery, request: PageRequest): Promise<Page<AuditEntry>> {
  const range = {
    partitionKey: INDEX_PARTITION,
    ...indexRange(indexPrefix(query), query.start?.getTime(), query.end?.getTime()),
  };

  async function read(after: string | undefined) {
    const rows: { rowKey: string; entry: string }[] = [];
    const pageSize = Math.min(request.limit + 1, 1000);
    for await (const page of tables.pages(IndexRow, {
      ...range,
      ...(after === undefined ? {} : { after }),
      pageSize,
    })) {
      rows.push(...page);
      if (rows.length > request.limit) break;
    }
    return { rows: rows.slice(0, request.limit), more: rows.length > request.limit };
  }

  /** Counts what follows `after`, on from `counted`, until one more than is told exactly; and finds the row at `offset`. */
  async function count(after: string | undefined, counted: number) {
    let before: string | undefined;
    let total = counted;
    const pages = tables.pages(IndexRow, { ...range, ...(after === undefined ? {} : { after }), select: [] });
    for await (const page of pages) {
      if (total < request.offset) before = page[Math.min(request.offset - total, page.length) - 1]!.rowKey;
      total += page.length;
      if (total > MAX_COUNTED) break;
    }
    return { total: total > MAX_COUNTED ? null : total, reached: total >= request.offset, before };
  }

  const answer = (found: Awaited<ReturnType<typeof read>>, offset: number, total: number | null): Page<AuditEntry> => {
    const last = found.rows.at(-1);
    const state = { query: queryName(query), after: last?.rowKey ?? "", offset: offset + found.rows.length, total };
    return {
      items: found.rows.map((row) => entryFrom(row.entry)),
      total,
      ...(total === null ? { totalAtLeast: MAX_COUNTED } : {}),
      limit: request.limit,
      offset,
      nextCursor: found.more ? encodeCursor(state satisfies z.infer<typeof Cursor>) : null,
    };
  };

  if (request.cursor !== undefined) {
    const cursor = decodeCursor(Cursor, request.cursor);
    refuseOtherQuery(cursor.query, query);
    return answer(await read(cursor.after), cursor.offset, cursor.total);
  }
  if (request.offset === 0) {
    const found = await read(undefined);
    const { total } = found.more
      ? await count(found.rows.at(-1)!.rowKey, found.rows.length)
      : { total: found.rows.length };
    return answer(found, 0, total);
  }
  const { total, reached, before } = await count(undefined, 0);
  const found = reached ? await read(before) : { rows: [], more: false };
  return answer(found, request.offset, total);
}
