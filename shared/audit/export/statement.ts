import * as z from "zod";
import { Remembered } from "../chain/anchor.ts";
import { Beginning, DigestName } from "../chain/digest.ts";
import { Finding } from "../chain/findings.ts";

/** The format of a JSON export, named in it. */
export const EXPORT_FORMAT = "audit-export/1";

/**
 * What the service signs about one part of a JSON export: which entries it held, those included that no digest covers yet,
 * and the newest digest as the key vault remembered it, by which cutting off the tail is found elsewhere too.
 */
export const ExportStatement = z.object({
  exportedAt: z.string(),
  /** The period asked for, `start <= instant < end`. */
  start: z.string(),
  end: z.string(),
  /** Filters: then entries in between are left out, and nothing can be said of what is missing. */
  actor: z.string().optional(),
  eventType: z.string().optional(),
  /** The part goes on behind this row (`day|row key`), null in the first one … */
  after: z.string().nullable(),
  /** … and up to this one, null in the last one. */
  upTo: z.string().nullable(),
  entries: z.int(),
  /** SHA-256 over 26 characters of id and 32 bytes of hash per entry, in their order in the file. */
  fingerprints: z.string(),
  /** The first interval there ever was, or the end of what was purged. */
  sealedFrom: z.string().nullable(),
  /** Where the log began, as its digests say; absent in exports of an earlier version. */
  beginning: Beginning.nullable().optional(),
  /** The newest digest in the tables, and as the key vault remembered it. */
  newest: DigestName.nullable(),
  anchor: Remembered.nullable(),
  /** What the service found wrong that the export can't show: rows that are no entries, and rows outside the chain. */
  findings: z.array(Finding).optional(),
});
export type ExportStatement = z.infer<typeof ExportStatement>;

/** A part of a JSON export as a file. */
export const ExportFile = z.object({
  format: z.literal(EXPORT_FORMAT),
  start: z.string(),
  end: z.string(),
  entries: z.array(z.looseObject({ id: z.string(), occurredAt: z.string() })),
  /** Digests of the intervals this part touches, each with the id and hash of every entry it sealed. */
  digests: z.array(
    z.object({ interval: z.string(), digest: z.string(), fingerprints: z.array(z.tuple([z.string(), z.string()])) }),
  ),
  /** The last digest before this part's first, which that one names. */
  predecessor: z.string().nullable(),
  purges: z.array(z.string()),
  keys: z.array(z.string()),
  statement: z.string().nullable(),
  nextCursor: z.string().nullable(),
});
export type ExportFile = z.infer<typeof ExportFile>;
