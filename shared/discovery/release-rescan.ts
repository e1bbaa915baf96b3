import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { RESCANS, type RescanRecord, RescanRows, rescanKey } from "./rescan-rows.ts";

/**
 * Ends a worker's claim of a vault's re-scan, if the row of the re-scan still belongs to the worker. `nextOf` returns the re-scan
 * that must follow, which replaces the current one in the row. If it returns undefined, the row is removed.
 *
 * @returns the replaced row. Undefined if the row was removed or belongs to another worker.
 */
export async function releaseRescan(
  tables: Tables,
  vaultName: string,
  worker: string,
  nextOf: (row: RescanRecord) => Pick<RescanRecord, "want" | "dueAt" | "failures"> | undefined,
): Promise<RescanRecord | undefined> {
  return await repeatOnConflict(async () => {
    const row = await tables.get(RescanRows, RESCANS, rescanKey(vaultName));
    if (row?.worker !== worker) return undefined;
    // Called for each attempt with the current row, because requests can arrive between two attempts.
    const next = nextOf(row);
    if (!next) {
      await tables.remove(RescanRows, RESCANS, row.rowKey, row.etag);
      return undefined;
    }
    return await tables.replace(RescanRows, {
      ...row,
      ...next,
      worker: undefined,
      begunAt: undefined,
      again: undefined,
    });
  });
}
