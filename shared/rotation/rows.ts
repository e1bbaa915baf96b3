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

/** Another rotation of the same subject is unfinished. */
export class UnfinishedRotation extends Error {
  override readonly name = "UnfinishedRotation";
  readonly rotationId: string;

  constructor(rotationId: string) {
    super(`Rotation ${rotationId} has not ended.`);
    this.rotationId = rotationId;
  }
}

/** A message that is overdue by this time is considered lost. The timer then sends another. */
const LOST_MS = 15 * MINUTE_MS;

/** After this time, a request that stored a held copy has either stored its rotation or never will. */
const STRAY_MS = HOUR_MS;

export const recordKey = (rotationId: string): string => `r|${rotationId}`;
const unfinishedKey = (subject: string): string => `u|${keyText(subject.toLowerCase())}`;
const DUE = "d|";
const HELD = "h|";
export const EVENTS = "e|";

/** Returns the key prefix of a list: all rotations, by status, by subject, or by both. */
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

/** Returns undefined if the rotation does not continue without a user. */
function dueKey({ status, dueAt, rotationId }: RotationRecord): string | undefined {
  if (isOver(status) || status === "needsAttention") return undefined;
  return `${DUE}${encodeTime(Date.parse(dueAt) + LOST_MS)}|${rotationId}`;
}

/** Stores rotations together with the rows of lists and pointers. */
export interface RotationRows {
  /** Returns undefined for an invalid or unknown ID. */
  get(rotationId: string): Promise<Row<RotationRecord> | undefined>;
  /** Returns the rotation with the time since its last write, by the store's clock. */
  aged(rotationId: string): Promise<{ row: Row<RotationRecord>; ageMs: number } | undefined>;
  /** Returns the unfinished rotation of an application or asset. */
  unfinishedOf(subject: string): Promise<string | undefined>;
  /** Records that a held copy is about to be stored for a rotation that is not stored yet. */
  markHeld(rotationId: string): Promise<void>;
  /**
   * Stores a new rotation.
   *
   * @param held - Whether it has a held copy. The rotation is then stored only if the mark of `markHeld` still exists.
   * @throws {UnfinishedRotation}
   */
  insert(record: Omit<RotationRecord, "writeId">, held: boolean): Promise<void>;
  /** Lists rotation IDs with a held copy that were marked an hour ago or longer and never stored. */
  unclaimedCopies(): AsyncGenerator<string[]>;
  /** Removes the mark after the held copy was deleted. */
  removeHeldMark(rotationId: string): Promise<void>;
  /**
   * Writes a changed rotation and all its rows in one transaction. @throws {RowChanged} if the rotation changed since it was
   * read.
   */
  save(before: Row<RotationRecord>, after: RotationRecord): Promise<Row<RotationRecord>>;
  /** Lists overdue rotations whose message did not arrive, longest overdue first. */
  overdue(): AsyncGenerator<string[]>;
  /** Deletes an ended rotation and the rows of its lists. */
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

    async *unclaimedCopies() {
      const before = HELD + encodeTime(clock.now().getTime() - STRAY_MS);
      for await (const rows of tables.pages(RotationPointers, { partitionKey: ROTATIONS, from: HELD, before })) {
        yield rows.map(({ rotationId }) => rotationId);
      }
    },

    async removeHeldMark(rotationId) {
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
        // The row of the list of all is deleted last, so that the next purge finds the rotation again after a crash.
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

/** Returns the range of a list between two times, newest first. `end` is exclusive. */
export function listRange(prefix: string, { start, end }: { start?: Date | undefined; end?: Date | undefined }) {
  return {
    partitionKey: ROTATIONS,
    from: prefix + (end ? newestFirst(encodeTime(Math.max(0, end.getTime() - 1)) + "Z".repeat(16)) : ""),
    before: start
      ? prefix + keyEnd(newestFirst(encodeTime(Math.max(0, start.getTime())) + "0".repeat(16)))
      : keyEnd(prefix),
  };
}
