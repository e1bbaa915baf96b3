import type { Logger } from "../platform/runtime.ts";
import type { Entity, Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import {
  type Operation,
  put,
  RowMissing,
  remove,
  type StorageCorrupt,
  type Tables,
} from "../platform/storage/tables.ts";
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

/** The places of the sync records in their indexes: by target, by source, and those that are due by time. */
export interface RecordIndexes {
  /** A transaction. What removes a place in an index that is not there is left out of it. */
  submit(operations: Operation[]): Promise<Map<string, string>>;
  /** The records of a source. */
  ofSource(vault: string, secret: string): Promise<string[]>;
  /**
   * What removes the places of one that was tampered with, by reading the whole indexes. They may be many: whoever wrote the
   * table wrote them, too.
   */
  placesOf(recordId: string): Promise<Operation[]>;
  /** The places of a record among those that are due, by reading all of them. */
  duePlacesOf(recordId: string): Promise<{ rowKey: string; etag: string; aside?: boolean | undefined }[]>;
}

export function createIndexes({ tables, log }: { tables: Tables; log: Logger }): RecordIndexes {
  const onCorrupt = (row: StorageCorrupt) =>
    log.error("A place of a sync record is left out: its row does not hold", { row: row.message });

  /** A record's places in an index, found by reading all of it. */
  async function placesIn<T>(rowsOf: Entity<T>, prefix: string, isIts: (row: Row<T>) => boolean): Promise<Row<T>[]> {
    const found: Row<T>[] = [];
    // What somebody else wrote there does not keep anybody from finding the others.
    const range = { partitionKey: SYNC, from: prefix, before: keyEnd(prefix), onCorrupt };
    for await (const rows of tables.pages(rowsOf, range)) found.push(...rows.filter(isIts));
    return found;
  }

  return {
    async submit(operations) {
      for (let left = operations; ; ) {
        try {
          return await tables.transaction(Records.table, SYNC, left);
        } catch (error) {
          if (!(error instanceof RowMissing && INDEXES.some((prefix) => error.rowKey.startsWith(prefix)))) throw error;
          left = left.filter(({ rowKey }) => rowKey !== error.rowKey);
        }
      }
    },

    async ofSource(vault, secret) {
      const found: string[] = [];
      const prefix = sourcePrefix(vault, secret);
      const range = { partitionKey: SYNC, from: prefix, before: keyEnd(prefix) };
      for await (const rows of tables.pages(References, range)) found.push(...rows.map(({ recordId }) => recordId));
      return found;
    },

    async placesOf(recordId) {
      const places = await Promise.all([
        placesIn(References, TARGET_PREFIX, (row) => row.recordId === recordId),
        placesIn(IndexKeys, SOURCE_PREFIX, endsWith(recordId)),
        placesIn(IndexKeys, DUE_PREFIX, endsWith(recordId)),
      ]);
      return places.flat().map(({ rowKey }) => remove(IndexKeys, rowKey));
    },

    duePlacesOf: async (recordId) => await placesIn(DueRows, DUE_PREFIX, endsWith(recordId)),
  };
}

const INDEXES = [TARGET_PREFIX, SOURCE_PREFIX, DUE_PREFIX];

/** By source and by time the id stands at the end of the key. */
const endsWith =
  (recordId: string) =>
  ({ rowKey }: { rowKey: string }): boolean =>
    rowKey.endsWith(`|${recordId}`);

/** What removes a record and its places in the indexes, for `submit`. */
export const removal = (record: SyncRecordRow): Operation[] => [
  remove(Records, record.rowKey, record.etag),
  remove(References, keyOfTarget(record)),
  remove(References, sourceKey(record)),
  ...(record.nextRunAt === undefined ? [] : [remove(DueRows, dueKey(record.nextRunAt, record.recordId))]),
];

/** What moves a record's place among those that are due. */
export function movedDue(before: SyncRecord, next: SyncRecord, sentAt?: string): Operation[] {
  if (before.nextRunAt === next.nextRunAt) return [];
  const { recordId } = next;
  return [
    ...(before.nextRunAt === undefined ? [] : [remove(DueRows, dueKey(before.nextRunAt, recordId))]),
    ...(next.nextRunAt === undefined
      ? []
      : [put(DueRows, dueKey(next.nextRunAt, recordId), sentAt === undefined ? {} : { sentAt })]),
  ];
}

/** @returns The key under which there is one record for the target, whatever the spelling. */
export function keyOfTarget(
  record: Pick<SyncRecord, "targetProvider" | "targetService" | "targetRegion" | "targetName">,
) {
  const { targetProvider, targetService, targetRegion, targetName } = record;
  const service = providerOf(targetProvider)?.services[targetService];
  return targetKey(targetProvider, targetService, targetRegion, service?.sameName?.(targetName) ?? targetName);
}
