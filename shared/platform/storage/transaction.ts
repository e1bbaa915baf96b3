import { randomUUID } from "node:crypto";
import type { PipelineRequest, PipelineResponse } from "@azure/core-rest-pipeline";
import { type Columns, checkLimits } from "./columns.ts";
import { encodeKey, PATH_END, partitionPath } from "./keys.ts";
import { MAX_ENTITY_BYTES } from "./limits.ts";
import type { Operation } from "./operations.ts";

// Wire format of an entity group transaction
// (https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions).
//
// The request uses the SDK's pipeline but not its `submitTransaction`. That method can't set the ETag of a delete, takes a
// success for a failure if a key contains braces, and does not report the size of the body.

const newLine = "\r\n";

/** The service rejected a transaction. `index` is the first rejected operation. No operation was applied. */
export class TransactionRejected extends Error {
  override readonly name = "TransactionRejected";
  readonly code: string;
  readonly statusCode: number;
  readonly index: number;
  readonly request: PipelineRequest;
  /** True if the rejection was part of a 202 answer, which the SDK's retry policy takes for a success. */
  readonly insideAccepted: boolean;

  constructor(code: string, statusCode: number, index: number, { request, status }: PipelineResponse) {
    super(`The transaction was rejected with status ${statusCode} ${code} (operation ${index}).`);
    this.code = code;
    this.statusCode = statusCode;
    this.index = index;
    this.request = request;
    this.insideAccepted = status === 202;
  }
}

/** The answer to a transaction was truncated. The transaction may have been applied. */
export class TransactionTruncated extends Error {
  override readonly name = "TransactionTruncated";
  readonly request: PipelineRequest;

  constructor(request: PipelineRequest) {
    super("The answer to the transaction ended before it was complete.");
    this.request = request;
  }
}

const methods = { insert: "POST", put: "PUT", replace: "PUT", merge: "PATCH", remove: "DELETE" } as const;

/** One operation, encoded for the body of a transaction. */
export interface Part {
  readonly operation: Operation;
  /** The encoded text, in pieces that are shared between parts where possible. */
  readonly pieces: readonly string[];
  /** Upper bound of the part's size in the body. */
  readonly bytes: number;
}

/** The partition that a transaction writes to. */
export interface Target {
  readonly table: string;
  readonly partitionKey: string;
  /** Address of the table service, without a shared access signature. */
  readonly address: string;
}

/** The text before the row key in the path, and the text between it and the row key in the JSON value. */
interface Frame {
  start: string;
  end: string;
  bytes: number;
}

/** Returns a function that encodes operations on a partition's rows as parts of a transaction. */
export function transactionParts({ table, partitionKey, address }: Target): (operation: Operation) => Part {
  const partition = asciiJson(partitionKey);

  const frames = new Map<Operation["kind"], Frame>();
  function frameOf(kind: Operation["kind"], etag: string | undefined): Frame {
    const cachedFrame = etag === undefined ? frames.get(kind) : undefined;
    if (cachedFrame !== undefined) return cachedFrame;
    const start = `${PART_HEAD}${methods[kind]} ${address}/${kind === "insert" ? table : partitionPath(table, partitionKey)}`;
    let end = `${kind === "insert" ? "" : PATH_END} HTTP/1.1${ANSWER_HEAD}`;
    if (kind !== "remove") end += `Content-Type: application/json${newLine}`;
    if (kind === "insert") end += `Prefer: return-no-content${newLine}`;
    if (etag !== undefined) end += `If-Match: ${etag}${newLine}`;
    end += newLine;
    if (kind !== "remove") end += `{"PartitionKey":${partition},"RowKey":`;
    const frame = { start, end, bytes: Buffer.byteLength(start) + Buffer.byteLength(end) };
    if (etag === undefined) frames.set(kind, frame);
    return frame;
  }

  /** @throws RowInvalid if the service would reject the row. */
  function part(operation: Operation): Part {
    const { kind, rowKey, columns, etag } = operation;
    checkLimits(table, partitionKey, rowKey, columns);
    const { start, end, bytes: frame } = frameOf(kind, etag);
    const path = kind === "insert" ? "" : encodeKey(rowKey);
    const key = kind === "remove" ? "" : asciiJson(rowKey);
    const members = kind === "remove" ? NO_VALUE : membersJson(columns);
    const bytes = frame + path.length + key.length + members.bytes + PART_FRAME_BYTES;
    return { operation, pieces: [start, path, end, key, members.text], bytes };
  }
  return part;
}

const PART_HEAD = ["Content-Type: application/http", "Content-Transfer-Encoding: binary", "", ""].join(newLine);
const ANSWER_HEAD = ["", "Accept: application/json;odata=minimalmetadata", "DataServiceVersion: 3.0", ""].join(newLine);

interface Text {
  text: string;
  bytes: number;
}

const NO_VALUE: Text = { text: "", bytes: 0 };

/** JSON after a row's keys, cached by columns object, because several rows can share it. */
const texts = new WeakMap<Columns, Text>();

function membersJson(columns: Columns): Text {
  let members = texts.get(columns);
  if (members === undefined) {
    const value = asciiJson(columns);
    const text = value === "{}" ? "}" : `,${value.slice(1)}`;
    members = { text, bytes: Buffer.byteLength(text) };
    texts.set(columns, members);
  }
  return members;
}

/**
 * Encodes as ASCII JSON, because Azurite 3.37 corrupts a character that spans two pieces of 64 KiB of a request body. Not if
 * the escaped text would exceed the maximum size of an entity.
 */
function asciiJson(value: string | object): string {
  const json = JSON.stringify(value);
  const ascii = json.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return ascii.length <= MAX_ENTITY_BYTES ? ascii : json;
}

// Upper bounds of the bytes that `transactionBody` adds around each part, and around all parts.
const PART_FRAME_BYTES = 60;
export const BODY_FRAME_BYTES = 300;

/**
 * Builds the multipart body. Writes piece by piece, because joining the text first would copy it once more and keep it on the
 * heap.
 */
export function transactionBody(parts: readonly Part[]): { contentType: string; body: Uint8Array } {
  const batch = `batch_${randomUUID()}`;
  const changeSet = `changeset_${randomUUID()}`;
  const delimiter = `--${changeSet}${newLine}`;
  const body = Buffer.allocUnsafe(parts.reduce((sum, { bytes }) => sum + bytes, BODY_FRAME_BYTES));
  let offset = body.write(
    `--${batch}${newLine}Content-Type: multipart/mixed; boundary=${changeSet}${newLine}${newLine}`,
  );
  for (const { pieces } of parts) {
    offset += body.write(delimiter, offset);
    for (const piece of pieces) offset += body.write(piece, offset);
    offset += body.write(newLine, offset);
  }
  offset += body.write(`--${changeSet}--${newLine}--${batch}--${newLine}`, offset);
  return { contentType: `multipart/mixed; boundary=${batch}`, body: body.subarray(0, offset) };
}

/** End of a multipart body, https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1. Without it parts may be missing. */
const CLOSED_CHANGE_SET = /--changesetresponse_[^\r\n]*--\s/;

/**
 * Parses the answer to a transaction.
 *
 * @param etags - Number of first operations whose new ETags are needed.
 * @returns the new ETags, undefined for a removed row.
 * @throws TransactionRejected if the service rejected the transaction; TransactionTruncated if the response is truncated.
 */
export function readTransactionAnswer(
  response: PipelineResponse,
  count: number,
  etags = count,
): (string | undefined)[] {
  const { request, bodyAsText } = response;
  const text = bodyAsText ?? "";
  // A transaction is answered with 202 and a multipart body, whether or not it was applied. Any other status is an error of the
  // whole request, with a JSON body.
  if (response.status === 202 && !CLOSED_CHANGE_SET.test(text)) throw new TransactionTruncated(request);
  // The texts before the first and after the last delimiter belong to no operation.
  const answers =
    response.status === 202
      ? text.split("--changesetresponse_").slice(1, -1)
      : [`HTTP/1.1 ${response.status}\n${text}`];
  const rejected = answers.find((answer) => statusOf(answer)?.[0] !== "2");
  if (rejected !== undefined) throw rejectionOf(rejected, response);
  if (answers.length !== count)
    throw new Error(`A transaction of ${count} operations was answered with ${answers.length} results.`);
  return answers.slice(0, etags).map((answer) => /^ETag: (.+)$/im.exec(answer)?.[1]?.trim());
}

/** Returns the three digits of the status, or undefined if there are none. */
function statusOf(answer: string): string | undefined {
  const lineStart = answer.indexOf(STATUS_LINE);
  return lineStart === -1
    ? undefined
    : answer.slice(lineStart + STATUS_LINE.length, lineStart + STATUS_LINE.length + 3);
}

const STATUS_LINE = "HTTP/1.1 ";

function rejectionOf(answer: string, response: PipelineResponse): TransactionRejected {
  const status = Number(statusOf(answer));
  const code = /(?:"code"\s*:\s*"|<Code>)(\w+)/.exec(answer)?.[1] ?? "Unknown";
  // The message starts with the operation's number: "3:The specified entity already exists."
  const index = Number(/"value"\s*:\s*"(\d+):/.exec(answer)?.[1] ?? 0);
  return new TransactionRejected(code, status, index, response);
}

/** @throws TypeError if the operation is for another table. */
export function checkTable(table: string, operation: Operation): void {
  if (operation.entity.table !== table)
    throw new TypeError(`An operation on ${operation.entity.table} can't be part of a transaction on ${table}.`);
}
