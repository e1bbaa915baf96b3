import { deflateRawSync, inflateRawSync } from "node:zlib";
import type * as z from "zod";
import type { Entity, Row } from "./entity.ts";
import { StorageCorrupt } from "./errors.ts";

/** What a packed member may unpack to. A row of 1 MiB that this service did not write could unpack to a thousand times as much. */
const MAX_UNPACKED_BYTES = 64 * 1024 * 1024;

/** As deflated JSON: what would be too long for one column. */
export const pack = (value: unknown): Uint8Array<ArrayBuffer> => new Uint8Array(deflateRawSync(JSON.stringify(value)));

/**
 * What `pack` made of a row's member.
 *
 * @throws StorageCorrupt when the bytes are none of `pack`, unpack to more than 64 MiB or don't fit `schema`.
 */
export function unpack<T, M extends string, S extends z.ZodType>(
  { table }: Entity<T>,
  row: Row<Record<M, Uint8Array>>,
  member: M,
  schema: S,
): z.infer<S> {
  let value: unknown;
  try {
    value = JSON.parse(inflateRawSync(row[member], { maxOutputLength: MAX_UNPACKED_BYTES }).toString());
  } catch {
    // The parser's own message repeats a part of the text.
    throw new StorageCorrupt(table, row, `${member} (can't be unpacked)`);
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new StorageCorrupt(
    table,
    row,
    result.error.issues.map((issue) => ({ ...issue, path: [member, ...issue.path] })),
  );
}
