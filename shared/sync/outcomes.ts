import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict, repeatOnConflict } from "../platform/storage/conflict.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { type Operation, replace } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import type { SyncHistory } from "./history.ts";
import { dueRowOperations, type RecordIndexes } from "./indexes.ts";
import { type Lease, leaseEnd } from "./leases.ts";
import { Records, RUN_QUEUE, type SyncEntry, type SyncRecord, sourceOf, targetOf } from "./record.ts";
import type { SyncRecords } from "./records.ts";
import type { RunFailed } from "./run-failure.ts";

/**
 * Outcomes of runs. States of a record (`state`):
 *
 * | state | event: a run | next state | next run |
 * |---|---|---|---|
 * | any | found or wrote the source's version in the target | `inSync` | by the schedule |
 * | any | found another value in the target, and the record only reports that | `drifted` | by the schedule |
 * | any | recovered the deleted target, which the next run writes | `pending` | in some seconds |
 * | any | failed | `failing` | by the schedule; after a transient failure in 10 minutes, then twice as late each time |
 * | any | ended in any way, but another run was requested meanwhile | unchanged | immediately |
 * | any | ended in any way, but the record was paused meanwhile | as above | none |
 *
 * A new record is `new`. A requested run, or a user's change that leaves the record enabled, makes any other record `pending`
 * (records.ts).
 */

/** Wait after the first transient failure. It doubles with each further failure, up to the record's schedule. */
const FIRST_RETRY_MS = 10 * MINUTE_MS;
/** Maximum number of doublings: the wait stays below 43 hours, also if the schedule is longer. */
const MAX_DOUBLINGS = 8;
/** Number of attempts to write an outcome while users change the record. */
const ATTEMPTS = 10;

/** Result of a run, to be stored. */
export interface Outcome {
  /** Changed members of the record. Undefined removes a member. */
  change: { [K in keyof SyncRecord]?: SyncRecord[K] | undefined };
  /** The history entry; undefined if nothing changed. */
  entry?: Omit<SyncEntry, "entryId" | "recordId" | "at" | "source" | "target"> | undefined;
  /** Seconds until the next run. Undefined: the record's schedule applies. */
  againInSeconds?: number | undefined;
}

/** Services that store an outcome. */
export interface OutcomeDeps {
  queues: Queues;
  indexes: RecordIndexes;
  records: SyncRecords;
  history: SyncHistory;
  clock: Clock;
  randomness: Randomness;
}

/** Returns the current record after the outcome of a run. Changes that users made during the run stay. */
export function applyOutcome(
  started: SyncRecord,
  current: SyncRecord,
  { change, againInSeconds }: Outcome,
  now: Date,
): SyncRecord {
  const next: Record<string, unknown> = { ...current, ...change };
  // `requests` counts the immediate runs that were requested.
  if (current.requests !== started.requests) {
    // Another run was requested in the meantime, so the record stays due.
    next.state = current.state;
  } else if (current.enabled) {
    const waitMs = againInSeconds === undefined ? current.scheduleHours * HOUR_MS : againInSeconds * SECOND_MS;
    next.nextRunAt = new Date(now.getTime() + waitMs).toISOString();
  }
  return Object.fromEntries(Object.entries(next).filter(([, value]) => value !== undefined)) as SyncRecord;
}

/** Returns the outcome of a failure. After transient failures the record runs again with an increasing delay. */
export function failedOutcome(
  record: SyncRecord,
  { failure, isTransient, retryAfterSeconds }: Pick<RunFailed, "failure" | "isTransient" | "retryAfterSeconds">,
  now: Date,
): Outcome {
  const before = record.failure;
  const isNew = before?.code !== failure.code || before.side !== failure.side;
  const recordFailure = { ...failure, since: isNew ? now.toISOString() : before.since };
  const retryDelayMs = FIRST_RETRY_MS * 2 ** Math.min(record.failedRuns, MAX_DOUBLINGS);
  const delayMs = Math.max((retryAfterSeconds ?? 0) * SECOND_MS, retryDelayMs);
  return {
    change: { state: "failing", failure: recordFailure, failedRuns: record.failedRuns + 1 },
    entry: isNew ? { kind: "failed", failure: recordFailure } : undefined,
    againInSeconds: isTransient ? Math.min(delayMs, record.scheduleHours * HOUR_MS) / SECOND_MS : undefined,
  };
}

/** Stores an outcome and ends the lease, in one transaction. Returns false if another worker has taken the lease. */
export async function settle(started: SyncRecord, outcome: Outcome, lease: Lease, deps: OutcomeDeps): Promise<boolean> {
  const { queues, indexes, records, clock } = deps;
  const end = leaseEnd(lease);
  const { isOurs, next } = await repeatOnConflict(async () => {
    const row = await records.find(started.recordId);
    const next = row && applyOutcome(started, withoutKeys(row), outcome, clock.now());
    const operations = next
      ? [
          replace(Records, row.rowKey, next, row.etag),
          ...dueRowOperations(row, next),
          ...entryOperations(next, outcome, deps),
        ]
      : [];
    try {
      await indexes.submit([end, ...operations]);
      return { isOurs: true, next };
    } catch (error) {
      // Another worker has taken the lease. A conflict in any other row means that a user changed the record, so the write is
      // repeated on the changed record.
      if (isConflict(error) && error.rowKey === end.rowKey) return { isOurs: false, next };
      throw error;
    }
  }, ATTEMPTS);
  if (!isOurs) return false;
  if (!next?.enabled) return true;
  const { recordId } = next;
  if (next.requests !== started.requests) await queues.send(RUN_QUEUE, { recordId });
  // `pending`: the run has only recovered the deleted target, and the next run must write it.
  else if (next.state === "pending") {
    await queues.send(RUN_QUEUE, { recordId }, { delaySeconds: outcome.againInSeconds ?? 0 });
  }
  return true;
}

/** Returns the operations for the history entry of an outcome. */
function entryOperations(record: SyncRecord, { entry }: Outcome, { history, clock, randomness }: OutcomeDeps) {
  if (!entry) return [];
  const now = clock.now();
  const { recordId } = record;
  const about = { recordId, at: now.toISOString(), source: sourceOf(record), target: targetOf(record), ...entry };
  return history.entryOperations({ entryId: randomness.ulid(now), ...about });
}

/**
 * Returns the operations for a history entry of a record whose row can't be read. Source and target come from its last entry.
 */
export async function entryOfUnreadable(
  recordId: string,
  entry: NonNullable<Outcome["entry"]>,
  { history, clock, randomness }: Pick<OutcomeDeps, "history" | "clock" | "randomness">,
): Promise<Operation[]> {
  const { source = UNKNOWN, target = UNKNOWN } = (await history.last(recordId)) ?? {};
  const now = clock.now();
  const about = { recordId, at: now.toISOString(), source, target, ...entry };
  return history.entryOperations({ entryId: randomness.ulid(now), ...about });
}

const UNKNOWN = "unknown";
