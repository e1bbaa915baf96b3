import { AsyncLocalStorage } from "node:async_hooks";
import { StorageCorrupt } from "./errors.ts";

/** Maximum number of left-out rows that an answer names. It counts all of them. */
const MAX_NAMED = 100;

/** A row that could not be read. */
export interface LeftOutRow {
  readonly state: "unreadable";
  readonly table: string;
  /** ID of the resource that the row stores, if the list names resources by the keys of their rows. */
  readonly id?: string;
  readonly reason: string;
}

/** Rows that could not be read and are therefore missing in an answer. */
export interface LeftOutRows {
  readonly count: number;
  /** The first 100 of the rows. */
  readonly items: readonly LeftOutRow[];
}

/** The rows that the current work left out, by their locations. */
const current = new AsyncLocalStorage<Map<string, LeftOutRow>>();

/**
 * Counts a row that the current work leaves out. Outside of `collectLeftOut` it has no effect.
 *
 * @param id - ID of the resource that the row stores, with which an administrator can delete it.
 */
export function countLeftOut({ table, partitionKey, rowKey, reason }: StorageCorrupt, id?: string): void {
  const row: LeftOutRow = { state: "unreadable", table, ...(id !== undefined && { id }), reason };
  current.getStore()?.set(JSON.stringify([table, partitionKey, rowKey]), row);
}

/** Runs `work`. Returns its result, and the rows that `work` left out. `leftOut` is undefined if there are none. */
export async function collectLeftOut<T>(
  work: () => Promise<T>,
): Promise<{ result: T; leftOut: LeftOutRows | undefined }> {
  const rows = new Map<string, LeftOutRow>();
  const result = await current.run(rows, work);
  const leftOut = rows.size === 0 ? undefined : { count: rows.size, items: [...rows.values()].slice(0, MAX_NAMED) };
  return { result, leftOut };
}

/**
 * Returns the result of `read`. In an answer to a request, a row that can't be read is left out and counted: the result is then
 * undefined. For rows that only add details to an answer.
 *
 * @throws StorageCorrupt outside of a request, so that work is not based on a missing row.
 */
export async function undefinedIfLeftOut<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (!(error instanceof StorageCorrupt) || current.getStore() === undefined) throw error;
    countLeftOut(error);
    return undefined;
  }
}
