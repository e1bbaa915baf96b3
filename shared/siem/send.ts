import { randomUUID } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { SealedLogChanged } from "../audit/sealed-log.ts";
import type { Compliance } from "../compliance/compliance.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { HEARTBEAT_LEASE, type LeasedRow, takeLease, type WorkKind } from "../platform/runs/leased-row.ts";
import type { Clock } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import type { Row } from "../platform/storage/entity.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { type Destination, SendFailed } from "./destinations.ts";
import { auditEvent, type StreamEvent, violationEvent } from "./event.ts";
import {
  Progress,
  type ProgressRecord,
  progressKey,
  readProgress,
  STREAMS,
  type StreamRecord,
  Streams,
} from "./stream.ts";

/**
 * Sends the events of streams, at least once and in order. A worker takes the lease of a stream's progress, sends a batch, and then
 * writes the position after it. A worker that crashes in between sends the batch again, with the same event IDs.
 */

/** Time after which a run stops sending and the next run continues. Below the interval of the timer. */
const RUN_MS = 4 * MINUTE_MS;
/** Delay after the first failed attempt. It doubles with each further one. */
const FIRST_DELAY_MS = MINUTE_MS;
const MAX_DELAY_MS = HOUR_MS;

/** The lease of a stream's progress. The stream is leased while a worker is named. */
const LEASE: WorkKind<ProgressRecord> = {
  entity: Progress,
  ...HEARTBEAT_LEASE,
  isLeased: ({ worker }) => worker !== undefined,
  take: (progress, { worker, abandoned }) =>
    progress && (progress.worker === undefined || abandoned) ? { ...progress, worker } : undefined,
};

/** The newest digest, which all streams of a run share. */
type Newest = Awaited<ReturnType<Audit["sealed"]["newest"]>>;

/** Sends the events of streams. */
export interface StreamSender {
  /**
   * Sends what is new for a stream. Without anything new it costs one read of the progress and, for violations, one query.
   *
   * @returns Number of events that the receiver accepted.
   */
  send(stream: Row<StreamRecord>, newest: Newest, caller: Caller): Promise<number>;
}

export function createStreamSender(deps: {
  tables: Tables;
  audit: Pick<Audit, "append" | "sealed">;
  compliance: Pick<Compliance, "violationChanges">;
  open(stream: StreamRecord): Promise<Destination>;
  clock: Clock;
}): StreamSender {
  const { tables, audit, compliance, clock } = deps;

  async function hasNewEvents({ content }: StreamRecord, progress: ProgressRecord, newest: Newest): Promise<boolean> {
    if (content.includes("audit") && newest && newest.interval >= progress.audit.interval) return true;
    return content.includes("violations") && (await compliance.violationChanges.oldest(progress.violations)) !== null;
  }

  /** Yields the events after the position, in order: first those of the audit log, then those of violations. */
  async function* eventsAfter({ content }: StreamRecord, progress: ProgressRecord): AsyncGenerator<StreamEvent> {
    if (content.includes("audit"))
      for await (const item of audit.sealed.itemsAfter(progress.audit)) yield auditEvent(item);
    if (content.includes("violations"))
      for await (const change of compliance.violationChanges.after(progress.violations)) yield violationEvent(change);
  }

  /** Returns whether the stream's row is still the one with which its destination was opened. */
  async function isUnchanged({ partitionKey, rowKey, etag }: Row<StreamRecord>): Promise<boolean> {
    try {
      return (await tables.get(Streams, partitionKey, rowKey))?.etag === etag;
    } catch (error) {
      if (error instanceof StorageCorrupt) return false;
      throw error;
    }
  }

  /**
   * Sends batches until nothing is new, the time is over, or the stream was changed, paused or deleted.
   *
   * @throws {SendFailed}; {SealedLogChanged} after everything genuine before the change was sent; a conflict if another worker took over
   */
  async function sendBatches(
    stream: Row<StreamRecord>,
    lease: LeasedRow<ProgressRecord>,
    caller: Caller,
  ): Promise<void> {
    const destination = await deps.open(stream);
    const deadline = performance.now() + RUN_MS;
    for await (const batch of batchesOf(eventsAfter(stream, lease.row), destination)) {
      if (!(await isUnchanged(stream))) return;
      await destination.send(batch, lease.signal);
      const { failures, failingSince } = lease.row;
      await lease.change({
        ...positionAfter(batch),
        ...HEALTHY,
        sent: lease.row.sent + batch.length,
        lastSentAt: clock.now().toISOString(),
      });
      if (failures > 0) await record("auditStream.recovered", stream, { failingSince, failures }, caller);
      if (performance.now() > deadline) return;
    }
  }

  const record = async (type: string, { streamId }: StreamRecord, details: Record<string, unknown>, caller: Caller) =>
    await audit.append({ type, caller, outcome: "success", target: { type: "auditStream", id: streamId }, details });

  return {
    async send(stream, newest, caller) {
      const keys = { partitionKey: STREAMS, rowKey: progressKey(stream.streamId) };
      const progress = await readProgress(tables, stream.streamId);
      const now = clock.now().toISOString();
      // Without a position that this service signed, nothing is sent: a wrong one could leave out entries.
      if (typeof progress === "string" || (progress.nextAttemptAt ?? "") > now) return 0;
      if (!(await hasNewEvents(stream, progress, newest))) return 0;
      const lease = await takeLease(tables, LEASE, keys, randomUUID());
      if (!lease || "waitMs" in lease) return 0;
      let outcome: Partial<ProgressRecord> = {};
      try {
        await sendBatches(stream, lease, caller);
      } catch (error) {
        // Another worker has taken over, or the stream was deleted or changed. That ended the lease.
        if (isConflict(error)) return lease.row.sent - progress.sent;
        if (error instanceof SendFailed || error instanceof SealedLogChanged) {
          outcome = afterFailure(lease.row, error, clock.now());
          if (lease.row.failures === 0) await record("auditStream.failing", stream, { reason: error.message }, caller);
        } else {
          await endLease(lease, {});
          throw error;
        }
      }
      await endLease(lease, outcome);
      return lease.row.sent - progress.sent;
    },
  };

  /** Ends the lease. If another worker has taken over meanwhile, it writes its own outcome. */
  async function endLease(lease: LeasedRow<ProgressRecord>, outcome: Partial<ProgressRecord>): Promise<void> {
    try {
      await lease.end((row) => tables.replace(Progress, { ...row, ...outcome, worker: undefined }));
    } catch (error) {
      if (!isConflict(error)) throw error;
    }
  }
}

/** The members of a stream whose last attempt succeeded. */
const HEALTHY = {
  failures: 0,
  failingSince: undefined,
  error: undefined,
  logChanged: undefined,
  nextAttemptAt: undefined,
};

/** Returns the members after a failed attempt. */
function afterFailure(
  { failures, failingSince }: ProgressRecord,
  error: SendFailed | SealedLogChanged,
  now: Date,
): Partial<ProgressRecord> {
  const retryAfterSeconds = error instanceof SendFailed ? (error.retryAfterSeconds ?? 0) : 0;
  const backoff = Math.max(FIRST_DELAY_MS * 2 ** Math.min(failures, 10), retryAfterSeconds * SECOND_MS);
  return {
    failures: failures + 1,
    failingSince: failingSince ?? now.toISOString(),
    error: error.message,
    logChanged: error instanceof SealedLogChanged || undefined,
    nextAttemptAt: new Date(now.getTime() + Math.min(backoff, MAX_DELAY_MS)).toISOString(),
  };
}

/** Returns the positions after a batch. A batch can have events of both kinds of content. */
function positionAfter(batch: readonly StreamEvent[]): Partial<ProgressRecord> {
  const audit = batch.findLast(({ next }) => next.audit)?.next.audit;
  const violations = batch.findLast(({ next }) => next.violations)?.next.violations;
  return { ...(audit && { audit }), ...(violations && { violations }) };
}

/**
 * Groups events into batches that the destination accepts. A larger event is a batch of its own. If the log was changed, the last
 * batch ends before the change.
 */
async function* batchesOf(
  events: AsyncIterable<StreamEvent>,
  { maxBytes, maxEvents, sizeOf }: Destination,
): AsyncGenerator<StreamEvent[]> {
  let batch: StreamEvent[] = [];
  let bytes = 0;
  let changed: SealedLogChanged | undefined;
  try {
    for await (const event of events) {
      const size = sizeOf(event);
      if (batch.length > 0 && (batch.length === maxEvents || bytes + size > maxBytes)) {
        yield batch;
        [batch, bytes] = [[], 0];
      }
      batch.push(event);
      bytes += size;
    }
  } catch (error) {
    if (!(error instanceof SealedLogChanged)) throw error;
    changed = error;
  }
  if (batch.length > 0) yield batch;
  if (changed) throw changed;
}
