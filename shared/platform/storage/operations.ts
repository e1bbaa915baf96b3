import { type Columns, encode, validate, validatePart } from "./columns.ts";
import type { Entity } from "./entity.ts";

/** One operation of a transaction. Created by `insert`, `put`, `replace`, `merge` and `remove`, which validate the value. */
export interface Operation {
  readonly kind: "insert" | "put" | "replace" | "merge" | "remove";
  readonly entity: Entity<unknown>;
  readonly rowKey: string;
  readonly columns: Columns;
  /** Expected ETag of the stored row; "*" matches any existing row. Only for replace, merge and remove. */
  readonly etag?: string;
}

/** Adds a row. Fails if the row exists. */
export const insert = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>): Operation => ({
  kind: "insert",
  entity: e,
  rowKey,
  columns: encode(e.members, validate(e, rowKey, value) as object),
});

/** Adds a row, or replaces an existing row unconditionally. */
export const put = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>): Operation => ({
  kind: "put",
  entity: e,
  rowKey,
  columns: encode(e.members, validate(e, rowKey, value) as object),
});

/** A value that is validated and encoded once for several rows with the same value. */
export interface Encoded {
  readonly entity: Entity<unknown>;
  readonly columns: Columns;
}

/**
 * Validates and encodes a value for `putEncoded`.
 *
 * @param name - Name of the value in a validation error.
 */
export const encoded = <T>(e: Entity<T>, name: string, value: NoInfer<T>): Encoded => ({
  entity: e,
  columns: encode(e.members, validate(e, name, value) as object),
});

/** Like `put`, with an encoded value. */
export const putEncoded = ({ entity, columns }: Encoded, rowKey: string): Operation => ({
  kind: "put",
  entity,
  rowKey,
  columns,
});

/** Replaces the row with this ETag. Fails if the row was changed or removed. */
export const replace = <T>(e: Entity<T>, rowKey: string, value: NoInfer<T>, etag: string): Operation => ({
  kind: "replace",
  entity: e,
  rowKey,
  columns: encode(e.members, validate(e, rowKey, value) as object),
  etag,
});

/**
 * Changes only the given members of an existing row. `undefined` and `null` are rejected, because a merge can't clear a member
 * (the service ignores nulls).
 */
export const merge = <T>(e: Entity<T>, rowKey: string, part: Partial<NoInfer<T>>, etag = "*"): Operation => ({
  kind: "merge",
  entity: e,
  rowKey,
  columns: encode(e.members, validatePart(e, rowKey, part as Partial<T>)),
  etag,
});

/** Removes a row. Fails if the row does not exist. */
export const remove = (e: Entity<unknown>, rowKey: string, etag = "*"): Operation => ({
  kind: "remove",
  entity: e,
  rowKey,
  columns: {},
  etag,
});
