import * as z from "zod";
import { DAY_MS } from "../time.ts";
import { isWellFormed } from "./input.ts";
import { Problem } from "./problem.ts";

/** Bounds of the list parameters, as the contract says. */
export const MAX_LIMIT = 1000;
export const DEFAULT_LIMIT = 100;
export const MAX_OFFSET = 10_000;
/** Happenings are counted exactly up to here; beyond it `total` is null and `totalAtLeast` says this much. */
export const MAX_COUNTED = 10_000;

const wholeNumber = (minimum: number, maximum: number, left: number, hint = "") =>
  z
    .string()
    .regex(/^\d{1,9}$/, "must be a whole number")
    .transform(Number)
    .pipe(z.number().min(minimum).max(maximum, `must be at most ${maximum}${hint}`))
    .meta({ override: { type: "integer", pattern: undefined, minimum, maximum, default: left } });

/** The query parameters of every list. */
export const pageParameters = {
  limit: wholeNumber(1, MAX_LIMIT, DEFAULT_LIMIT)
    .optional()
    .meta({ description: `Number of items to return, 1 to ${MAX_LIMIT}. Default: ${DEFAULT_LIMIT}.` }),
  offset: wholeNumber(0, MAX_OFFSET, 0, "; use cursor to read further items")
    .optional()
    .meta({ description: `Number of items to skip, up to ${MAX_OFFSET}. To read all items, use cursor.` }),
  cursor: z.string().max(4096).optional().meta({
    description: "The nextCursor of the previous response, with the same filters. Can't be combined with offset.",
  }),
};

/** The query of a list without filters. */
export const PageQuery = z.strictObject(pageParameters);

export interface PageRequest {
  limit: number;
  offset: number;
  cursor: string | undefined;
}

/** The page a query asks for; an offset beside a cursor is refused. */
export function pageRequest(query: { limit?: number; offset?: number; cursor?: string }): PageRequest {
  if (query.cursor !== undefined && query.offset) {
    throw new Problem("invalidRequest", "Send either offset or cursor, not both.", {
      errors: [{ path: "query.offset", message: "can't be combined with cursor" }],
    });
  }
  return { limit: query.limit ?? DEFAULT_LIMIT, offset: query.offset ?? 0, cursor: query.cursor };
}

/** What every list answers. */
export interface Page<T> {
  items: T[];
  /** Exact, or null where counting would cost more the more there is; then `totalAtLeast` says what was seen. */
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

/** The schema of a list of `item`s, named `<Item>List` in the description. */
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

/** An opaque cursor holding `state`; it is checked against its schema when it comes back. */
export function encodeCursor(state: unknown): string {
  return Buffer.from(JSON.stringify(state)).toString("base64url");
}

/** @throws {Problem} invalidCursor when the text is no cursor of that schema. */
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
 * A page of a list that is small and wholly in memory (rules, subscriptions, frameworks), in the order of `keyOf`, which
 * tells its items apart. The cursor holds the last key, so that a change of the list in between skips and repeats nothing.
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
 * Refuses a period that ends where it begins or before, naming the end's parameter. An end is exclusive, so nothing lies in
 * such a period.
 *
 * @param period - The begin's parameter and the end's, in this order; one left out bounds nothing.
 * @throws {Problem} invalidRequest
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
const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/;

/**
 * A date or an instant in a query, as a Date. A date as the end of a range means the end of that day: the first
 * millisecond after it, since ranges exclude their end.
 */
export const queryInstant = (role: "start" | "end") =>
  z
    .string()
    .max(40)
    .transform((value, context) => {
      const date = DATE.test(value)
        ? new Date(`${value}T00:00:00Z`)
        : INSTANT.test(value)
          ? new Date(value)
          : undefined;
      if (!date || Number.isNaN(date.getTime()) || (DATE.test(value) && !date.toISOString().startsWith(value))) {
        context.addIssue("must be a date (2026-11-21) or an instant (2026-11-21T10:00:00Z)");
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
