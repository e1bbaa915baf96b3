import { isConflict } from "../storage/conflict.ts";
import { type Entity, type Row, withoutKeys } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import { startHeartbeat } from "./heartbeat.ts";

/**
 * Leased work. A work item is a row that one worker at a time works on. The worker writes itself into the row and rewrites it
 * while it works. If the row's last write is older than the lease, by the store's clock, the worker has crashed and another one
 * takes over.
 */

/** A worker that wants the lease of a work item. */
export interface Taker {
  readonly worker: string;
  /** Whether the lease of the current worker has expired. False if there is none. */
  readonly abandoned: boolean;
}

/** A kind of work item. Its states are in a table at the head of the file that defines its `take`. */
export interface WorkKind<Item extends object> {
  readonly entity: Entity<Item>;
  readonly leaseMs: number;
  /** Interval of the heartbeat. Undefined: only the worker's own changes renew its lease. */
  readonly heartbeatMs: number | undefined;
  readonly isLeased: (item: Item) => boolean;
  /**
   * Returns the item to write, leased by the new worker, or not leased, for example with the state failed after too many attempts.
   * Returns undefined if this worker can't have the item. A pure function.
   */
  readonly take: (item: Item | undefined, taker: Taker) => Item | undefined;
}

/** Lease of work that a heartbeat renews. */
export const HEARTBEAT_LEASE = { leaseMs: 60 * SECOND_MS, heartbeatMs: 15 * SECOND_MS };

/**
 * Takes the lease of a work item.
 *
 * @param keys - Keys of the item's row, which may not exist yet.
 * @returns `waitMs` if another worker has the item: milliseconds until its lease expires. Undefined if the item can't be
 * leased anymore.
 */
export async function takeLease<Item extends object>(
  tables: Tables,
  kind: WorkKind<Item>,
  keys: { partitionKey: string; rowKey: string },
  worker: string,
): Promise<LeasedRow<Item> | { waitMs: number } | undefined> {
  const { partitionKey, rowKey } = keys;
  const { entity, leaseMs, heartbeatMs, isLeased } = kind;
  const stored = await tables.getWithAge(entity, partitionKey, rowKey);
  const remainingMs = stored && isLeased(stored.row) ? leaseMs - stored.ageMs : undefined;
  const abandoned = remainingMs !== undefined && remainingMs <= 0;
  const item = kind.take(stored && (withoutKeys(stored.row) as Item), { worker, abandoned });
  if (item === undefined) return remainingMs === undefined ? undefined : { waitMs: remainingMs };
  try {
    // The replacement has the ETag of the read row, so only one of several takers succeeds.
    const row = stored
      ? await tables.replace(entity, { ...stored.row, ...item })
      : await tables.insert(entity, partitionKey, rowKey, item);
    return isLeased(row) ? leaseRow(tables, entity, row, heartbeatMs) : undefined;
  } catch (error) {
    // Another taker was faster, so its lease has just begun.
    if (isConflict(error)) return { waitMs: leaseMs };
    throw error;
  }
}

/**
 * A row that this worker has leased. This worker notices that another one has taken over, because the ETag of its own last
 * write is then outdated.
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
 * Holds the lease of a row that this worker has just written to claim it. With a heartbeat, the row is rewritten regularly, so
 * that the lease does not expire.
 *
 * @param claimedRow - The row as returned by that write.
 * @param heartbeatMs - Undefined for no heartbeat. Only `end`, or a takeover by another worker, stops a heartbeat.
 */
export function leaseRow<R extends object>(
  tables: Tables,
  entity: Entity<R>,
  claimedRow: Row<R>,
  heartbeatMs: number | undefined,
): LeasedRow<R> {
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
          void renewals?.stop();
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
  const renewals = heartbeatMs === undefined ? undefined : startHeartbeat(heartbeatMs, () => change({}));

  return {
    get row() {
      return row;
    },
    signal: aborted.signal,
    change,
    async end(write) {
      await renewals?.stop();
      await serialized(async () => void (await write(row)));
    },
  };
}
