import { deflateRawSync, inflateRawSync } from "node:zlib";
import * as z from "zod";
import { bytesMember, type Entity, type Row } from "./entity.ts";
import { StorageCorrupt } from "./errors.ts";

/** Maximum size of an unpacked member. A manipulated row of 1 MiB could otherwise unpack to a thousand times its size. */
const MAX_UNPACKED_BYTES = 64 * 1024 * 1024;

/** Bytes that can't be unpacked, or whose content does not match the schema. The message contains no part of the content. */
class NotPacked extends Error {
  override readonly name = "NotPacked";
  readonly issues: readonly z.core.$ZodIssue[];

  constructor(issues: readonly z.core.$ZodIssue[] = []) {
    super("can't be unpacked");
    this.issues = issues;
  }
}

/** zlib level: half the processor time of the default level 6, for 5 % more bytes. */
const LEVEL = 3;

/** Compresses a text or bytes. */
export const deflate = (content: string | Uint8Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(deflateRawSync(content, { level: LEVEL }));

/**
 * Reverses `deflate`.
 *
 * @throws NotPacked for other bytes, or if the content exceeds 64 MiB.
 */
export function inflate(bytes: Uint8Array): Buffer<ArrayBuffer> {
  try {
    return inflateRawSync(bytes, { maxOutputLength: MAX_UNPACKED_BYTES });
  } catch {
    throw new NotPacked();
  }
}

/** Encodes a value as deflated JSON, for values that are too long for one column. */
export const pack = (value: unknown): Uint8Array<ArrayBuffer> => deflate(JSON.stringify(value));

/**
 * Reverses `pack` and validates the content. For bytes of a row, use `unpack`, or call this inside `withCorruptRowErrors`.
 *
 * @throws NotPacked if `pack` did not create these bytes, or the content does not match `schema`.
 */
export function unpackBytes<S extends z.ZodType>(bytes: Uint8Array, schema: S): z.infer<S> {
  const result = schema.safeParse(parsed(inflate(bytes).toString()));
  if (result.success) return result.data;
  throw new NotPacked(result.error.issues);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new NotPacked(); // the parser's message repeats a part of the text
  }
}

/**
 * Returns the result of `read`, which unpacks `member` of the row.
 *
 * @throws StorageCorrupt instead of NotPacked.
 */
export function withCorruptRowErrors<T, A>(
  { table }: Entity<T>,
  { partitionKey, rowKey, etag = "" }: { partitionKey: string; rowKey: string; etag?: string },
  member: string,
  read: () => A,
): A {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NotPacked)) throw error;
    const { issues, message } = error;
    const problem = issues.map((issue) => ({ ...issue, path: [member, ...issue.path] }));
    throw new StorageCorrupt(
      table,
      { partitionKey, rowKey, etag },
      problem.length > 0 ? problem : `${member} (${message})`,
    );
  }
}

/**
 * Returns an error of parsing or unpacking a row's content as StorageCorrupt.
 *
 * @throws any other error.
 */
export function toStorageCorrupt(
  error: unknown,
  { table }: { table: string },
  { partitionKey, rowKey, etag }: { partitionKey: string; rowKey: string; etag: string },
): StorageCorrupt {
  if (error instanceof StorageCorrupt) return error;
  const keys = { partitionKey, rowKey, etag };
  if (error instanceof NotPacked || error instanceof z.ZodError)
    return new StorageCorrupt(table, keys, error.issues.length > 0 ? error.issues : error.message);
  throw error;
}

/**
 * Reverses `pack` for a member of a row.
 *
 * @throws StorageCorrupt if the member can't be unpacked or does not match `schema`.
 */
export const unpack = <T, M extends string, S extends z.ZodType>(
  entity: Entity<T>,
  row: Row<Record<M, Uint8Array>>,
  member: M,
  schema: S,
): z.infer<S> => withCorruptRowErrors(entity, row, member, () => unpackBytes(row[member], schema));

/**
 * Declares a member of bytes that `pack` created. The content is unpacked and validated on each read and write. Rows that a scan
 * or a list reads by the thousand use `z.instanceof(Uint8Array)` instead, and their readers handle content that can't be unpacked.
 */
export const packedMember = (content: z.ZodType) =>
  bytesMember((bytes) => undefinedIfNotPacked(() => ({ content: unpackBytes(bytes, content) })) !== undefined);

/** Returns the result of `read`, or undefined if the bytes can't be unpacked or don't match their schema. */
export function undefinedIfNotPacked<A>(read: () => A): A | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof NotPacked) return undefined;
    throw error;
  }
}
