import * as z from "zod";
import { DAY_MS } from "../time.ts";
import { isWellFormed } from "./parse-request.ts";
import { Problem } from "./problem.ts";
import { wholeNumber } from "./whole-number.ts";

/** Bounds of the list parameters. */
export const MAX_LIMIT = 1000;
export const DEFAULT_LIMIT = 100;
export const MAX_OFFSET = 10_000;
/** Maximum exact count of events. Beyond this number `total` is null and `totalAtLeast` is this number. */
export const MAX_COUNTED = 10_000;

/**
 * Length and characters of a cursor: Base64url, and the dots of a signed cursor. A cursor that fits is never too long for a web
 * server, whose limit of a request line and its headers is at least 8 KiB.
 */
export const MAX_CURSOR_LENGTH = 4096;
const CURSOR = /^[A-Za-z0-9_.-]+$/;

/** Query parameters of every list. */
export const pageParameters = {
  limit: wholeNumber(1, MAX_LIMIT, DEFAULT_LIMIT)
    .optional()
    .meta({ description: `Number of items to return, 1 to ${MAX_LIMIT}. Default: ${DEFAULT_LIMIT}.` }),
  offset: wholeNumber(0, MAX_OFFSET, 0, "; use cursor to read further items")
    .optional()
    .meta({ description: `Number of items to skip, up to ${MAX_OFFSET}. To read all items, use cursor.` }),
  cursor: z
    .string()
    .max(MAX_CURSOR_LENGTH)
    .regex(CURSOR, "must be the nextCursor of the previous response: letters, digits, '-', '_' and '.'")
    .optional()
    .meta({
      description: "The nextCursor of the previous response, with the same filters. Can't be combined with offset.",
    }),
};

/** The query of a list without filters. */
export const PageQuery = z.strictObject(pageParameters);

/** The page of a list that a caller requests. */
export interface PageRequest {
  limit: number;
  offset: number;
  cursor: string | undefined;
}

/**
 * Returns the requested page.
 *
 * @throws {Problem} invalidRequest for an offset together with a cursor.
 */
export function pageRequest(query: { limit?: number; offset?: number; cursor?: string }): PageRequest {
  if (query.cursor !== undefined && query.offset) {
    throw new Problem("invalidRequest", "Send either offset or cursor, not both.", {
      errors: [{ path: "query.offset", message: "can't be combined with cursor" }],
    });
  }
  return { limit: query.limit ?? DEFAULT_LIMIT, offset: query.offset ?? 0, cursor: query.cursor };
}

/** Answer of every list. */
export interface Page<T> {
  items: T[];
  /** Exact total. Null if counting would read too many rows; then `totalAtLeast` is the number seen. */
  total: number | null;
  totalAtLeast?: number;
  limit: number;
  offset: number;
  nextCursor: string | null;
}

/** Returns a page with the view of each item. */
export const pageView = <T, P extends Page<T>, V>(page: P & Page<T>, view: (item: T) => V) => ({
  ...page,
  items: page.items.map((item) => view(item)),
});

/**
 * Returns the schema of a list of `item`s.
 *
 * @param id - Schema id in the OpenAPI document, such as `AlertRuleList`.
 */
export function pageOf<S extends z.ZodType>(item: S, id: string) {
  return z
    .object({
      items: z.array(item),
      total: z
        .int()
        .min(0)
        .nullable()
        .meta({ description: "Total number of items. Null when only a lower bound is known; see `totalAtLeast`." }),
      totalAtLeast: z.int().min(0).optional(),
      limit: z.int(),
      offset: z.int(),
      nextCursor: z.string().nullable().meta({ description: "Cursor of the next page. Null on the last page." }),
    })
    .meta({ id });
}

/** Encodes `state` as an opaque cursor. */
export function encodeCursor(state: unknown): string {
  return Buffer.from(JSON.stringify(state)).toString("base64url");
}

/**
 * Decodes and validates a cursor.
 *
 * @throws {Problem} invalidCursor if the text is not a cursor of this schema.
 */
export function decodeCursor<S extends z.ZodType>(schema: S, cursor: string): z.output<S> {
  try {
    const state: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString("utf8"));
    if (!isWellFormed(state)) throw new TypeError("A filter can't hold half of a surrogate pair.");
    return schema.parse(state);
  } catch {
    throw new Problem(
      "invalidCursor",
      "Send the nextCursor of the previous response, unchanged, with the same filters.",
      {
        errors: [{ path: "query.cursor", message: "is not valid for this request" }],
      },
    );
  }
}

/**
 * Returns a page of a small list that is completely in memory (rules, subscriptions, frameworks), sorted by `keyOf`, which must
 * be unique. The cursor contains the last key, so that concurrent changes of the list neither skip nor repeat items.
 */
export function pageOfAll<T>(all: readonly T[], request: PageRequest, keyOf: (item: T) => string): Page<T> {
  const sorted = [...all].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  const after =
    request.cursor === undefined ? undefined : decodeCursor(z.object({ after: z.string() }), request.cursor).after;
  const rest = after === undefined ? sorted.slice(request.offset) : sorted.filter((item) => keyOf(item) > after);
  const items = rest.slice(0, request.limit);
  const last = items.at(-1);
  return {
    items,
    total: all.length,
    limit: request.limit,
    offset: request.offset,
    nextCursor: last !== undefined && rest.length > items.length ? encodeCursor({ after: keyOf(last) }) : null,
  };
}

/**
 * Rejects an empty period. The end is exclusive, so an end that is not later than its start matches nothing.
 *
 * @param period - The start's parameter, then the end's. Either may be undefined.
 * @throws {Problem} invalidRequest that names the end's parameter
 */
export function requireOrder(period: Record<string, Date | undefined>): void {
  const [[beginName, begin], [endName, end]] = Object.entries(period) as [
    [string, Date | undefined],
    [string, Date | undefined],
  ];
  if (!begin || !end || begin < end) return;
  const message = `must be later than ${beginName}`;
  throw new Problem("invalidRequest", `No item can match: the parameter ${endName} ${message}.`, {
    errors: [{ path: `query.${endName}`, message }],
  });
}

const DATE = /^\d{4}-\d{2}-\d{2}$/;
const DATE_OR_INSTANT = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2}))?$/;
const NOT_AN_INSTANT = "must be a date (2026-11-21) or an instant (2026-11-21T10:00:00Z)";

/**
 * Parses a date or time in a query. A date as the end of a range is the end of that day: the first millisecond after the day,
 * because ranges exclude their end.
 */
export const queryInstant = (role: "start" | "end") =>
  z
    .string()
    .max(40)
    .regex(DATE_OR_INSTANT, NOT_AN_INSTANT)
    .transform((value, context) => {
      const date = new Date(DATE.test(value) ? `${value}T00:00:00Z` : value);
      // A day that a month does not have, such as February 30.
      if (Number.isNaN(date.getTime()) || (DATE.test(value) && !date.toISOString().startsWith(value))) {
        context.addIssue(NOT_AN_INSTANT);
        return z.NEVER;
      }
      return role === "end" && DATE.test(value) ? new Date(date.getTime() + DAY_MS) : date;
    })
    .meta({
      description:
        role === "start"
          ? "Start: a date or time, inclusive (ISO 8601)."
          : "End: before this time, or up to the end of this date (ISO 8601).",
    });
