import { AsyncLocalStorage } from "node:async_hooks";

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

/** The rows that the answer to the current GET request leaves out, by their locations. */
const current = new AsyncLocalStorage<Map<string, LeftOutRow>>();

/** Returns whether the current work answers a GET request (`collectLeftOut`). */
export const isAnsweringGet = (): boolean => current.getStore() !== undefined;

/**
 * Counts a row that the current work leaves out. Outside of `collectLeftOut` it has no effect.
 *
 * @param id - ID of the resource that the row stores, with which an administrator can delete it.
 */
export function countLeftOut(
  { table, partitionKey, rowKey, reason }: { table: string; partitionKey: string; rowKey: string; reason: string },
  id?: string,
): void {
  const row: LeftOutRow = { state: "unreadable", table, ...(id !== undefined && { id }), reason };
  current.getStore()?.set(JSON.stringify([table, partitionKey, rowKey]), row);
}

/** Returns the number of rows that the current work has left out so far. */
export const countOfLeftOut = (): number => current.getStore()?.size ?? 0;

/**
 * Runs `work`, which answers a GET request. Returns its result, and the rows that `work` left out. `leftOut` is undefined if
 * there are none.
 */
export async function collectLeftOut<T>(
  work: () => Promise<T>,
): Promise<{ result: T; leftOut: LeftOutRows | undefined }> {
  const rows = new Map<string, LeftOutRow>();
  const result = await current.run(rows, work);
  const leftOut = rows.size === 0 ? undefined : { count: rows.size, items: [...rows.values()].slice(0, MAX_NAMED) };
  return { result, leftOut };
}
