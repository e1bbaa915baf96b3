import * as z from "zod";
import { decodeCursor, encodeCursor } from "../../platform/http/paging.ts";
import { type PublicKeys, readStatement, type SigningKey, signStatement } from "../chain/signing.ts";

/** Where an export goes on, and what came before. */
export const Cursor = z.object({
  query: z.string(),
  part: z.int().min(2),
  end: z.int(),
  interval: z.int(),
  rowKey: z.string(),
  /** The export's id, and the entries of all parts so far. Absent in cursors of an earlier version. */
  exportId: z.string().max(256).optional(),
  entries: z.int().min(0).optional(),
});
export type Cursor = z.infer<typeof Cursor>;

/** Signed where the service can, since the log will say how many entries were exported. */
export const signCursor = (cursor: Cursor, signer: SigningKey | undefined): string =>
  signer ? signStatement("audit-cursor", cursor, signer) : encodeCursor(cursor);

/**
 * What a cursor says. One that is not signed leads on as well, but nothing is taken from it that the log would repeat.
 *
 * @throws {Problem} invalidCursor
 */
export function readCursor(cursor: string, keys: PublicKeys): Cursor {
  const read = readStatement("audit-cursor", Cursor, cursor, keys);
  if ("payload" in read) return read.payload;
  return { ...decodeCursor(Cursor, cursor), exportId: undefined, entries: undefined };
}
