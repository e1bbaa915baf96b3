import pMap from "p-map";
import * as z from "zod";
import type { TableClients } from "./clients.ts";
import { type Entity, entity } from "./entity.ts";
import { RowMissing } from "./errors.ts";
import { insert, type Operation, put, replace } from "./operations.ts";
import type { Rows } from "./rows.ts";
import { checkTable, type Part, transactionParts } from "./transaction.ts";
import { batches } from "./write.ts";

/**
 * What a fence row holds. No two writes of it are alike, so that the row alone tells whether a write was applied whose
 * answer was lost.
 */
const FenceRecord = z.object({
  /** The one worker, in one piece of work, that wrote last: unique, never used again. */
  owner: z.string(),
  /** How many times that worker has written the row. */
  sequence: z.int(),
  /** True while that worker's work is not written to its end. */
  open: z.boolean(),
});
export type FenceRecord = z.infer<typeof FenceRecord>;

/** Declares the fence rows of a table. */
export const fenceEntity = (table: string): Entity<FenceRecord> => entity(table, FenceRecord, { witness: true });

/**
 * A lease tells workers not to work on the same thing, but it can't stop the request of a worker that was slow: that may
 * reach the store long after the lease has ended. A fence is a row that every transaction on those rows must replace,
 * with the ETag of the one before. So the store itself applies them one after the other, and refuses all that a worker
 * still sends after another one has taken the fence.
 *
 * A Fence is one worker's hold on one such row, for one piece of work. Its methods may not run side by side.
 */
export interface Fence {
  /** The row's ETag as this worker knows it; undefined when it knows of no row. */
  readonly etag: string | undefined;
  /**
   * Takes the fence from whoever holds it, in one request. From then on nothing they sent can be applied, so what is read
   * afterwards stays as it is until this worker writes.
   *
   * It asks for no ETag, so a taking that was sent twice, or by a worker that died, may arrive late. It brings no data: it
   * only makes whoever holds the fence then take it again, as any other worker's taking does. So a write that is refused
   * does not say that the work is another's now: that is told by the row by which it was claimed.
   */
  take(): Promise<void>;
  /**
   * Replaces the row alone, for a worker that found nothing to write: what others sent before can't be applied any more.
   *
   * @throws RowChanged or RowExists when another worker has taken the fence.
   */
  move(): Promise<void>;
  /**
   * Writes in as many transactions as it takes, each with the fence, one after the other; not atomic together. Removing a
   * row that is not there is done already, unless the operation names an ETag.
   *
   * @param options - `together`: further operations, all of them in the last of these transactions; at most ten.
   * @returns how many rows were written and removed.
   * @throws RowChanged or RowExists when another worker has taken the fence; nothing more was applied then.
   */
  write(
    operations: Iterable<Operation>,
    options?: { readonly beforeEach?: () => Promise<void>; readonly together?: readonly Operation[] },
  ): Promise<{ written: number; removed: number }>;
}

/** More than the fence's own part of a transaction takes: twice its row key, of at most 1,024 characters, and its value. */
const FENCE_BYTES = 8 * 1024;
const READS_AT_ONCE = 8;

/** @param hold - `etag` is that of the last write, as far as it is known; a first write without one inserts the row. */
export function createFence(
  deps: { rows: Rows; clients: TableClients },
  e: Entity<FenceRecord>,
  place: { partitionKey: string; rowKey: string },
  hold: { owner: string; etag: string | undefined },
): Fence {
  const { rows, clients } = deps;
  const { partitionKey, rowKey } = place;
  let { etag } = hold;
  let sequence = 0;

  const value = (open: boolean): FenceRecord => ({ owner: hold.owner, sequence: ++sequence, open });

  const next = (open: boolean): Operation =>
    etag === undefined ? insert(e, rowKey, value(open)) : replace(e, rowKey, value(open), etag);

  /** One transaction. Answers how many rows it removed. */
  async function submit(partOf: (operation: Operation) => Part, parts: Part[], open: boolean): Promise<number> {
    for (let left = parts; ; ) {
      const lead = partOf(next(open));
      try {
        etag = (await rows.submit(e.table, partitionKey, [lead, ...left], 1)).get(rowKey);
        return left.filter(({ operation }) => operation.kind === "remove").length;
      } catch (error) {
        if (!(error instanceof RowMissing) || !isAnyRemoval(left[error.index - 1])) throw error;
        // The fence fitted, so nothing of this transaction was applied, and nobody else writes these rows.
        left = await withoutMissing(left, error.rowKey);
      }
    }
  }

  /** Without the removals of rows that are not there. One of them is known. */
  async function withoutMissing(parts: Part[], missing: string): Promise<Part[]> {
    const stand = await pMap(
      parts,
      async (part) => {
        const key = part.operation.rowKey;
        if (!isAnyRemoval(part)) return true;
        return key !== missing && (await rows.read(e.table, partitionKey, key)) !== undefined;
      },
      { concurrency: READS_AT_ONCE },
    );
    return parts.filter((_, at) => stand[at]);
  }

  return {
    get etag() {
      return etag;
    },

    async take() {
      etag = await rows.apply(partitionKey, put(e, rowKey, value(true)));
    },

    async move() {
      etag = await rows.apply(partitionKey, next(false));
    },

    async write(operations, { beforeEach, together = [] } = {}) {
      const { address } = await clients.reach(e.table);
      const target = { table: e.table, partitionKey, address };
      const partOf = transactionParts(target);
      for (const operation of together) checkTable(e.table, operation);
      const ending = together.map(partOf);
      const bytes = ending.reduce((sum, part) => sum + part.bytes, FENCE_BYTES);
      const reserved = { operations: 1 + ending.length, bytes };
      const transactions = batches(target, operations, reserved);
      const done = { written: 0, removed: 0 };
      for (let one = transactions.next(), last = false; !last; ) {
        const some = one.done ? [] : one.value;
        if (!one.done) one = transactions.next();
        last = one.done === true;
        const parts = last ? [...some, ...ending] : some;
        if (parts.length === 0) break;
        await beforeEach?.();
        done.removed += await submit(partOf, parts, !last);
        done.written += parts.filter(({ operation }) => operation.kind !== "remove").length;
      }
      return done;
    },
  };
}

/** Whether it removes a row whatever it holds. */
const isAnyRemoval = (part: Part | undefined): boolean =>
  part?.operation.kind === "remove" && part.operation.etag === "*";
