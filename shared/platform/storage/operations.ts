import { type Columns, check, checkPart, encode } from "./columns.ts";
import type { Entity } from "./entity.ts";

/** One step of a transaction. Built by `insert`, `put`, `replace`, `merge` and `remove`, which check the value. */
export interface Operation {
  readonly kind: "insert" | "put" | "replace" | "merge" | "remove";
  readonly entity: Entity<unknown>;
  readonly rowKey: string;
  readonly columns: Columns;
  /** What the stored row's ETag must be; "*" is any row that exists. Only for replace, merge and remove. */
  readonly etag?: string;
}

/** Adds a row; fails when it exists. */
export const insert = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>): Operation => ({
  kind: "insert",
  entity: e,
  rowKey,
  columns: encode(e.members, check(e, rowKey, value) as object),
});

/** Adds a row, or replaces the one that is there, whatever it is. */
export const put = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>): Operation => ({
  kind: "put",
  entity: e,
  rowKey,
  columns: encode(e.members, check(e, rowKey, value) as object),
});

/** A value, checked and encoded once for all rows that hold it. */
export interface Encoded {
  readonly entity: Entity<unknown>;
  readonly columns: Columns;
}

/** @param name - Says in an error which value is not what its schema wants. */
export const encoded = <T>(e: Entity<T>, name: string, value: NoInfer<T>): Encoded => ({
  entity: e,
  columns: encode(e.members, check(e, name, value) as object),
});

/** As `put`. */
export const putEncoded = ({ entity, columns }: Encoded, rowKey: string): Operation => ({
  kind: "put",
  entity,
  rowKey,
  columns,
});

/** Replaces the row with this ETag; fails when it was changed or is gone. */
export const replace = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>, etag: string): Operation => ({
  kind: "replace",
  entity: e,
  rowKey,
  columns: encode(e.members, check(e, rowKey, value) as object),
  etag,
});

/**
 * Changes only these members of a row that must exist. A merge can't clear a member (the service ignores nulls), so
 * `undefined` and `null` are refused.
 */
export const merge = <T>(e: Entity<T>, rowKey: string, part: Partial<NoInfer<T>>, etag = "*"): Operation => ({
  kind: "merge",
  entity: e,
  rowKey,
  columns: encode(e.members, checkPart(e, rowKey, part as Partial<T>)),
  etag,
});

/** Removes a row that must exist. */
export const remove = (e: Entity<unknown>, rowKey: string, etag = "*"): Operation => ({
  kind: "remove",
  entity: e,
  rowKey,
  columns: {},
  etag,
});
