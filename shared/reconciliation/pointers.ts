import type { Entity, Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { type Operation, put, remove, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import {
  isOver,
  ROTATIONS,
  RotationPointers,
  type RotationRecord,
  Rotations,
  subjectOf,
} from "../rotation/rotation.ts";
import {
  DUE_PREFIX as ROTATION_DUE_PREFIX,
  dueKey as rotationDueKey,
  recordKey as rotationKey,
  unfinishedKey,
} from "../rotation/rows.ts";
import { keyOfTarget } from "../sync/indexes.ts";
import {
  DUE_PREFIX,
  DueRows,
  dueKey,
  Records,
  References,
  recordKey,
  SOURCE_PREFIX,
  SYNC,
  type SyncRecord,
  sourceKey,
  TARGET_PREFIX,
} from "../sync/record.ts";
import { readRowOrCorrupt } from "./suspected-differences.ts";

/**
 * Checks pointers: rows that point to a rotation or a sync record. For example, a timer finds a record only by its due row. All
 * pointers follow from their records, and are in the records' partition.
 */

/** Pointers with a common key prefix. */
interface PointerKind {
  readonly prefix: string;
  readonly entity: Entity<unknown>;
  /** Returns the ID of the record to which a row points. */
  readonly recordIdOf: (row: Row<unknown>) => string;
  /** Whether the key ends with the ID of the record. The ID is then known even if the row can't be read. */
  readonly hasIdInKey: boolean;
}

/** Records of one kind, and their pointers. */
export interface PointedRecords<T> {
  readonly entity: Entity<T>;
  readonly partitionKey: string;
  readonly recordKey: (recordId: string) => string;
  readonly kinds: readonly PointerKind[];
  /** Returns the operations that write the pointers of a record. */
  readonly pointersOf: (record: T) => Operation[];
}

const kindOf = <V>(
  prefix: string,
  entity: Entity<V>,
  recordIdOf: (row: Row<V>) => string,
  hasIdInKey: boolean,
): PointerKind => ({ prefix, entity, recordIdOf: (row) => recordIdOf(row as Row<V>), hasIdInKey });

const idInKey = (key: string): string => key.slice(key.lastIndexOf("|") + 1);

/** Pointers of rotations: when a rotation is due, and the unfinished rotation of an application or asset. */
export const ROTATION_POINTERS: PointedRecords<RotationRecord> = {
  entity: Rotations,
  partitionKey: ROTATIONS,
  recordKey: rotationKey,
  kinds: [
    kindOf(ROTATION_DUE_PREFIX, RotationPointers, ({ rotationId }) => rotationId, true),
    kindOf(unfinishedKey(""), RotationPointers, ({ rotationId }) => rotationId, false),
  ],
  pointersOf(rotation) {
    const due = rotationDueKey(rotation);
    const keys = [...(due ? [due] : []), ...(isOver(rotation.status) ? [] : [unfinishedKey(subjectOf(rotation))])];
    return keys.map((key) => put(RotationPointers, key, { rotationId: rotation.rotationId }));
  },
};

/** Pointers of sync records: when a record is due, and the records of a target and of a source. */
export const SYNC_POINTERS: PointedRecords<SyncRecord> = {
  entity: Records,
  partitionKey: SYNC,
  recordKey,
  kinds: [
    kindOf(DUE_PREFIX, DueRows, ({ rowKey }) => idInKey(rowKey), true),
    kindOf(SOURCE_PREFIX, References, ({ recordId }) => recordId, true),
    kindOf(TARGET_PREFIX, References, ({ recordId }) => recordId, false),
  ],
  pointersOf: (record) => [
    ...(record.nextRunAt === undefined ? [] : [put(DueRows, dueKey(record.nextRunAt, record.recordId), {})]),
    put(References, sourceKey(record), { recordId: record.recordId }),
    put(References, keyOfTarget(record), { recordId: record.recordId }),
  ],
};

/**
 * A wrong pointer, with the operation that repairs it. `missing`: a record has no such pointer. `extra`: the pointer belongs to
 * no record. `stale`: the pointer names another record. `unreadable`: the row can't be read.
 */
export interface PointerFault {
  readonly key: string;
  readonly kind: "missing" | "extra" | "stale" | "unreadable";
  readonly repair: Operation;
}

/**
 * Returns the wrong pointers, each confirmed by a second read, and the number of records that can't be read. Pointers that may
 * belong to these records stay unchanged. Costs one request per 1,000 records and pointers, and two for each suspected pointer.
 */
export async function findPointerFaults<T>(
  tables: Tables,
  records: PointedRecords<T>,
): Promise<{ faults: PointerFault[]; unreadable: number; rows: number }> {
  const { entity, partitionKey } = records;
  const rangeOf = (prefix: string, onCorrupt: (row: StorageCorrupt) => void) => ({
    partitionKey,
    from: prefix,
    before: keyEnd(prefix),
    onCorrupt,
  });
  /** The record's row key by the key of each pointer that should exist. */
  const expected = new Map<string, string>();
  let [unreadable, rows] = [0, 0];
  for await (const page of tables.pages(
    entity,
    rangeOf(records.recordKey(""), () => unreadable++),
  )) {
    rows += page.length;
    for (const row of page) for (const { rowKey } of records.pointersOf(row)) expected.set(rowKey, row.rowKey);
  }
  const missing = new Set(expected.keys());
  const suspected: { key: string; kind: PointerKind }[] = [];
  for (const kind of records.kinds) {
    const onCorrupt = ({ rowKey: key }: StorageCorrupt) => suspected.push({ key, kind });
    for await (const page of tables.pages(kind.entity, rangeOf(kind.prefix, onCorrupt))) {
      rows += page.length;
      for (const row of page as Row<unknown>[]) {
        if (expected.get(row.rowKey) !== records.recordKey(kind.recordIdOf(row)))
          suspected.push({ key: row.rowKey, kind });
        missing.delete(row.rowKey);
      }
    }
  }
  for (const { key } of suspected) missing.delete(key);
  for (const key of missing) suspected.push({ key, kind: records.kinds.find(({ prefix }) => key.startsWith(prefix))! });
  const faults: PointerFault[] = [];
  for (const { key, kind } of suspected) {
    const recordRowKey = expected.get(key);
    const fault = await recheck(tables, records, { key, kind, recordRowKey, unreadableRecords: unreadable });
    if (fault) faults.push(fault);
  }
  return { faults, unreadable, rows };
}

/**
 * Reads a suspected pointer again with the records that it may belong to. Undefined if the pointer is right, or if this can't be
 * decided.
 */
async function recheck<T>(
  tables: Tables,
  records: PointedRecords<T>,
  suspect: { key: string; kind: PointerKind; recordRowKey: string | undefined; unreadableRecords: number },
): Promise<PointerFault | undefined> {
  const { key, kind, unreadableRecords } = suspect;
  const { partitionKey, recordKey } = records;
  const pointer = await readRowOrCorrupt(tables, kind.entity, partitionKey, key);
  const pointedRowKey = pointer.row
    ? recordKey(kind.recordIdOf(pointer.row))
    : kind.hasIdInKey
      ? recordKey(idInKey(key))
      : undefined;
  // The record that the walk read may have ended since, and the pointer may belong to a newer record. So both records are read.
  const recordRowKeys = new Set([suspect.recordRowKey, pointedRowKey].filter((rowKey) => rowKey !== undefined));
  // The pointer may be right: its record may be one of those that can't be read.
  if (recordRowKeys.size === 0 && unreadableRecords > 0) return undefined;
  for (const recordRowKey of recordRowKeys) {
    const record = await readRowOrCorrupt(tables, records.entity, partitionKey, recordRowKey);
    if (record.unreadable) return undefined;
    const correct = record.row && records.pointersOf(record.row).find(({ rowKey }) => rowKey === key);
    if (!correct) continue;
    // With the ETag, so that a pointer that a worker writes or removes meanwhile is not overwritten.
    if (pointer.unreadable) return { key, kind: "unreadable", repair: overwrite(correct, pointer.unreadable.etag) };
    if (!pointer.row) return { key, kind: "missing", repair: { ...correct, kind: "insert" } };
    if (pointedRowKey === recordRowKey) return undefined;
    return { key, kind: "stale", repair: overwrite(correct, pointer.row.etag) };
  }
  // An unreadable pointer whose key does not contain an ID may belong to a newer record, which only the next walk reads.
  if (pointer.unreadable && pointedRowKey === undefined && suspect.recordRowKey !== undefined) return undefined;
  const etag = pointer.row?.etag ?? pointer.unreadable?.etag;
  return etag === undefined ? undefined : { key, kind: "extra", repair: remove(kind.entity, key, etag) };
}

const overwrite = (write: Operation, etag: string): Operation => ({ ...write, kind: "replace", etag });
