import { encodeTime } from "ulid";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { insert, type Operation, put, RowExists, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS } from "../platform/time.ts";
import { isUlid, newestFirst } from "../platform/ulid.ts";
import {
  isOver,
  ROTATIONS,
  RotationEvents,
  RotationPointers,
  type RotationRecord,
  type RotationStatus,
  RotationSummaries,
  type RotationSummary,
  Rotations,
  subjectOf,
  summaryOf,
} from "./rotation.ts";

/** Another rotation of the same is not over. */
export class UnfinishedRotation extends Error {
  override readonly name = "UnfinishedRotation";
  readonly rotationId: string;

  constructor(rotationId: string) {
    super(`Rotation ${rotationId} is not over.`);
    this.rotationId = rotationId;
  }
}

/** A message that is later than this is taken for lost: the timer then sends another. */
const LOST_MS = 15 * MINUTE_MS;

/** A request that holds a value has written its rotation long before, or never will. */
const STRAY_MS = HOUR_MS;

export const recordKey = (rotationId: string): string => `r|${rotationId}`;
const unfinishedKey = (subject: string): string => `u|${keyText(subject.toLowerCase())}`;
const DUE = "d|";
const HELD = "h|";
export const EVENTS = "e|";

/** The prefix of a list: of all, by status, by what is rotated, by both. */
export const listPrefix = ({
  status,
  subject,
}: {
  status?: RotationStatus | undefined;
  subject?: string | undefined;
}): string =>
  subject === undefined
    ? status === undefined
      ? "a|"
      : `s|${status}|`
    : status === undefined
      ? `p|${keyText(subject.toLowerCase())}|`
      : `b|${keyText(subject.toLowerCase())}|${status}|`;

function listKeys(summary: RotationSummary): string[] {
  const { status, rotationId } = summary;
  const subject = subjectOf(summary);
  const filters = [{}, { status }, { subject }, { subject, status }];
  return filters.map((filter) => listPrefix(filter) + newestFirst(rotationId));
}

/** Undefined where nothing is to be done without a person. */
function dueKey({ status, dueAt, rotationId }: RotationRecord): string | undefined {
  if (isOver(status) || status === "needsAttention") return undefined;
  return `${DUE}${encodeTime(Date.parse(dueAt) + LOST_MS)}|${rotationId}`;
}

/** Rotations with the rows that lead to them. */
export interface RotationRows {
  /** Undefined for what is no id, and for an unknown one. */
  get(rotationId: string): Promise<Row<RotationRecord> | undefined>;
  /** With how long ago it was last written, by the store's clock. */
  aged(rotationId: string): Promise<{ row: Row<RotationRecord>; ageMs: number } | undefined>;
  /** The rotation of an application or asset that is not over. */
  unfinishedOf(subject: string): Promise<string | undefined>;
  /** Says that a value is about to be held for a rotation that is not written yet. */
  markHeld(rotationId: string): Promise<void>;
  /**
   * @param held - Whether its value is held: it is written only while the mark says so.
   * @throws {UnfinishedRotation}
   */
  insert(record: Omit<RotationRecord, "writeId">, held: boolean): Promise<void>;
  /** Values that are held for rotations which were never written, an hour ago or longer. */
  strays(): AsyncGenerator<string[]>;
  /** The stray is gone. */
  forgetStray(rotationId: string): Promise<void>;
  /** All rows in one transaction. @throws {RowChanged} when the rotation is no longer as it was read. */
  save(before: Row<RotationRecord>, after: RotationRecord): Promise<Row<RotationRecord>>;
  /** Those that are due although no message came, the longest overdue first. */
  overdue(): AsyncGenerator<string[]>;
  /** Removes a rotation that is over, with what shows it. */
  forget(rotation: RotationSummary): Promise<void>;
}

export function createRotationRows(deps: { tables: Tables; clock: Clock; randomness: Randomness }): RotationRows {
  const { tables, clock, randomness } = deps;
  const writeId = (): string => randomness.ulid(clock.now());

  return {
    get: async (rotationId) =>
      isUlid(rotationId) ? await tables.get(Rotations, ROTATIONS, recordKey(rotationId)) : undefined,

    aged: async (rotationId) =>
      isUlid(rotationId) ? await tables.getWithAge(Rotations, ROTATIONS, recordKey(rotationId)) : undefined,

    async unfinishedOf(subject) {
      return (await tables.get(RotationPointers, ROTATIONS, unfinishedKey(subject)))?.rotationId;
    },

    async markHeld(rotationId) {
      await tables.insert(RotationPointers, ROTATIONS, HELD + rotationId, { rotationId });
    },

    async *strays() {
      const before = HELD + encodeTime(clock.now().getTime() - STRAY_MS);
      for await (const rows of tables.pages(RotationPointers, { partitionKey: ROTATIONS, from: HELD, before })) {
        yield rows.map(({ rotationId }) => rotationId);
      }
    },

    async forgetStray(rotationId) {
      await tables.remove(RotationPointers, ROTATIONS, HELD + rotationId);
    },

    async insert(record, held) {
      const { rotationId } = record;
      const subject = subjectOf(record);
      const written = { ...record, writeId: writeId() };
      const at = clock.now();
      const operations = [
        insert(Rotations, recordKey(rotationId), written),
        insert(RotationPointers, unfinishedKey(subject), { rotationId }),
        ...(held ? [remove(RotationPointers, HELD + rotationId)] : []),
        put(RotationPointers, dueKey(written)!, { rotationId }),
        ...listKeys(written).map((key) => put(RotationSummaries, key, summaryOf(written))),
        ...(written.notUpdated.some(({ reason }) => reason === "newPlace")
          ? [put(RotationEvents, EVENTS + randomness.ulid(at), leftOutEvent(written, at))]
          : []),
      ];
      try {
        await tables.transaction(Rotations.table, ROTATIONS, operations);
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
        throw new UnfinishedRotation((await this.unfinishedOf(subject)) ?? rotationId);
      }
    },

    async save(before, changed) {
      const after = { ...withoutKeys(changed), writeId: writeId() };
      const { rotationId, status } = after;
      const operations: Operation[] = [replace(Rotations, before.rowKey, after, before.etag)];
      const [dueBefore, dueAfter] = [dueKey(before), dueKey(after)];
      if (dueBefore !== dueAfter) {
        if (dueBefore !== undefined) operations.push(remove(RotationPointers, dueBefore));
        if (dueAfter !== undefined) operations.push(put(RotationPointers, dueAfter, { rotationId }));
      }
      const summary = summaryOf(after);
      if (JSON.stringify(summary) !== JSON.stringify(summaryOf(before))) {
        const keys = listKeys(after);
        operations.push(...keys.map((key) => put(RotationSummaries, key, summary)));
        const left = listKeys(before).filter((key) => !keys.includes(key));
        operations.push(...left.map((key) => remove(RotationSummaries, key)));
      }
      if (status !== before.status && (isOver(status) || status === "needsAttention")) {
        const at = clock.now();
        operations.push(put(RotationEvents, EVENTS + randomness.ulid(at), { ...summary, at: at.toISOString() }));
      }
      if (isOver(status) && !isOver(before.status))
        operations.push(remove(RotationPointers, unfinishedKey(subjectOf(after))));
      const etags = await tables.transaction(Rotations.table, ROTATIONS, operations);
      return { ...after, partitionKey: ROTATIONS, rowKey: before.rowKey, etag: etags.get(before.rowKey)! };
    },

    async *overdue() {
      const before = DUE + encodeTime(clock.now().getTime());
      for await (const rows of tables.pages(RotationPointers, { partitionKey: ROTATIONS, from: DUE, before })) {
        yield rows.map(({ rotationId }) => rotationId);
      }
    },

    async forget(rotation) {
      const keys = [recordKey(rotation.rotationId), ...listKeys(rotation)];
      await tables.write(
        Rotations.table,
        ROTATIONS,
        // The list of all goes last, so that a purge that died finds the rotation again.
        [keys[0]!, ...keys.slice(2), keys[1]!].map((key) => remove(RotationSummaries, key)),
      );
    },
  };
}

const leftOutEvent = (record: RotationRecord, at: Date) => ({
  ...summaryOf(record),
  at: at.toISOString(),
  leftOut: true,
});

/** The rows of a list between two instants, the newest first; `end` is exclusive. */
export function listRange(prefix: string, { start, end }: { start?: Date | undefined; end?: Date | undefined }) {
  return {
    partitionKey: ROTATIONS,
    from: prefix + (end ? newestFirst(encodeTime(Math.max(0, end.getTime() - 1)) + "Z".repeat(16)) : ""),
    before: start
      ? prefix + keyEnd(newestFirst(encodeTime(Math.max(0, start.getTime())) + "0".repeat(16)))
      : keyEnd(prefix),
  };
}
