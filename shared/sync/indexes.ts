import type { Entity, Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, RowMissing, remove, type Tables } from "../platform/storage/tables.ts";
import { providerOf } from "./providers/providers.ts";
import {
  DUE_PREFIX,
  DueRows,
  dueKey,
  IndexKeys,
  Records,
  References,
  SOURCE_PREFIX,
  SYNC,
  type SyncRecord,
  type SyncRecordRow,
  sourceKey,
  sourcePrefix,
  TARGET_PREFIX,
  targetKey,
} from "./record.ts";

/** Index rows of sync records: by target, by source and by due time. */
export interface RecordIndexes {
  /**
   * Runs a transaction. Leaves out deletions of index rows that do not exist, for example because another program has
   * deleted them.
   */
  submit(operations: Operation[]): Promise<Map<string, string>>;
  /** Returns the IDs of the records with this source. */
  recordsOfSource(vault: string, secret: string): Promise<string[]>;
  /**
   * Returns deletions of all index rows of a tampered record, by reading all indexes. There may be many, because the program
   * that changed the table may have added some.
   */
  deletionsOf(recordId: string): Promise<Operation[]>;
  /** Returns the due rows of a record, by reading all of them. `aside` marks the row of a tampered record. */
  dueRowsOf(recordId: string): Promise<{ rowKey: string; etag: string; aside?: boolean | undefined }[]>;
}

export function createIndexes({ tables }: { tables: Tables }): RecordIndexes {
  /** Returns a record's rows in one index, by reading the whole index. */
  async function rowsIn<T>(
    rowsOf: Entity<T>,
    prefix: string,
    belongsToRecord: (row: Row<T>) => boolean,
  ): Promise<Row<T>[]> {
    const rowsOfRecord: Row<T>[] = [];
    const range = { partitionKey: SYNC, from: prefix, before: keyEnd(prefix), onCorrupt: "leaveOut" } as const;
    for await (const rows of tables.pages(rowsOf, range)) rowsOfRecord.push(...rows.filter(belongsToRecord));
    return rowsOfRecord;
  }

  return {
    async submit(operations) {
      for (let remaining = operations; ; ) {
        try {
          return await tables.transaction(Records.table, SYNC, remaining);
        } catch (error) {
          if (!(error instanceof RowMissing && INDEXES.some((prefix) => error.rowKey.startsWith(prefix)))) throw error;
          remaining = remaining.filter(({ rowKey }) => rowKey !== error.rowKey);
        }
      }
    },

    async recordsOfSource(vault, secret) {
      const recordIds: string[] = [];
      const prefix = sourcePrefix(vault, secret);
      const range = { partitionKey: SYNC, from: prefix, before: keyEnd(prefix), onCorrupt: "leaveOut" } as const;
      for await (const rows of tables.pages(References, range)) recordIds.push(...rows.map(({ recordId }) => recordId));
      return recordIds;
    },

    async deletionsOf(recordId) {
      const indexRows = await Promise.all([
        rowsIn(References, TARGET_PREFIX, (row) => row.recordId === recordId),
        rowsIn(IndexKeys, SOURCE_PREFIX, endsWith(recordId)),
        rowsIn(IndexKeys, DUE_PREFIX, endsWith(recordId)),
      ]);
      return indexRows.flat().map(({ rowKey }) => remove(IndexKeys, rowKey));
    },

    dueRowsOf: async (recordId) => await rowsIn(DueRows, DUE_PREFIX, endsWith(recordId)),
  };
}

const INDEXES = [TARGET_PREFIX, SOURCE_PREFIX, DUE_PREFIX];

/** Returns a test for rows of a record in the indexes by source and by due time, whose keys end with the record ID. */
const endsWith =
  (recordId: string) =>
  ({ rowKey }: { rowKey: string }): boolean =>
    rowKey.endsWith(`|${recordId}`);

/** Returns the operations that delete a record and its index rows, for `submit`. */
export const removalOperations = (record: SyncRecordRow): Operation[] => [
  remove(Records, record.rowKey, record.etag),
  remove(References, keyOfTarget(record)),
  remove(References, sourceKey(record)),
  ...(record.nextRunAt === undefined ? [] : [remove(DueRows, dueKey(record.nextRunAt, record.recordId))]),
];

/**
 * Returns the operations that replace a record's due row when its next run changes. The key of a due row contains the time of
 * the next run.
 *
 * @param sentAt - Time of a message that was already sent for the new row.
 */
export function dueRowOperations(before: SyncRecord, next: SyncRecord, sentAt?: string): Operation[] {
  if (before.nextRunAt === next.nextRunAt) return [];
  const { recordId } = next;
  return [
    ...(before.nextRunAt === undefined ? [] : [remove(DueRows, dueKey(before.nextRunAt, recordId))]),
    ...(next.nextRunAt === undefined
      ? []
      : [put(DueRows, dueKey(next.nextRunAt, recordId), sentAt === undefined ? {} : { sentAt })]),
  ];
}

/** Returns the index key of a record's target. All spellings of a target have the same key, so a target has only one record. */
export function keyOfTarget(
  record: Pick<SyncRecord, "targetProvider" | "targetService" | "targetRegion" | "targetName">,
) {
  const { targetProvider, targetService, targetRegion, targetName } = record;
  const service = providerOf(targetProvider)?.services[targetService];
  return targetKey(targetProvider, targetService, targetRegion, service?.comparableName?.(targetName) ?? targetName);
}
