import { isConflict } from "../platform/storage/conflict.ts";
import { type Operation, remove, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { type LeaseRecord, Leases, leaseKey, SYNC } from "./record.ts";

/**
 * How long a worker holds a record without a sign of it. A run looks for 90 seconds at most, renews its lease, and then
 * writes: all of the calls that one write takes end within four minutes.
 */
export const LEASE_MS = 6 * MINUTE_MS;

/** One worker's hold on a record: no other runs it. */
export interface Lease {
  /** What the worker before this one was about to write when it died. */
  readonly before: { writing: string; creating: boolean } | undefined;
  /** Whether it announced that nothing was there before. */
  readonly creating: boolean;
  /**
   * Says what is about to be written, and that this worker still holds the record.
   *
   * @returns False when another worker has taken it: nothing may be written then.
   */
  announce(writing: string, creating: boolean): Promise<boolean>;
  /** For the transaction of the run's outcome: it fails when another worker has taken the record. */
  end(): Operation;
  /** Gives it up without an outcome. */
  release(): Promise<void>;
}

/**
 * Undefined, with the milliseconds it may last, when another worker holds the record.
 *
 * @param mayTakeOver - Whether this one may go on at once in the place of that owner, alive or not.
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
  let said: Pick<LeaseRecord, "writing" | "creating"> = writing === undefined ? {} : { writing, creating };
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
    before: writing === undefined ? undefined : { writing, creating },
    get creating() {
      return announced && said.creating === true;
    },

    async announce(version, isNew) {
      announced = true;
      said = { writing: version, creating: isNew };
      return await write({ owner, ...said });
    },

    end: () => remove(Leases, key, row.etag),

    async release() {
      await write({ owner, ...said, free: true });
    },
  };
  return { lease };
}

/** Whether a worker holds the record now. */
export async function isHeld(tables: Tables, recordId: string): Promise<boolean> {
  const found = await tables.getWithAge(Leases, SYNC, leaseKey(recordId));
  return found !== undefined && !found.row.free && found.ageMs < LEASE_MS;
}
