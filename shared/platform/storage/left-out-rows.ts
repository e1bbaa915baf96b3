import { AsyncLocalStorage } from "node:async_hooks";
import type { StorageCorrupt } from "./errors.ts";

/** Rows that could not be read and are therefore missing in an answer. */
export interface LeftOutRows {
  readonly count: number;
  /** The tables of the rows, sorted. */
  readonly tables: readonly string[];
}

/** The tables of the rows that the current work left out, by the rows' locations. */
const current = new AsyncLocalStorage<Map<string, string>>();

/** Counts a row that the current work leaves out. Outside of `collectLeftOut` it has no effect. */
export function countLeftOut({ table, partitionKey, rowKey }: StorageCorrupt): void {
  current.getStore()?.set(JSON.stringify([table, partitionKey, rowKey]), table);
}

/** Runs `work` and returns the rows that it left out, or undefined if it left out none. */
export async function collectLeftOut<T>(
  work: () => Promise<T>,
): Promise<{ result: T; leftOut: LeftOutRows | undefined }> {
  const rows = new Map<string, string>();
  const result = await current.run(rows, work);
  const leftOut = rows.size === 0 ? undefined : { count: rows.size, tables: [...new Set(rows.values())].sort() };
  return { result, leftOut };
}
