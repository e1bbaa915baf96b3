import { repeatOnConflict } from "../platform/storage/conflict.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { RESCANS, type RescanRecord, RescanRows, rescanKey } from "./rescan-rows.ts";

/**
 * Releases the row if it still belongs to the worker: replaces it by the result of `nextOf`, or removes it if that is
 * undefined. Returns the replaced row, which describes what is left to do.
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
