import pMap from "p-map";
import * as z from "zod";
import { batches } from "./bulk-write.ts";
import { type Entity, entity } from "./entity.ts";
import { RowMissing } from "./errors.ts";
import { insert, type Operation, put, replace } from "./operations.ts";
import type { Rows } from "./rows.ts";
import type { TableClients } from "./table-clients.ts";
import { checkTable, type Part, transactionParts } from "./transaction.ts";

/**
 * Value of a fence row. No two writes have the same value, so the row alone shows whether a write with a lost answer was
 * applied.
 */
const FenceRecord = z.object({
  /** Unique id of the worker that wrote the row last, in one piece of work. Never reused. */
  owner: z.string(),
  /** Number of writes of the row by this worker. */
  sequence: z.int(),
  /** True until this worker has written all of its work. */
  open: z.boolean(),
});
export type FenceRecord = z.infer<typeof FenceRecord>;

/** Declares the fence rows of a table. */
export const fenceEntity = (table: string): Entity<FenceRecord> => entity(table, FenceRecord, { uniqueWrites: true });

/**
 * A fence: a fencing token that rejects late writes of a worker after another worker has taken over its work.
 *
 * A lease prevents duplicate work, but it can't stop a slow worker's request, which may reach the store long after the lease
 * has expired. Therefore every transaction on the protected rows also replaces a fence row, with the ETag of its previous
 * write. The store then applies these transactions one after the other, and rejects all transactions of a worker after another
 * worker has taken the fence.
 *
 * A Fence object is one worker's access to one fence row for one piece of work. Don't call its methods concurrently.
 */
export interface Fence {
  /** ETag of the row after this worker's last write. Undefined if this worker does not know of a row. */
  readonly etag: string | undefined;
  /**
   * Takes the fence from the worker that has it, in one request. After that no transaction of the previous worker is applied, so
   * rows that this worker reads stay unchanged until it writes.
   *
   * The request has no ETag condition. A delayed or repeated request of a crashed worker can therefore take the fence from the
   * worker with the lease. The next write of that worker fails, and it takes the fence again. So a rejected write does not mean
   * that the work belongs to another worker. Only the row with the lease shows that.
   */
  take(): Promise<void>;
  /**
   * Replaces only the fence row, if a worker has nothing to write. Earlier requests of other workers are no longer applied.
   *
   * @throws RowChanged or RowExists if another worker has taken the fence.
   */
  advance(): Promise<void>;
  /**
   * Writes the operations in as many transactions as needed, one after the other, each with the fence. The transactions
   * together are not atomic. Removing a missing row succeeds, unless the operation has an ETag.
   *
   * @param options - `inLastTransaction`: at most ten further operations, which are all part of the last transaction.
   * `beforeEach` is awaited before each transaction.
   * @returns the number of written and of removed rows.
   * @throws RowChanged or RowExists if another worker has taken the fence. The failed and all later transactions are not
   * applied.
   */
  write(
    operations: Iterable<Operation>,
    options?: { readonly beforeEach?: () => Promise<void>; readonly inLastTransaction?: readonly Operation[] },
  ): Promise<{ written: number; removed: number }>;
}

/**
 * Upper bound of the fence row's size in a transaction: its row key of up to 1,024 characters, which occurs twice, and its
 * value.
 */
const FENCE_BYTES = 8 * 1024;
const PARALLEL_READS = 8;

/**
 * Creates a worker's access to a fence row, without a request.
 *
 * @param hold - `owner` is the id of this worker. `etag` is the ETag of the last known write. Without it the first write inserts
 * the row.
 */
export function createFence(
  deps: { rows: Rows; clients: TableClients },
  e: Entity<FenceRecord>,
  key: { partitionKey: string; rowKey: string },
  hold: { owner: string; etag: string | undefined },
): Fence {
  const { rows, clients } = deps;
  const { partitionKey, rowKey } = key;
  let { etag } = hold;
  let sequence = 0;

  const value = (open: boolean): FenceRecord => ({ owner: hold.owner, sequence: ++sequence, open });

  const fenceOperation = (open: boolean): Operation =>
    etag === undefined ? insert(e, rowKey, value(open)) : replace(e, rowKey, value(open), etag);

  /** Submits one transaction and returns how many rows it removed. */
  async function submit(partOf: (operation: Operation) => Part, parts: Part[], open: boolean): Promise<number> {
    for (let remainingParts = parts; ; ) {
      const lead = partOf(fenceOperation(open));
      try {
        etag = (await rows.submit(e.table, partitionKey, [lead, ...remainingParts], 1)).get(rowKey);
        return remainingParts.filter(({ operation }) => operation.kind === "remove").length;
      } catch (error) {
        // Operation 0 of the transaction is the fence, so the index of a part is one less.
        if (!(error instanceof RowMissing) || !isUnconditionalRemoval(remainingParts[error.index - 1])) throw error;
        // The fence matched, so this transaction was not applied, and no other worker writes these rows.
        remainingParts = await dropMissingRemovals(remainingParts, error.rowKey);
      }
    }
  }

  /** Drops the removals of rows that don't exist. `missing` is one of them. */
  async function dropMissingRemovals(parts: Part[], missing: string): Promise<Part[]> {
    const exists = await pMap(
      parts,
      async (part) => {
        const key = part.operation.rowKey;
        if (!isUnconditionalRemoval(part)) return true;
        return key !== missing && (await rows.read(e.table, partitionKey, key)) !== undefined;
      },
      { concurrency: PARALLEL_READS },
    );
    return parts.filter((_, index) => exists[index]);
  }

  return {
    get etag() {
      return etag;
    },

    async take() {
      etag = await rows.apply(partitionKey, put(e, rowKey, value(true)));
    },

    async advance() {
      etag = await rows.apply(partitionKey, fenceOperation(false));
    },

    async write(operations, { beforeEach, inLastTransaction = [] } = {}) {
      const { address } = await clients.connect(e.table);
      const target = { table: e.table, partitionKey, address };
      const partOf = transactionParts(target);
      for (const operation of inLastTransaction) checkTable(e.table, operation);
      const lastParts = inLastTransaction.map(partOf);
      const bytes = lastParts.reduce((sum, part) => sum + part.bytes, FENCE_BYTES);
      const reserved = { operations: 1 + lastParts.length, bytes };
      const transactions = batches(target, operations, reserved);
      const counts = { written: 0, removed: 0 };
      // Reads one batch ahead, to know which transaction is the last one.
      for (let batch = transactions.next(), isLast = false; !isLast; ) {
        const current = batch.done ? [] : batch.value;
        if (!batch.done) batch = transactions.next();
        isLast = batch.done === true;
        const parts = isLast ? [...current, ...lastParts] : current;
        if (parts.length === 0) break;
        await beforeEach?.();
        counts.removed += await submit(partOf, parts, !isLast);
        counts.written += parts.filter(({ operation }) => operation.kind !== "remove").length;
      }
      return counts;
    },
  };
}

/** Returns whether the operation removes a row whatever its ETag is. */
const isUnconditionalRemoval = (part: Part | undefined): boolean =>
  part?.operation.kind === "remove" && part.operation.etag === "*";
