import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { decodeCursor, encodeCursor, type Page, type PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import { countLeftOut } from "../platform/incomplete-answer.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { insert, type Operation, RowExists, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { NewSyncRecord, SyncRecordChange } from "./api.ts";
import { dueRowOperations, keyOfTarget, type RecordIndexes } from "./indexes.ts";
import {
  DueRows,
  dueKey,
  isRecordId,
  RECORD_PREFIX,
  type RecordState,
  Records,
  References,
  RUN_QUEUE,
  recordKey,
  SYNC,
  type SyncRecord,
  type SyncRecordRow,
  sourceKey,
  stateOf,
  TARGET_PREFIX,
} from "./record.ts";
import type { RecordRules } from "./rules.ts";

/** A record whose row has an invalid signature, so another program changed it. */
export interface Tampered {
  recordId: string;
  etag: string;
}

/** Filter of the list of records. Undefined members do not filter. */
export interface RecordFilter {
  state?: RecordState | undefined;
  targetProvider?: string | undefined;
  sourceVault?: string | undefined;
  sourceSecret?: string | undefined;
}

/** Stores sync records. No other code writes what users configure. Every change is recorded in the audit log. */
export interface SyncRecords {
  /** Returns the row, or `broken` if it was tampered with. Neither is set for an unknown ID. */
  readRow(recordId: string): Promise<{ row?: SyncRecordRow | undefined; broken?: Tampered }>;
  /** Returns undefined for an unknown ID. @throws {Problem} conflict if the record was tampered with */
  find(recordId: string): Promise<SyncRecordRow | undefined>;
  /** @throws {Problem} notFound; conflict */
  get(recordId: string): Promise<SyncRecordRow>;
  /** Returns whether any record exists, with one request. */
  any(): Promise<boolean>;
  /**
   * Lists records in the order of their creation, and counts them all. Makes one request per 1,000 records. Leaves out tampered
   * records.
   */
  list(filter: RecordFilter, request: PageRequest): Promise<Page<SyncRecordRow>>;
  /** Lists all records, without filter or page. */
  every(): AsyncGenerator<SyncRecordRow>;
  /**
   * Creates a record. It runs immediately, unless it is paused.
   *
   * @throws {Problem} invalidRequest; serviceVault; syncLoop; alreadyExists if another record has the target
   */
  create(given: NewSyncRecord, caller: Caller): Promise<SyncRecordRow>;
  /** @throws {Problem} notFound; invalidRequest for another source or target; preconditionFailed */
  change(
    recordId: string,
    given: SyncRecordChange,
    caller: Caller,
    ifMatch: string | undefined,
  ): Promise<SyncRecordRow>;
  /** Requests an immediate run. Returns the changed record; undefined if it is gone, paused or tampered with. */
  request(recordId: string): Promise<SyncRecordRow | undefined>;
}

/** Range of all records. */
export const ALL_RECORDS = { partitionKey: SYNC, from: RECORD_PREFIX, before: keyEnd(RECORD_PREFIX) };

/** Content of the API's cursor: the row key of the page's last record, and the filter as JSON. */
const Cursor = z.object({ after: z.string().max(64), filter: z.string() });

export function createRecords(deps: {
  tables: Tables;
  queues: Queues;
  audit: Pick<Audit, "append">;
  rules: RecordRules;
  indexes: RecordIndexes;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): SyncRecords {
  const { tables, queues, audit, rules, indexes, clock, randomness } = deps;

  async function readRow(recordId: string): Promise<{ row?: SyncRecordRow | undefined; broken?: Tampered }> {
    if (!isRecordId(recordId)) return {};
    try {
      return { row: await tables.get(Records, SYNC, recordKey(recordId)) };
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      return { broken: { recordId, etag: error.etag } };
    }
  }

  async function find(recordId: string): Promise<SyncRecordRow | undefined> {
    const { row, broken } = await readRow(recordId);
    if (broken) throw tampered(recordId, "Delete the record (its target stays) and create it again.");
    return row;
  }

  async function get(recordId: string): Promise<SyncRecordRow> {
    const record = await find(recordId);
    if (!record) throw notFound(`The sync record ${recordId.slice(0, 64)}`);
    return record;
  }

  const asRow = (record: SyncRecord, etag: string): SyncRecordRow => ({
    ...record,
    partitionKey: SYNC,
    rowKey: recordKey(record.recordId),
    etag,
  });

  /** Writes a changed record together with its due row. */
  async function write(before: SyncRecordRow, next: SyncRecord): Promise<SyncRecordRow> {
    const etags = await indexes.submit([
      replace(Records, before.rowKey, next, before.etag),
      ...dueRowOperations(before, next),
    ]);
    return asRow(next, etags.get(before.rowKey)!);
  }

  const send = (recordId: string) => queues.send(RUN_QUEUE, { recordId });

  /** Returns the record as due now. */
  const dueNow = (record: SyncRecord): SyncRecord => ({
    ...record,
    state: record.state === "new" ? "new" : "pending",
    nextRunAt: clock.now().toISOString(),
    // A run in progress that sees another number when it ends leaves the record due (outcomes.ts).
    requests: record.requests + 1,
  });

  /** Names the unreadable record in the answer, so that an administrator can delete it. */
  const onCorrupt = (row: StorageCorrupt) => countLeftOut(row, row.rowKey.slice(recordKey("").length));

  return {
    readRow,
    find,
    get,

    async any() {
      // Each record has one reference by its target. The records themselves are signed rows, which are always read whole.
      const range = { partitionKey: SYNC, from: TARGET_PREFIX, before: keyEnd(TARGET_PREFIX), pageSize: 1 };
      for await (const _ of tables.pages(References, { ...range, select: [] })) return true;
      return false;
    },

    async list(filter, { limit, offset, cursor: text }) {
      const filterText = JSON.stringify(filter);
      const cursor = text === undefined ? undefined : decodeCursor(Cursor, text);
      if (cursor && cursor.filter !== filterText) {
        throw new Problem("invalidCursor", "This cursor belongs to other filters. Start without it.");
      }
      const items: SyncRecordRow[] = [];
      let total = 0;
      let matchesSinceCursor = 0;
      for await (const rows of tables.pages(Records, { ...ALL_RECORDS, onCorrupt })) {
        for (const row of rows) {
          if (!matchesFilter(row, filter)) continue;
          total += 1;
          if (cursor && row.rowKey <= cursor.after) continue;
          matchesSinceCursor += 1;
          if (matchesSinceCursor > offset && items.length < limit) items.push(row);
        }
      }
      const last = items.at(-1);
      const isMore = last !== undefined && matchesSinceCursor > offset + items.length;
      const nextCursor = isMore ? encodeCursor({ after: last.rowKey, filter: filterText }) : null;
      return { items, total, limit, offset, nextCursor };
    },

    async *every() {
      for await (const rows of tables.pages(Records, { ...ALL_RECORDS, onCorrupt })) yield* rows;
    },

    async create(given, caller) {
      const sourceAndTarget = await rules.check(given);
      const now = clock.now();
      const at = now.toISOString();
      const { scheduleHours, enabled, onDrift, adopt } = given;
      const record: SyncRecord = {
        recordId: randomness.ulid(now),
        ...sourceAndTarget,
        scheduleHours,
        enabled,
        onDrift,
        adopt,
        state: "new",
        targetOwned: false,
        failedRuns: 0,
        ...(enabled && { nextRunAt: at }),
        requests: 0,
        createdAt: at,
        createdBy: caller.actor,
        updatedAt: at,
        updatedBy: caller.actor,
      };
      const { recordId } = record;
      const event = { type: "syncRecord.created", caller, target: recordTarget(recordId), after: record };
      const target = keyOfTarget(record);
      const add = (targetReference: Operation) =>
        tables.transaction(Records.table, SYNC, [
          insert(Records, recordKey(recordId), record),
          targetReference,
          insert(References, sourceKey(record), { recordId }),
          // `sentAt` means the message that `create` sends below. If it is lost, the timer sends one after half an hour.
          ...(enabled ? [insert(DueRows, dueKey(at, recordId), { sentAt: at })] : []),
        ]);
      const etags = await audited(audit, event, async () => {
        try {
          return await add(insert(References, target, { recordId }));
        } catch (error) {
          if (!(error instanceof RowExists)) throw error;
          // The target has a reference. It may be left over from a record whose row another program deleted.
          return await add(replace(References, target, { recordId }, await etagOfOrphanedReference(record)));
        }
      });
      if (enabled) await send(recordId);
      return asRow(record, etags.get(recordKey(recordId))!);
    },

    async change(recordId, given, caller, ifMatch) {
      const planChange = async () => {
        const row = await get(recordId);
        requireMatch(row.etag, ifMatch, THE_RECORD);
        await rules.checkUnchanged(row, given);
        const before: SyncRecord = withoutKeys(row);
        const { scheduleHours, enabled, onDrift, adopt } = { ...before, ...given };
        const changed: SyncRecord = {
          ...(given.confirmVaults ? withConfirmedVaults(before, clock.now()) : before),
          scheduleHours,
          enabled,
          onDrift,
          adopt,
          updatedAt: clock.now().toISOString(),
          updatedBy: caller.actor,
        };
        return { row, before, next: enabled ? dueNow(changed) : withoutNextRun(changed) };
      };
      // The first plan is also the audit event's content. After a conflict, the change is planned again on the current row.
      const first = await planChange();
      const { before, next: after } = first;
      const event = { type: "syncRecord.changed", caller, target: recordTarget(recordId), before, after };
      const effect = async (attempt: number) => {
        const { row, before, next } = attempt === 1 ? first : await planChange();
        return { before, written: await write(row, next) };
      };
      const { written } = await audited(
        audit,
        event,
        () => repeatOnConflict(effect),
        ({ before, written }) => ({ before, after: withoutKeys(written) }),
      );
      if (written.enabled) await send(recordId);
      return written;
    },

    async request(recordId) {
      const written = await repeatOnConflict(async () => {
        const { row } = await readRow(recordId);
        return row?.enabled ? await write(row, dueNow(withoutKeys(row))) : undefined;
      });
      if (written) await send(recordId);
      return written;
    },
  };

  /**
   * Returns the ETag of a target's reference whose record was deleted by another program.
   * @throws {Problem} alreadyExists if the record exists
   */
  async function etagOfOrphanedReference(record: SyncRecord): Promise<string> {
    const reference = await tables.get(References, SYNC, keyOfTarget(record));
    const owner = reference && (await readRow(reference.recordId));
    if (reference && !owner?.row && !owner?.broken) return reference.etag;
    throw targetTaken(reference?.recordId);
  }

  function targetTaken(recordId: string | undefined): Problem {
    const detail =
      recordId === undefined
        ? "A sync record that was deleted a moment ago wrote this target. Send the request again."
        : `The sync record ${recordId} already writes this target. A target can have only one record.`;
    return new Problem("alreadyExists", detail, { members: { recordId } });
  }
}

/** Drops the recorded vaults. The next run accepts vaults of these names that were created before now. */
function withConfirmedVaults(record: SyncRecord, now: Date): SyncRecord {
  const { sourceIdentity: _s, targetIdentity: _t, ...others } = record;
  return { ...others, vaultsConfirmedAt: now.toISOString() };
}

function withoutNextRun(record: SyncRecord): SyncRecord {
  const { nextRunAt: _, ...others } = record;
  return others;
}

function matchesFilter(row: SyncRecordRow, filter: RecordFilter): boolean {
  const matches = (wanted: string | undefined, value: string) =>
    wanted === undefined || wanted.toLowerCase() === value.toLowerCase();
  return (
    (filter.state === undefined || stateOf(row) === filter.state) &&
    matches(filter.targetProvider, row.targetProvider) &&
    matches(filter.sourceVault, row.sourceVault) &&
    matches(filter.sourceSecret, row.sourceSecret)
  );
}

/** Creates the problem for a tampered record. */
export const tampered = (recordId: string, remedy: string): Problem =>
  new Problem(
    "conflict",
    `The row of the sync record ${recordId} was changed by another program and is not used. Find out who can write this service's tables. ${remedy}`,
  );

const THE_RECORD = "The sync record";

/** Returns a record as the target of an audit entry. */
export const recordTarget = (recordId: string) => ({ type: "syncRecord", id: recordId });
