import { encodeTime } from "ulid";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { type Row, withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd, keyText } from "../platform/storage/keys.ts";
import { insert, type Operation, put, RowExists, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
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

/** Thrown if another rotation of the same subject (application, vault secret or Azure resource) is unfinished. */
export class UnfinishedRotation extends Error {
  override readonly name = "UnfinishedRotation";
  readonly rotationId: string;

  constructor(rotationId: string) {
    super(`Rotation ${rotationId} has not ended.`);
    this.rotationId = rotationId;
  }
}

/** A rotation that is overdue by this time has lost its queue message. The timer then sends another one. */
const LOST_MESSAGE_MS = 15 * MINUTE_MS;

/** A follow-up that arrives within this time may be the current message, on a worker whose clock is slightly behind. */
const FOLLOW_UP_SLACK_MS = 5 * SECOND_MS;

/** A held copy without a rotation is deleted after this time. The request that stored it has long ended or crashed. */
const UNCLAIMED_COPY_MS = HOUR_MS;

// Row keys, all in one partition. `r|<id>`: the rotation. `u|<subject>`: its unfinished rotation. `d|<time>|<id>`: when it is
// overdue, with the time as in a ULID. `h|<id>`: a held copy that is stored before its rotation. `e|<ULID>`: event. Lists: `a|`
// all, `s|<status>|`, `p|<subject>|`, `b|<subject>|<status>|`, each followed by the rotation's ID with inverted characters: newest
// first.
export const recordKey = (rotationId: string): string => `r|${rotationId}`;
export const unfinishedKey = (subject: string): string => `u|${keyText(subject.toLowerCase())}`;
export const DUE_PREFIX = "d|";
const HELD_COPY_PREFIX = "h|";
export const EVENTS_PREFIX = "e|";

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

/** Returns the row key of the pointer by due time. Undefined if the rotation does not continue without a user. */
export function dueKey({ status, dueAt, rotationId }: RotationRecord): string | undefined {
  if (isOver(status) || status === "needsAttention") return undefined;
  return `${DUE_PREFIX}${encodeTime(Date.parse(dueAt) + LOST_MESSAGE_MS)}|${rotationId}`;
}

/** Stores rotations together with the rows of lists and pointers. */
export interface RotationRows {
  /** Returns undefined for an invalid or unknown ID. */
  get(rotationId: string): Promise<Row<RotationRecord> | undefined>;
  /** Returns the rotation with the time since its last write, by the clock of the table service. */
  getWithAge(rotationId: string): Promise<{ row: Row<RotationRecord>; ageMs: number } | undefined>;
  /** Returns the unfinished rotation of an application or asset. */
  unfinishedOf(subject: string): Promise<string | undefined>;
  /**
   * Records that a held copy (a copy of a new value in the service's own vault) will be stored before its rotation. If the rotation
   * is never stored, `listUnclaimedCopies` finds the copy by this row.
   */
  markHeldCopy(rotationId: string): Promise<void>;
  /**
   * Stores a new rotation.
   *
   * @param hasHeldCopy - Whether the rotation has a held copy. It is then stored only if the row of `markHeldCopy` still exists,
   * because otherwise the copy was or will be deleted.
   * @throws {UnfinishedRotation}
   */
  insert(record: Omit<RotationRecord, "writeId">, hasHeldCopy: boolean): Promise<void>;
  /** Lists the IDs of rotations that were never stored and whose `markHeldCopy` row is at least an hour old. */
  listUnclaimedCopies(): AsyncGenerator<string[]>;
  /** Removes the row of `markHeldCopy`, after the held copy was deleted. */
  removeHeldCopyMark(rotationId: string): Promise<void>;
  /**
   * Writes a changed rotation and all its rows in one transaction.
   *
   * @throws {RowChanged} if the rotation changed since it was read.
   */
  save(before: Row<RotationRecord>, after: RotationRecord): Promise<Row<RotationRecord>>;
  /**
   * Claims the follow-up of a message that arrived before the rotation can continue: the delayed message that replaces it. All
   * such messages share one follow-up, so that duplicate messages don't multiply. If the caller crashes before it sends the
   * follow-up, the timer continues the rotation.
   *
   * @returns False if the follow-up of another message is still to arrive.
   */
  claimFollowUp(record: RotationRecord, arrivesAt: Date): Promise<boolean>;
  /** Ends the claim of a follow-up that could not be sent, so that the redelivered message sends it. */
  releaseFollowUp(record: RotationRecord): Promise<void>;
  /** Lists the IDs of rotations whose message was lost, longest overdue first. */
  listOverdue(): AsyncGenerator<string[]>;
  /** Deletes an ended rotation and the rows of its lists. */
  deleteRotation(rotation: RotationSummary): Promise<void>;
}

export function createRotationRows(deps: { tables: Tables; clock: Clock; randomness: Randomness }): RotationRows {
  const { tables, clock, randomness } = deps;
  const writeId = (): string => randomness.ulid(clock.now());

  return {
    get: async (rotationId) =>
      isUlid(rotationId) ? await tables.get(Rotations, ROTATIONS, recordKey(rotationId)) : undefined,

    getWithAge: async (rotationId) =>
      isUlid(rotationId) ? await tables.getWithAge(Rotations, ROTATIONS, recordKey(rotationId)) : undefined,

    async unfinishedOf(subject) {
      return (await tables.get(RotationPointers, ROTATIONS, unfinishedKey(subject)))?.rotationId;
    },

    async markHeldCopy(rotationId) {
      await tables.insert(RotationPointers, ROTATIONS, HELD_COPY_PREFIX + rotationId, { rotationId });
    },

    async *listUnclaimedCopies() {
      const oldestUnclaimed = HELD_COPY_PREFIX + encodeTime(clock.now().getTime() - UNCLAIMED_COPY_MS);
      for await (const rows of tables.pages(RotationPointers, {
        partitionKey: ROTATIONS,
        from: HELD_COPY_PREFIX,
        before: oldestUnclaimed,
        onCorrupt: "leaveOut",
      })) {
        yield rows.map(({ rotationId }) => rotationId);
      }
    },

    async removeHeldCopyMark(rotationId) {
      await tables.remove(RotationPointers, ROTATIONS, HELD_COPY_PREFIX + rotationId);
    },

    async insert(record, hasHeldCopy) {
      const { rotationId } = record;
      const subject = subjectOf(record);
      const written = { ...record, writeId: writeId() };
      const at = clock.now();
      const operations = [
        insert(Rotations, recordKey(rotationId), written),
        insert(RotationPointers, unfinishedKey(subject), { rotationId }),
        ...(hasHeldCopy ? [remove(RotationPointers, HELD_COPY_PREFIX + rotationId)] : []),
        put(RotationPointers, dueKey(written)!, { rotationId }),
        ...listKeys(written).map((key) => put(RotationSummaries, key, summaryOf(written))),
        ...(written.notUpdated.some(({ reason }) => reason === "newPlace")
          ? [put(RotationEvents, EVENTS_PREFIX + randomness.ulid(at), leftOutEvent(written, at))]
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
        const staleKeys = listKeys(before).filter((key) => !keys.includes(key));
        operations.push(...staleKeys.map((key) => remove(RotationSummaries, key)));
      }
      if (status !== before.status && (isOver(status) || status === "needsAttention")) {
        const at = clock.now();
        operations.push(put(RotationEvents, EVENTS_PREFIX + randomness.ulid(at), { ...summary, at: at.toISOString() }));
      }
      if (isOver(status) && !isOver(before.status))
        operations.push(remove(RotationPointers, unfinishedKey(subjectOf(after))));
      const etags = await tables.transaction(Rotations.table, ROTATIONS, operations);
      return { ...after, partitionKey: ROTATIONS, rowKey: before.rowKey, etag: etags.get(before.rowKey)! };
    },

    async claimFollowUp(record, arrivesAt) {
      const key = dueKey(record);
      const pointer = key === undefined ? undefined : await tables.get(RotationPointers, ROTATIONS, key);
      // The rotation changed since it was read, so its pointer has another key. The caller sends a follow-up without a claim. That
      // happens too rarely for messages to multiply.
      if (!pointer) return true;
      const { followUpAt } = pointer;
      if (followUpAt !== undefined && Date.parse(followUpAt) > clock.now().getTime() + FOLLOW_UP_SLACK_MS) return false;
      try {
        await tables.replace(RotationPointers, { ...pointer, followUpAt: arrivesAt.toISOString() });
        return true;
      } catch (error) {
        if (isConflict(error)) return false;
        throw error;
      }
    },

    async releaseFollowUp(record) {
      const key = dueKey(record);
      const pointer = key === undefined ? undefined : await tables.get(RotationPointers, ROTATIONS, key);
      if (pointer) await undefinedIfChanged(tables.replace(RotationPointers, { ...pointer, followUpAt: undefined }));
    },

    async *listOverdue() {
      const dueBefore = DUE_PREFIX + encodeTime(clock.now().getTime());
      for await (const rows of tables.pages(RotationPointers, {
        partitionKey: ROTATIONS,
        from: DUE_PREFIX,
        before: dueBefore,
        // The reconciliation writes an unreadable pointer again.
        onCorrupt: "leaveOut",
      })) {
        yield rows.map(({ rotationId }) => rotationId);
      }
    },

    async deleteRotation(rotation) {
      const keys = [recordKey(rotation.rotationId), ...listKeys(rotation)];
      await tables.write(
        Rotations.table,
        ROTATIONS,
        // `keys[0]` is the rotation's own row. `keys[1]`, its row in the list of all rotations, is deleted last, so that after
        // a crash the next purge finds the rotation again.
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

/**
 * Returns the range of a list between two times, newest first. `end` is exclusive. Keys end with a rotation ID, a ULID: ten
 * characters of time and 16 random ones, of which `0` is the smallest and `Z` the largest.
 */
export function listRange(prefix: string, { start, end }: { start?: Date | undefined; end?: Date | undefined }) {
  return {
    partitionKey: ROTATIONS,
    from: prefix + (end ? newestFirst(encodeTime(Math.max(0, end.getTime() - 1)) + "Z".repeat(16)) : ""),
    before: start
      ? prefix + keyEnd(newestFirst(encodeTime(Math.max(0, start.getTime())) + "0".repeat(16)))
      : keyEnd(prefix),
  };
}
