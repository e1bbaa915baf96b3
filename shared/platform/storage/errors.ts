import type { PipelineRequest } from "@azure/core-rest-pipeline";
import type * as z from "zod";
import { wasSentAgain } from "./http-client.ts";

/** A row that was inserted already exists. */
export class RowExists extends Error {
  override readonly name = "RowExists";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Position of the operation in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} exists already (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row no longer has the expected ETag: another writer changed it, or removed it before a replace. */
export class RowChanged extends Error {
  override readonly name = "RowChanged";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Position of the operation in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} was changed by another writer (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A row to merge into or to remove does not exist. */
export class RowMissing extends Error {
  override readonly name = "RowMissing";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  /** Position of the operation in its transaction. */
  readonly index: number;

  constructor(table: string, partitionKey: string, rowKey: string, index = 0) {
    super(`Row ${partitionKey} / ${rowKey} of ${table} does not exist (operation ${index}).`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.index = index;
  }
}

/** A value to write does not match its entity, which is a bug in this program. The message names members, never values. */
export class RowInvalid extends Error {
  override readonly name = "RowInvalid";

  constructor(table: string, key: string, problem: string | readonly z.core.$ZodIssue[]) {
    super(`Row ${key} of ${table} can't be written: ${describe(problem)}.`);
  }
}

/** A stored row does not match its entity: another program or version wrote it. The message names members, never values. */
export class StorageCorrupt extends Error {
  override readonly name = "StorageCorrupt";
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
  readonly etag: string;
  /** The members that can't be read, with an error code each, or another reason. Contains no values. */
  readonly reason: string;

  constructor(
    table: string,
    { partitionKey, rowKey, etag }: { partitionKey: string; rowKey: string; etag: string },
    problem: string | readonly z.core.$ZodIssue[],
  ) {
    const reason = describe(problem);
    super(`Row ${partitionKey} / ${rowKey} of ${table} can't be read: ${reason}.`);
    this.table = table;
    this.partitionKey = partitionKey;
    this.rowKey = rowKey;
    this.etag = etag;
    this.reason = reason;
  }
}

/** A row of a signed store was read by a process without signing keys, which would write it without a signature. */
export class SigningKeysMissing extends Error {
  override readonly name = "SigningKeysMissing";

  constructor(table: string) {
    super(`The rows of ${table} are signed. Set SERVICE_KEY_VAULT_URL to the key vault that has the service's keys.`);
  }
}

/** Lists path and code of each issue. Omits the messages, because a message of a `refine` can contain the value. */
const describe = (problem: string | readonly z.core.$ZodIssue[]) =>
  typeof problem === "string"
    ? problem
    : problem.map((issue) => `${issue.path.map(String).join(".") || "the row"} (${issue.code})`).join(", ");

/**
 * Returns the error code of the service, such as `EntityAlreadyExists`.
 * https://learn.microsoft.com/rest/api/storageservices/table-service-error-codes
 */
export function errorCode(error: unknown): string | undefined {
  const { code, details } = error as { code?: string; details?: { odataError?: { code?: string } } };
  return code ?? details?.odataError?.code;
}

export const statusOf = (error: unknown): number | undefined => (error as { statusCode?: number }).statusCode;

const resent = new WeakSet<object>();

/** Marks an error of a repeated request: an earlier attempt may have been applied. */
export function markResent(error: unknown): void {
  if (typeof error === "object" && error !== null) resent.add(error);
}

/** Returns whether the failed request was sent more than once, so that an earlier attempt may have been applied. */
export function wasResent(error: unknown): boolean {
  const { request } = error as { request?: PipelineRequest };
  return resent.has(error as object) || (request !== undefined && wasSentAgain(request));
}

/**
 * Errors of the storage SDKs and of this module's transactions. Errors of other SDKs are converted to a CloudFailure where they
 * occur.
 */
const ANSWER_ERRORS = new Set(["RestError", "TransactionRejected", "TransactionTruncated", "AbortError"]);

/**
 * Returns whether it is unknown if a failed write was applied.
 *
 * True if no complete answer arrived, after 408 and all statuses from 500, and after the rejection of a request that was sent
 * more than once. False for RowExists, RowChanged and RowMissing. After an unclear error, don't report an outcome to the caller
 * or in the audit log.
 */
export function isUnclear(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isUnclear);
  if (!(error instanceof Error) || !ANSWER_ERRORS.has(error.name)) return false;
  const status = statusOf(error);
  const rejected = status !== undefined && status >= 300 && status < 500 && status !== 408;
  return !rejected || wasResent(error);
}
