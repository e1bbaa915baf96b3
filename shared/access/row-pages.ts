import * as z from "zod";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../platform/http/paging.ts";
import type { Entity, Row } from "../platform/storage/entity.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { USERS_PARTITION } from "./user.ts";

const Position = z.object({ after: z.string().min(1).max(1024) });

/** Rows of the users' partition with `from` <= row key < `before`. `select` limits the members that are read. */
interface KeyRange<K extends string> {
  from?: string;
  before: string;
  select: readonly K[];
}

/**
 * Returns a page of a range in the order of its keys. `total` is exact if this call read the whole range; otherwise it is null,
 * and `totalAtLeast` is set.
 *
 * @throws {Problem} invalidCursor
 */
export async function pageOfRows<T, K extends keyof T & string>(
  tables: Pick<Tables, "pages">,
  entity: Entity<T>,
  range: KeyRange<K>,
  { limit, offset, cursor }: PageRequest,
): Promise<Page<Row<Pick<T, K>>>> {
  const afterKey = cursor === undefined ? undefined : decodeCursor(Position, cursor).after;
  const neededRows = offset + limit + 1;
  const rows: Row<Pick<T, K>>[] = [];
  const keys = { partitionKey: USERS_PARTITION, ...range, ...(afterKey && { after: afterKey }) };
  for await (const page of tables.pages(entity, { ...keys, pageSize: Math.min(1000, neededRows) })) {
    rows.push(...page);
    if (rows.length >= neededRows) break;
  }
  const items = rows.slice(offset, offset + limit);
  const hasMore = rows.length >= neededRows;
  const totals =
    hasMore || afterKey !== undefined ? { total: null, totalAtLeast: rows.length } : { total: rows.length };
  const nextCursor = hasMore ? encodeCursor({ after: items.at(-1)!.rowKey }) : null;
  return { items, ...totals, limit, offset, nextCursor };
}
