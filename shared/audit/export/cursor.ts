import * as z from "zod";
import { decodeCursor, encodeCursor } from "../../platform/http/paging.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "../chain/signing.ts";

/** The cursor of an export: its position, and totals of the parts so far. */
export const Cursor = z.object({
  /** Identifies the filters of the export. */
  query: z.string(),
  /** Number of the next part. */
  part: z.int().min(2),
  /** End of the export's period, in milliseconds since 1970. */
  end: z.int(),
  /** The last row of the previous part. */
  interval: z.int(),
  rowKey: z.string(),
  /** The export's id, and the number of entries in all parts so far. Absent from cursors of an earlier version. */
  exportId: z.string().max(256).optional(),
  entries: z.int().min(0).optional(),
});
export type Cursor = z.infer<typeof Cursor>;

/** Encodes a cursor. The cursor is signed if a key is configured, because the log records the number of entries in it. */
export const signCursor = (cursor: Cursor, signer: SigningKey | undefined): string =>
  signer ? signStatement("audit-cursor", cursor, signer) : encodeCursor(cursor);

/**
 * Decodes a cursor. From a cursor without a valid signature, only the position is used, not the totals that the log records.
 *
 * @throws {Problem} invalidCursor
 */
export function readCursor(cursor: string, keys: PublicKeys): Cursor {
  const result = readStatement("audit-cursor", Cursor, cursor, keys);
  if ("payload" in result) return result.payload;
  return { ...decodeCursor(Cursor, cursor), exportId: undefined, entries: undefined };
}
