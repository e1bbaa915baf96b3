import { RowMissing } from "./errors.ts";
import { MAX_TRANSACTION_BYTES, MAX_TRANSACTION_OPERATIONS } from "./limits.ts";
import type { Operation } from "./operations.ts";
import type { Rows } from "./rows.ts";
import { BODY_FRAME_BYTES, checkTable, type Part, type Target, transactionParts } from "./transaction.ts";

export interface WriteOptions {
  /** Number of concurrent transactions, default 4. */
  readonly parallel?: number;
  /** Awaited before each transaction, for pacing or to detect a lost lease. If it throws, writing stops with this error. */
  readonly beforeEach?: () => Promise<void>;
}

/**
 * Writes operations in as many transactions as needed. Reads the operations on demand, so they need not all fit into memory.
 * The first failure is thrown after the running transactions have ended.
 */
export async function writeAll(
  rows: Rows,
  target: Target,
  operations: Iterable<Operation>,
  { parallel = 4, beforeEach }: WriteOptions,
): Promise<void> {
  const running = new Set<Promise<void>>();
  const rowsInProgress = new Set<string>();
  const failures: unknown[] = [];

  const start = (parts: readonly Part[]) => {
    for (const { operation } of parts) rowsInProgress.add(operation.rowKey);
    const task = submitIdempotently(rows, target, parts)
      .catch((error: unknown) => {
        failures.push(error);
      })
      .finally(() => {
        running.delete(task);
        for (const { operation } of parts) rowsInProgress.delete(operation.rowKey);
      });
    running.add(task);
  };

  try {
    for (const parts of batches(target, insertsAsPuts(operations))) {
      // Operations on the same row keep their order: the second one waits until the first is done.
      const repeats = parts.some(({ operation }) => rowsInProgress.has(operation.rowKey));
      while (running.size >= (repeats ? 1 : parallel)) await Promise.race(running);
      if (failures.length > 0) break;
      await beforeEach?.();
      start(parts);
    }
  } finally {
    await Promise.all(running);
  }
  if (failures.length > 0) throw failures[0];
}

/** Converts inserts to puts, so that a repeated call does not fail on rows that it wrote before. */
function* insertsAsPuts(operations: Iterable<Operation>): Generator<Operation> {
  for (const operation of operations) yield operation.kind === "insert" ? { ...operation, kind: "put" } : operation;
}

/** Splits operations into batches of the size of a transaction, in order. `reserved` stays free in each batch. */
export function* batches(
  target: Target,
  operations: Iterable<Operation>,
  reserved = { operations: 0, bytes: 0 },
): Generator<Part[]> {
  const { table } = target;
  const partOf = transactionParts(target);
  let batch: Part[] = [];
  let rowKeys = new Set<string>();
  const frame = BODY_FRAME_BYTES + reserved.bytes;
  let bytes = frame;
  for (const operation of operations) {
    checkTable(table, operation);
    if (operation.entity.signed && (operation.kind !== "remove" || operation.entity.listed))
      throw new TypeError(`A signed row of ${table} is written in a transaction of its own.`);
    const part = partOf(operation);
    const maxOperations = MAX_TRANSACTION_OPERATIONS - reserved.operations;
    // If `reserved` leaves no room for the first operation, the first batch is empty.
    const full = batch.length === maxOperations || bytes + part.bytes > MAX_TRANSACTION_BYTES;
    if (full || rowKeys.has(operation.rowKey)) {
      yield batch;
      batch = [];
      rowKeys = new Set();
      bytes = frame;
    }
    batch.push(part);
    rowKeys.add(operation.rowKey);
    bytes += part.bytes;
  }
  if (batch.length > 0) yield batch;
}

async function submitIdempotently(rows: Rows, { table, partitionKey }: Target, parts: readonly Part[]): Promise<void> {
  try {
    await rows.submit(table, partitionKey, parts, 0);
  } catch (error) {
    if (!(error instanceof RowMissing) || parts[error.index]?.operation.kind !== "remove") throw error;
    // An earlier call already removed some rows. Reading which ones would cost as much as removing them one by one.
    const others = parts.filter(({ operation }) => operation.kind !== "remove");
    if (others.length > 0) await rows.submit(table, partitionKey, others, 0);
    for (const { operation } of parts)
      if (operation.kind === "remove") await removeIfExists(rows, partitionKey, operation);
  }
}

/** Returns false if the row did not exist. */
export async function removeIfExists(rows: Rows, partitionKey: string, operation: Operation): Promise<boolean> {
  try {
    await rows.apply(partitionKey, operation);
    return true;
  } catch (error) {
    if (error instanceof RowMissing) return false;
    throw error;
  }
}
