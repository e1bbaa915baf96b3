import { deflateRawSync, inflateRawSync } from "node:zlib";
import type * as z from "zod";
import type { Entity, Row } from "./entity.ts";
import { StorageCorrupt } from "./errors.ts";

/** What a packed member may unpack to. A row of 1 MiB that this service did not write could unpack to a thousand times as much. */
const MAX_UNPACKED_BYTES = 64 * 1024 * 1024;

/** Bytes that `deflate` or `pack` did not make, or of something else. Its message has no part of what is in them. */
class NotPacked extends Error {
  override readonly name = "NotPacked";
  readonly issues: readonly z.core.$ZodIssue[];

  constructor(issues: readonly z.core.$ZodIssue[] = []) {
    super("can't be unpacked");
    this.issues = issues;
  }
}

/** Of zlib's nine: it takes half the processor time of the usual sixth, for bytes that are a twentieth more. */
const LEVEL = 3;

export const deflate = (content: string | Uint8Array): Uint8Array<ArrayBuffer> =>
  new Uint8Array(deflateRawSync(content, { level: LEVEL }));

/** What `deflate` was given. @throws NotPacked when it did not make these bytes, or of more than 64 MiB. */
export function inflate(bytes: Uint8Array): Buffer<ArrayBuffer> {
  try {
    return inflateRawSync(bytes, { maxOutputLength: MAX_UNPACKED_BYTES });
  } catch {
    throw new NotPacked();
  }
}

/** As deflated JSON: what would be too long for one column. */
export const pack = (value: unknown): Uint8Array<ArrayBuffer> => deflate(JSON.stringify(value));

/**
 * What `pack` made. Who has the row that the bytes are of uses `unpack`, or reads within `unpacking`.
 *
 * @throws NotPacked when `pack` did not make these bytes, or of what does not fit `schema`.
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
    throw new NotPacked(); // the parser's own message repeats a part of the text
  }
}

/** What `read` answers, which unpacks `member` of the row. @throws StorageCorrupt when it can't. */
export function unpacking<T, A>(
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

/** What `pack` made of a row's member. @throws StorageCorrupt when it did not. */
export const unpack = <T, M extends string, S extends z.ZodType>(
  entity: Entity<T>,
  row: Row<Record<M, Uint8Array>>,
  member: M,
  schema: S,
): z.infer<S> => unpacking(entity, row, member, () => unpackBytes(row[member], schema));

/** What `read` answers; undefined where no version of this service wrote what it unpacks. */
export function ifPacked<A>(read: () => A): A | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof NotPacked) return undefined;
    throw error;
  }
}
