import { isConflict } from "../storage/conflict.ts";
import type { Entity, Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import { startHeartbeat } from "./heartbeat.ts";

/** Duration of a lease after its last heartbeat, by the store's clock. */
export const LEASE_MS = 60 * SECOND_MS;
const RENEWAL_INTERVAL_MS = 15 * SECOND_MS;

/**
 * A row that this worker has leased. Other workers can take over the row when its last write is older than `LEASE_MS`. This
 * worker notices that because the ETag of its own last write is then outdated.
 */
export interface LeasedRow<R extends object> {
  /** The row as last written. */
  readonly row: Row<R>;
  /** Aborted when another worker has taken over the row. */
  readonly signal: AbortSignal;
  /** @throws a conflict if another worker has taken over the row. */
  change(change: Partial<R>): Promise<void>;
  /**
   * Ends the lease with this write.
   *
   * @throws a conflict if another worker has taken over the row.
   */
  end(write: (row: Row<R>) => Promise<unknown>): Promise<void>;
}

/**
 * Holds the lease of a row that this worker has just written to claim it. A heartbeat rewrites the row regularly, so that its
 * age stays below `LEASE_MS`.
 *
 * @param claimedRow - The row as returned by that write.
 */
export function leaseRow<R extends object>(tables: Tables, entity: Entity<R>, claimedRow: Row<R>): LeasedRow<R> {
  const aborted = new AbortController();
  let row = claimedRow;
  /** Writes run one after the other, because each needs the ETag of the previous write. */
  let writing: Promise<unknown> = Promise.resolve();

  function serialized(write: () => Promise<void>): Promise<void> {
    const queued = writing.then(async () => {
      try {
        await write();
      } catch (error) {
        if (isConflict(error)) {
          // Not awaited, because `stop` waits for the current renewal, which may be this write. It never rejects.
          void renewals.stop();
          aborted.abort();
        }
        throw error;
      }
    });
    writing = queued.catch(() => {});
    return queued;
  }
  const change = (value: Partial<R>) =>
    serialized(async () => {
      row = await tables.replace(entity, { ...row, ...value });
    });
  const renewals = startHeartbeat(RENEWAL_INTERVAL_MS, () => change({}));

  return {
    get row() {
      return row;
    },
    signal: aborted.signal,
    change,
    async end(write) {
      await renewals.stop();
      await serialized(async () => void (await write(row)));
    },
  };
}
