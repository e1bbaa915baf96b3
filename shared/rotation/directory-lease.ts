import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS, SECOND_MS } from "../platform/time.ts";
import { ROTATIONS, WriterLeases } from "./rotation.ts";
import { ContinueLater } from "./step-errors.ts";

/**
 * A worker has the lease of a rotation until it has not written the rotation for this time. It is then considered crashed. One
 * call to the cloud ends within 4 minutes, including its retries (`CALL_LIMITS`).
 */
export const LEASE_MS = 5 * MINUTE_MS;

/**
 * Minimum time between two changes of the tenant's applications. Microsoft Graph rejects two within 300 ms. Ages are whole
 * seconds, so an age of 2 means more than one second. https://learn.microsoft.com/graph/throttling-limits
 */
const MIN_CHANGE_INTERVAL_MS = 2 * SECOND_MS;
/**
 * Limits of the wait while another worker changes an application. A change takes a second or two, unless the worker crashed.
 */
const BUSY_SECONDS = { minimum: 3, maximum: 30 };
const LEASE_ROW = "tenant";

/**
 * Runs a change of the tenant's applications while no other worker of this service changes one.
 *
 * @param workerId - ID of the worker, stored in the lease.
 * @throws {ContinueLater} if another worker changes an application or did so in the last two seconds.
 */
export async function withDirectoryLease<T>(
  deps: { tables: Tables; clock: Clock; randomness: Randomness },
  workerId: string,
  write: () => Promise<T>,
): Promise<T> {
  const releaseLease = await acquireDirectoryLease(deps, workerId);
  try {
    return await write();
  } finally {
    await releaseLease();
  }
}

/** @returns A function that releases the lease. */
async function acquireDirectoryLease(
  { tables, clock, randomness }: { tables: Tables; clock: Clock; randomness: Randomness },
  workerId: string,
): Promise<() => Promise<void>> {
  const leaseRow = await tables.getWithAge(WriterLeases, ROTATIONS, LEASE_ROW);
  if (leaseRow && leaseRow.row.owner !== "" && leaseRow.ageMs < LEASE_MS) {
    // Waits about as long as the other worker has already held the lease, within the limits.
    throw new ContinueLater(
      Math.min(BUSY_SECONDS.maximum, Math.max(BUSY_SECONDS.minimum, Math.ceil(leaseRow.ageMs / SECOND_MS))),
    );
  }
  if (leaseRow && leaseRow.row.owner === "" && leaseRow.ageMs < MIN_CHANGE_INTERVAL_MS)
    throw new ContinueLater(MIN_CHANGE_INTERVAL_MS / SECOND_MS);
  const leaseOf = (owner: string) => ({ owner, writeId: randomness.ulid(clock.now()) });
  try {
    const acquired =
      leaseRow === undefined
        ? await tables.insert(WriterLeases, ROTATIONS, LEASE_ROW, leaseOf(workerId))
        : await tables.replace(WriterLeases, { ...leaseRow.row, ...leaseOf(workerId) });
    return async () => void (await undefinedIfChanged(tables.replace(WriterLeases, { ...acquired, ...leaseOf("") })));
  } catch (error) {
    if (isConflict(error)) throw new ContinueLater(BUSY_SECONDS.minimum);
    throw error;
  }
}
