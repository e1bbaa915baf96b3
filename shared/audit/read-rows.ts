import type { Entity, Row } from "../platform/storage/entity.ts";
import { type Range, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";

/**
 * Reads rows of the audit log without failing for rows that don't match their schema. Anyone with the storage account's key may
 * have written such rows, and they must not stop the log.
 */

/** A stored row, valid or not. */
export interface FoundRow<T> {
  rowKey: string;
  /** Undefined if the row does not match the schema of its kind. */
  value: Row<T> | undefined;
}

/**
 * Yields the pages of a range. An invalid row has no value. With `select`, only these members are read.
 */
export async function* readRows<T>(
  tables: Tables,
  kind: Entity<T>,
  range: Range & { readonly select?: readonly (keyof T & string)[] },
): AsyncGenerator<FoundRow<T>[], void> {
  let broken: FoundRow<T>[] = [];
  const onCorrupt = ({ rowKey }: StorageCorrupt) => broken.push({ rowKey, value: undefined });
  const lenient: Range = { ...range, onCorrupt };
  for await (const page of tables.pages(kind, lenient)) {
    const rows = page.map((value): FoundRow<T> => ({ rowKey: value.rowKey, value }));
    yield broken.length === 0 ? rows : [...rows, ...broken].sort(byKey);
    broken = [];
  }
}

const byKey = (a: { rowKey: string }, b: { rowKey: string }): number => (a.rowKey < b.rowKey ? -1 : 1);

/** Reads one row: undefined if it does not exist, without a value if it is invalid. */
export async function readRow<T>(
  tables: Tables,
  kind: Entity<T>,
  partitionKey: string,
  rowKey: string,
): Promise<FoundRow<T> | undefined> {
  try {
    const value = await tables.get(kind, partitionKey, rowKey);
    return value && { rowKey, value };
  } catch (error) {
    if (!(error instanceof StorageCorrupt)) throw error;
    return { rowKey, value: undefined };
  }
}

/**
 * Returns the ETag of a row, valid or not. Undefined if it does not exist. Reads no columns (`select`), because reading an invalid
 * row would fail.
 */
export async function etagOf(
  tables: Tables,
  kind: Entity<object>,
  partitionKey: string,
  rowKey: string,
): Promise<string | undefined> {
  const range = { partitionKey, from: rowKey, before: `${rowKey}\u0001`, pageSize: 1, select: [] };
  for await (const [row] of tables.pages(kind, range)) return row?.etag;
  return undefined;
}
