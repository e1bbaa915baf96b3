import * as z from "zod";
import { decodeCursor, encodeCursor } from "../../platform/http/paging.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "../chain/signing.ts";

/** The position of an export, and totals of the parts so far. */
export const Cursor = z.object({
  query: z.string(),
  part: z.int().min(2),
  end: z.int(),
  interval: z.int(),
  rowKey: z.string(),
  /** The export's id, and the number of entries in all parts so far. Absent from cursors of an earlier version. */
  exportId: z.string().max(256).optional(),
  entries: z.int().min(0).optional(),
});
export type Cursor = z.infer<typeof Cursor>;

/** Encodes a cursor. Signed if a key is configured, because the log will record the number of exported entries. */
export const signCursor = (cursor: Cursor, signer: SigningKey | undefined): string =>
  signer ? signStatement("audit-cursor", cursor, signer) : encodeCursor(cursor);

/**
 * Decodes a cursor. An unsigned cursor gives only the position, and none of the totals that the log would record.
 *
 * @throws {Problem} invalidCursor
 */
export function readCursor(cursor: string, keys: PublicKeys): Cursor {
  const read = readStatement("audit-cursor", Cursor, cursor, keys);
  if ("payload" in read) return read.payload;
  return { ...decodeCursor(Cursor, cursor), exportId: undefined, entries: undefined };
}
