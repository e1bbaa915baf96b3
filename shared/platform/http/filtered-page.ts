import * as z from "zod";
import { decodeCursor, encodeCursor, MAX_OFFSET, type Page, type PageRequest } from "./paging.ts";
import { Problem } from "./problem.ts";

/** Maximum pages of 1,000 rows that one call reads, which limits the cost of a filter without an index. */
const MAX_SCANNED_PAGES = 10;
const PAGE_ROWS = 1000;

const Cursor = z.object({
  /** Fingerprint of the filters that the cursor belongs to. */
  f: z.string(),
  /** Row key of the last row read. */
  k: z.string().max(1024),
  /** Matches of the offset that remain to be skipped, if an earlier call stopped at its limit. */
  s: z.int().min(0).max(MAX_OFFSET).default(0),
});

/** The range and the filter of a list. The requested page is a separate parameter. */
interface Filtered<R> {
  /** Identifies the filters. A cursor is valid only for the same filters. */
  filters: string;
  /**
   * The part of the filter that the range does not cover. Undefined if the range covers the whole filter, so that every row
   * matches.
   */
  matches: ((row: R) => boolean) | undefined;
  /**
   * Reads the rows of the range in order, page by page.
   *
   * @param after - Exclusive lower bound of the row keys.
   */
  pages(range: { pageSize: number; after?: string }): AsyncIterable<R[]>;
  /** Total number of matches, if known without counting. */
  total?: number | undefined;
}

/**
 * Returns a page of the rows of a range that match a filter. A cursor continues after the last row read, so that paging reads
 * each row once. One call reads at most ten pages of 1,000 rows.
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
  let [matched, pagesRead, last] = [0, 0, cursor?.k];
  let [more, stoppedEarly] = [false, false];
  const pageSize = matches ? PAGE_ROWS : Math.min(PAGE_ROWS, skip + request.limit + 1);
  scan: for await (const rows of pages({ pageSize, ...(cursor && { after: cursor.k }) })) {
    for (const row of rows) {
      if (!matches || matches(row)) {
        if (matched >= skip + request.limit) {
          more = true;
          // The first page of a filtered list counts on, for its total. Later pages and unfiltered lists stop here.
          if (!matches || cursor) break scan;
        } else if (matched >= skip) items.push(row);
        matched++;
      }
      // The next page starts after the last row before the first match that did not fit.
      if (!more) last = row.rowKey;
    }
    pagesRead++;
    stoppedEarly = matches !== undefined && pagesRead >= MAX_SCANNED_PAGES && rows.length > 0;
    if (stoppedEarly) break;
  }
  const isWhole = !cursor && !stoppedEarly && (matches !== undefined || !more);
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
      (more || stoppedEarly) && last !== undefined
        ? encodeCursor({ f: filters, k: last, s: Math.max(0, skip - matched) } satisfies z.infer<typeof Cursor>)
        : null,
  };
}
