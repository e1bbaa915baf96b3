import { type LeasedRow, type Taker, takeLease, type WorkKind } from "../platform/runs/leased-row.ts";
import { withoutKeys } from "../platform/storage/entity.ts";
import { type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { type LeaseRecord, Leases, leaseKey, SYNC } from "./record.ts";

/**
 * Leases on sync records. A worker needs the lease of a record to run or delete it. States of a lease (`leaseState`). Any event
 * in another state is rejected.
 *
 * | state | event | next state | written |
 * |---|---|---|---|
 * | `none`, `free` | taken | `leased` | worker |
 * | `leased`, expired | taken | `leased` | the new worker |
 * | `leased` by a deletion that keeps the target | taken by a deletion | `leased` | the new worker |
 * | `leased` | announced | `leased` | the source version that is about to be written, and whether the target is new |
 * | `leased` | released | `free` | |
 * | `leased` | ended with the outcome of the run (`leaseEnd`, no `LeaseEvent`) | `none` | the row is deleted |
 *
 * An announced source version stays until the lease ends or another worker announces its own write, so that the worker after a
 * crash knows which write may have happened. The note that the target may have been created (`creating`) stays until the lease
 * ends.
 */

/**
 * A lease expires after this time unless its worker renews it. A run reads for 90 seconds at most, renews its lease, and then
 * writes. All calls of one write end within four minutes. There is no heartbeat: a worker that hangs must not keep the record.
 */
export const LEASE_MS = 6 * MINUTE_MS;

/** Prefixes of the workers that delete a record: without its target, and with it. */
const DELETION = "delete record ";
const DELETION_WITH_TARGET = "delete target ";
/** Returns the name of a worker that deletes a record for a request. */
export const deletionWorker = (requestId: string, withTarget: boolean): string =>
  (withTarget ? DELETION_WITH_TARGET : DELETION) + requestId;
const isDeletion = (worker: string): boolean => worker.startsWith(DELETION) || worker.startsWith(DELETION_WITH_TARGET);

/** An event that changes a lease. The table above lists the events. */
export type LeaseEvent =
  | ({ type: "taken" } & Taker)
  | { type: "announced"; writing: string; creating: boolean }
  | { type: "released" };

/** Returns the state of a lease. `none`: there is no lease row. */
export const leaseState = (lease: LeaseRecord | undefined): "none" | "free" | "leased" =>
  lease === undefined ? "none" : lease.free ? "free" : "leased";

/** Returns the lease after an event; undefined if the event is rejected. */
export function nextLease(lease: LeaseRecord | undefined, event: LeaseEvent): LeaseRecord | undefined {
  if (event.type === "taken") {
    // A deletion that keeps the target writes only rows, under its lease. So another deletion may take over immediately.
    const isReplaceable = lease?.owner.startsWith(DELETION) === true && isDeletion(event.worker);
    if (leaseState(lease) === "leased" && !event.abandoned && !isReplaceable) return undefined;
    return { ...lease, owner: event.worker, free: false };
  }
  if (lease === undefined || leaseState(lease) !== "leased") return undefined;
  if (event.type === "released") return { ...lease, free: true };
  // If an earlier worker may have created the target, that stays known although the target now exists.
  return { ...lease, writing: event.writing, creating: event.creating || lease.creating === true };
}

/**
 * Returns whether a failed run, or an earlier worker that crashed, may have created the target.
 *
 * @param taken - The lease as this worker took it.
 * @param last - The lease when the run failed.
 * @param unclear - Whether the write may have happened although it failed.
 */
export const mayHaveCreated = (taken: LeaseRecord, last: LeaseRecord, unclear: boolean): boolean =>
  taken.creating === true || (unclear && last.creating === true);

const LEASE_KIND: WorkKind<LeaseRecord> = {
  entity: Leases,
  leaseMs: LEASE_MS,
  heartbeatMs: undefined,
  isLeased: (lease) => leaseState(lease) === "leased",
  take: (lease, taker) => nextLease(lease, { type: "taken", ...taker }),
};

/** A worker's lease on a record. */
export type Lease = LeasedRow<LeaseRecord>;

/** Takes the lease of a record. Returns `waitMs`, the milliseconds until the lease expires, if another worker has it. */
export async function takeRecordLease(
  tables: Tables,
  recordId: string,
  worker: string,
): Promise<Lease | { waitMs: number }> {
  const taken = await takeLease(tables, LEASE_KIND, { partitionKey: SYNC, rowKey: leaseKey(recordId) }, worker);
  // Undefined only for work that can't be leased anymore. A record always can.
  return taken!;
}

/**
 * Writes an event under the lease. A worker that has the lease knows its row as `leased`, so `nextLease` rejects no event here.
 *
 * @throws A conflict if another worker has taken the lease.
 */
export const changeLease = (lease: Lease, event: LeaseEvent): Promise<void> =>
  lease.change(nextLease(withoutKeys(lease.row), event)!);

/** Returns the operation that ends the lease, for a transaction. It fails if another worker has taken the lease. */
export const leaseEnd = ({ row }: Lease): Operation => remove(Leases, row.rowKey, row.etag);

/** Returns whether a worker has the lease of the record now. */
export async function isLeased(tables: Tables, recordId: string): Promise<boolean> {
  const lease = await tables.getWithAge(Leases, SYNC, leaseKey(recordId));
  return leaseState(lease?.row) === "leased" && lease!.ageMs < LEASE_MS;
}
