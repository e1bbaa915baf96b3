import { isConflict } from "../storage/conflict.ts";
import type { Entity, Row } from "../storage/entity.ts";
import type { Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import { startRenewals } from "./renewals.ts";

/** How long a row stays with a worker after its last sign of life, by the store's clock. */
export const LEASE_MS = 60 * SECOND_MS;
const RENEWAL_MS = 15 * SECOND_MS;

/** One worker's hold on a row, by the ETag of its last write and by the row's age. */
export interface HeldRow<R extends object> {
  /** As it was last written. */
  readonly row: Row<R>;
  /** Aborted when another worker has taken the row over. */
  readonly signal: AbortSignal;
  /** @throws a conflict when another worker has it. */
  change(change: Partial<R>): Promise<void>;
  /** Ends the hold with this write. @throws as `change` */
  end(write: (row: Row<R>) => Promise<unknown>): Promise<void>;
}

/**
 * Holds a row that this worker has just written, and writes it again and again so that it does not age.
 *
 * @param taken - As that write answered it.
 */
export function holdRow<R extends object>(tables: Tables, entity: Entity<R>, taken: Row<R>): HeldRow<R> {
  const aborted = new AbortController();
  let row = taken;
  /** One write after the other: each needs the ETag of the one before. */
  let writing: Promise<unknown> = Promise.resolve();

  function inTurn(write: () => Promise<void>): Promise<void> {
    const turn = writing.then(async () => {
      try {
        await write();
      } catch (error) {
        if (isConflict(error)) {
          // It handles every error of a renewal itself.
          void renewals.stop();
          aborted.abort();
        }
        throw error;
      }
    });
    writing = turn.catch(() => {});
    return turn;
  }
  const change = (value: Partial<R>) =>
    inTurn(async () => {
      row = await tables.replace(entity, { ...row, ...value });
    });
  const renewals = startRenewals(RENEWAL_MS, () => change({}));

  return {
    get row() {
      return row;
    },
    signal: aborted.signal,
    change,
    async end(write) {
      await renewals.stop();
      await inTurn(async () => void (await write(row)));
    },
  };
}
