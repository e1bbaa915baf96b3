import type { PipelineRequest } from "@azure/core-rest-pipeline";
import type * as z from "zod";
import { wasSentAgain } from "./transport.ts";

/** A row that was to be new is there already. */
export class RowExists extends Error {
  override readonly name = "RowExists";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} exists already (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row is no longer what its ETag says: another writer changed or, where it was to be replaced, removed it. */
export class RowChanged extends Error {
  override readonly name = "RowChanged";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} was changed by another writer (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row that was to be merged into or removed is not there. */
export class RowMissing extends Error {
  override readonly name = "RowMissing";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Where the operation stood in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} does not exist (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A value that does not fit its entity was to be written: a mistake in this program. Names members, never values. */
export class RowInvalid extends Error {
  override readonly name = "RowInvalid";

  constructor(table: string, key: string, problem: string | readonly z.core.$ZodIssue[]) {
    super(`Row ${key} of ${table} can't be written: ${describe(problem)}.`);
  }
}

/** A stored row does not fit its entity: another program or version wrote it. Names members, never values. */
export class StorageCorrupt extends Error {
  override readonly name = "StorageCorrupt";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  readonly etag: string;

  constructor(
    table: string,
    { partitionKey, rowKey, etag }: { partitionKey: string; rowKey: string; etag: string },
    problem: string | readonly z.core.$ZodIssue[],
  ) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} can't be read: ${describe(problem)}.`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.etag = etag;
  }
}

/** Path and code of each issue. Its message is left out: one written for a `refine` may repeat the value. */
const describe = (problem: string | readonly z.core.$ZodIssue[]) =>
  typeof problem === "string"
    ? problem
    : problem.map((issue) => `${issue.path.map(String).join(".") || "the row"} (${issue.code})`).join(", ");

/** The service's own error code, e.g. `EntityAlreadyExists`. https://learn.microsoft.com/rest/api/storageservices/table-service-error-codes */
export function errorCode(error: unknown): string | undefined {
  const { code, details } = error as { code?: string; details?: { odataError?: { code?: string } } };
  return code ?? details?.odataError?.code;
}

export const statusOf = (error: unknown): number | undefined => (error as { statusCode?: number }).statusCode;

const resent = new WeakSet<object>();

/** Notes that what failed was tried before, and that the earlier try may have been applied. */
export function markResent(error: unknown): void {
  if (typeof error === "object" && error !== null) resent.add(error);
}

/** True when what failed was sent more than once, so that an earlier try may have been applied. */
export function wasResent(error: unknown): boolean {
  const { request } = error as { request?: PipelineRequest };
  return resent.has(error as object) || (request !== undefined && wasSentAgain(request));
}

/** Errors of the storage SDKs and of this room's transactions. Other SDKs' errors become a CloudFailure where they arise. */
const ANSWER_ERRORS = new Set(["RestError", "TransactionRefused", "TransactionCut", "AbortError"]);

/**
 * True when storage did not clearly refuse: whether the write was applied is not known, even after looking. That is so
 * without a whole answer, after 408, 500 or 503, and after a refusal of what was sent more than once. RowExists, RowChanged
 * and RowMissing are clear. Nothing may then be said of the outcome, neither to a caller nor in the audit log.
 */
export function isUnclear(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isUnclear);
  if (!(error instanceof Error) || !ANSWER_ERRORS.has(error.name)) return false;
  const status = statusOf(error);
  const refused = status !== undefined && status >= 300 && status < 500 && status !== 408;
  return !refused || wasResent(error);
}
