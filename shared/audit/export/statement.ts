import * as z from "zod";
import { AnchorState } from "../chain/anchor.ts";
import { Beginning, DigestName } from "../chain/digest.ts";
import { Finding } from "../chain/findings.ts";

/** The format name in a JSON export. */
export const EXPORT_FORMAT = "audit-export/1";

/**
 * The signed statement about one part of a JSON export: its entries, also those without a digest, and the newest digest in the
 * key vault. With it, the deletion of the newest entries is detected outside this service, too.
 */
export const ExportStatement = z.object({
  exportedAt: z.string(),
  /** The requested period, `start <= instant < end`. */
  start: z.string(),
  end: z.string(),
  /** Filters. With filters, entries in between are left out, so missing entries can't be detected. */
  actor: z.string().optional(),
  eventType: z.string().optional(),
  /** The row (`day|row key`) after which the part starts. Null in the first part. */
  after: z.string().nullable(),
  /** The row with which the part ends. Null in the last part. */
  upTo: z.string().nullable(),
  entries: z.int(),
  /** SHA-256 over 26 characters of id and 32 bytes of hash per entry, in their order in the file. */
  fingerprints: z.string(),
  /** The first interval of the log, or the end of the purged range. */
  sealedFrom: z.string().nullable(),
  /** The beginning of the log according to its digests. Absent from exports of an earlier version. */
  beginning: Beginning.nullable().optional(),
  /** The newest digest in the tables, and the one in the key vault. */
  newest: DigestName.nullable(),
  anchor: AnchorState.nullable(),
  /** Findings that the files don't show: rows that are not entries, and rows outside the chain. */
  findings: z.array(Finding).optional(),
});
export type ExportStatement = z.infer<typeof ExportStatement>;

/** A part of a JSON export as a file. */
export const ExportFile = z.object({
  format: z.literal(EXPORT_FORMAT),
  start: z.string(),
  end: z.string(),
  entries: z.array(z.looseObject({ id: z.string(), occurredAt: z.string() })),
  /** Digests of the intervals in this part, each with the id and hash of every sealed entry. */
  digests: z.array(
    z.object({ interval: z.string(), digest: z.string(), fingerprints: z.array(z.tuple([z.string(), z.string()])) }),
  ),
  /** The digest before the first one of this part, which names its hash. */
  predecessor: z.string().nullable(),
  /** Signed records of purges, and signed statements by which keys vouch for older ones (compact JWS). */
  purges: z.array(z.string()),
  keys: z.array(z.string()),
  /** The signed `ExportStatement`. Null without a signing key. */
  statement: z.string().nullable(),
  nextCursor: z.string().nullable(),
});
export type ExportFile = z.infer<typeof ExportFile>;
