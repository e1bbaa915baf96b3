import { isConflict } from "../platform/storage/conflict.ts";
import { type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { type LeaseRecord, Leases, leaseKey, SYNC } from "./record.ts";

/**
 * A lease expires after this time unless its worker renews it. A run reads for 90 seconds at most, renews its lease, and then
 * writes. All calls of one write end within four minutes.
 */
export const LEASE_MS = 6 * MINUTE_MS;

/** A worker's lease on a record. No other worker runs the record. */
export interface Lease {
  /** The write that the previous worker announced before it crashed. */
  readonly interruptedWrite: { writing: string; creating: boolean } | undefined;
  /** Whether the target did not exist when this worker announced its write. */
  readonly creating: boolean;
  /**
   * Announces a write and renews the lease.
   *
   * @param writing - The source version.
   * @param creating - Whether the target does not exist yet.
   * @returns False if another worker has taken the lease. The caller must not write then.
   */
  announce(writing: string, creating: boolean): Promise<boolean>;
  /**
   * Returns the operation that ends the lease, for the transaction of the run's outcome. The transaction fails if another
   * worker has taken the lease.
   */
  end(): Operation;
  /** Releases the lease without an outcome. */
  release(): Promise<void>;
}

/**
 * Takes the lease of a record. Returns undefined, with the milliseconds to wait, if another worker has it.
 *
 * @param mayTakeOver - Returns whether this worker may take over from that owner immediately, even if the owner is still
 * running.
 */
export async function takeLease(
  tables: Tables,
  recordId: string,
  owner: string,
  mayTakeOver: (owner: string) => boolean = () => false,
): Promise<{ lease: Lease } | { lease: undefined; waitMs: number }> {
  const key = leaseKey(recordId);
  const found = await tables.getWithAge(Leases, SYNC, key);
  if (found && !found.row.free && found.ageMs < LEASE_MS && !mayTakeOver(found.row.owner))
    return { lease: undefined, waitMs: LEASE_MS - found.ageMs };
  let row: { etag: string };
  try {
    row = found
      ? await tables.replace(Leases, { ...found.row, owner, free: false })
      : await tables.insert(Leases, SYNC, key, { owner });
  } catch (error) {
    if (isConflict(error)) return { lease: undefined, waitMs: LEASE_MS };
    throw error;
  }
  const { writing, creating = false } = found?.row ?? {};
  // An earlier worker's announcement stays in the row until this worker announces its own write or ends the lease.
  let announcement: Pick<LeaseRecord, "writing" | "creating"> = writing === undefined ? {} : { writing, creating };
  let announced = false;
  async function write(value: LeaseRecord): Promise<boolean> {
    try {
      row = await tables.replace(Leases, { ...value, partitionKey: SYNC, rowKey: key, etag: row.etag });
      return true;
    } catch (error) {
      if (isConflict(error)) return false;
      throw error;
    }
  }
  const lease: Lease = {
    interruptedWrite: writing === undefined ? undefined : { writing, creating },
    get creating() {
      return announced && announcement.creating === true;
    },

    async announce(version, isNew) {
      announced = true;
      announcement = { writing: version, creating: isNew };
      return await write({ owner, ...announcement });
    },

    end: () => remove(Leases, key, row.etag),

    async release() {
      await write({ owner, ...announcement, free: true });
    },
  };
  return { lease };
}

/** Returns whether a worker has the lease of the record now. */
export async function isLeased(tables: Tables, recordId: string): Promise<boolean> {
  const found = await tables.getWithAge(Leases, SYNC, leaseKey(recordId));
  return found !== undefined && !found.row.free && found.ageMs < LEASE_MS;
}
