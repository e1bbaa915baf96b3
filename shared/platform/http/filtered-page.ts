import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "./paging.ts";
import { Problem } from "./problem.ts";

/** Pages of 1,000 rows that one call looks through, and so what a filter without an index costs at most. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;

const Cursor = z.object({
  /** Of the filters it belongs to. */
  f: z.string(),
  /** The last row that was looked at. */
  k: z.string().max(1024),
  /** How many matches of the offset are still to be skipped, where a call ended before. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/** What is asked for, beside the page. */
interface Filtered<R> {
  /** Tells these filters from others: a cursor belongs to one of them. */
  filters: string;
  /** What the range does not serve; undefined when it serves all of the filter, and no row is looked through in vain. */
  matches: ((row: R) => boolean) | undefined;
  /** The rows of the range, in its order, page by page. @param after - Those behind this row key alone. */
  pages(range: { pageSize: number; after?: string }): AsyncIterable<R[]>;
  /** How many match in all, where that is known without counting. */
  total?: number | undefined;
}

/**
 * The rows of one range that match a filter. A cursor goes on behind the last row that was looked at, so a walk sees each row
 * once; one call looks through at most ten pages of 1,000.
 *
 * @throws {Problem} invalidCursor for a cursor of other filters.
 */
export async function filteredPage<R extends { rowKey: string }>(
  request: PageRequest,
  { filters, matches, pages, total }: Filtered<R>,
): Promise<Page<R>> {
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor && cursor.f !== filters) {
    throw new Problem(
      "invalidCursor",
      "This cursor belongs to other filters. Send the same filters with it, or start without it.",
    );
  }
  const skip = cursor ? cursor.s : request.offset;
  const items: R[] = [];
  let [matched, looked, last] = [0, 0, cursor?.k];
  let [more, cut] = [false, false];
  const pageSize = matches ? PAGE_ROWS : Math.min(PAGE_ROWS, skip + request.limit + 1);
  walk: for await (const rows of pages({ pageSize, ...(cursor && { after: cursor.k }) })) {
    for (const row of rows) {
      if (!matches || matches(row)) {
        if (matched >= skip + request.limit) {
          more = true;
          // All that match are counted where they are looked through anyway.
          if (!matches || cursor) break walk;
        } else if (matched >= skip) items.push(row);
        matched++;
      }
      if (!more) last = row.rowKey;
    }
    looked++;
    cut = matches !== undefined && looked >= MAX_SCANNED_PAGES && rows.length > 0;
    if (cut) break;
  }
  const isWhole = !cursor && !cut && (matches !== undefined || !more);
  return {
    items,
    ...(total !== undefined
      ? { total }
      : isWhole
        ? { total: matched }
        : { total: null, totalAtLeast: matched + (more ? 1 : 0) }),
    limit: request.limit,
    offset: request.offset,
    nextCursor:
      (more || cut) && last !== undefined
        ? encodeCursor({ f: filters, k: last, s: Math.max(0, skip - matched) } satisfies z.infer<typeof Cursor>)
        : null,
  };
}
