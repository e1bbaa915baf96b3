import { decodeTime, encodeTime } from "ulid";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { AuditEntry } from "./entry.ts";
import { dayOf, type Interval, timeOf } from "./interval.ts";

/**
 * The rows of the audit log in three tables: entries, index and digests.
 *
 * `AuditEntries` has one partition per day. Each entry has a row under its ten-minute interval and its id (`10:40|01J…`), so
 * the rows are in the order of time. Each interval also has two marks, rows that say whether entries can be added to it. An
 * entry is stored as the canonical text that is hashed, so that any change is detected. Until the entry is sealed, its
 * authentication code (`mac`) and its link to earlier entries of the same process protect it. Rows of an earlier version, and
 * those written without signing keys, have neither.
 */
export const EntryRow = entity(
  "AuditEntries",
  z.object({ entry: z.string(), link: z.string().optional(), mac: z.string().optional() }),
);
/**
 * Names the last entry that a process wrote in one of its sequences (entries that it writes one after the other,
 * chain/link.ts), per day, so that removing the last entries shows. Written in the transaction of every entry. Its link is the
 * one that the next entry of the sequence will have.
 */
export const LastRow = entity("AuditEntries", z.object({ link: z.string(), mac: z.string() }));
const LAST = "~last|";
export const lastRowKey = (sequence: string): string => `${LAST}${sequence}`;
/** The keys of the rows of last entries of a day. They sort between the two kinds of marks. */
export const LAST_ROWS = { from: LAST, before: `${LAST}~` };
/** A mark of an interval, without its content: see `openMark` and `bornMark`. */
export const Mark = entity("AuditEntries", z.object({}));
/**
 * The born mark of an interval. If the interval is closed, it has a signed statement that says so. Intervals that an earlier
 * version closed have no statement.
 */
export const ClosedMark = entity("AuditEntries", z.object({ closed: z.string().optional() }));

export const entriesPartition = (interval: Interval): string => dayOf(interval);
export const entryKey = (interval: Interval, id: string): string => `${timeOf(interval)}|${id}`;

/**
 * Returns the row key of the open mark. The mark exists while entries can be added to the interval: the transaction of every
 * entry requires it, and sealing deletes it.
 */
export const openMark = (interval: Interval): string => `${OPEN}${timeOf(interval)}`;
/**
 * Returns the row key of the born mark, which stays until the interval is purged, so that the interval is created only once.
 * The first entry of the interval inserts it. For an interval without entries, sealing does.
 */
export const bornMark = (interval: Interval): string => `${BORN}${timeOf(interval)}`;
const OPEN = "~open|";
const BORN = "~born|";
/** The range of row keys of all marks of a day. It also contains the rows of last entries. */
export const MARKS = { from: BORN, before: `${OPEN}~` };
/** Sorts after every digest's row key. */
export const DIGESTS_END = "~";
/** Matches the row keys of marks and of last entries: `~open|10:40`, `~last|<sequence>` (9 random bytes in base64url). */
export const isMarkOrLastRow = (rowKey: string): boolean => /^~((born|open)\|\d\d:\d0|last\|[\w-]{12})$/.test(rowKey);

/**
 * The index: positions of the entries for each filter, newest first; see `indexPrefix` and `position`. A row only names its
 * entry. Rows without `id` are of an earlier version, which stored the entry's text in `entry`.
 */
export const IndexRow = entity("AuditIndex", z.object({ id: z.string().optional(), entry: z.string().optional() }));
export const INDEX_PARTITION = "entries";

/**
 * The digests by interval: signed statements (compact JWS) about the entries of an interval. An earlier version stored the
 * newest digest a second time under `HEAD`.
 */
export const DigestRow = entity("AuditDigests", z.object({ digest: z.string() }));
export const DIGESTS_PARTITION = "digests";
export const HEAD = "~head";
/**
 * The row that names the interval of the first entry, where sealing starts. It is ignored once there is a digest.
 * `authenticated` is a signed statement that all entries since then have an authentication code.
 */
export const FirstRow = entity(
  "AuditDigests",
  z.object({ interval: z.string(), authenticated: z.string().optional() }),
);
export const FIRST_PARTITION = "first";
/** The ids and hashes of the entries with which an interval was sealed. Row key: `<interval>|<part>`. */
export const ManifestRow = entity("AuditDigests", z.object({ hashes: z.instanceof(Uint8Array) }));
export const MANIFESTS_PARTITION = "manifests";
/**
 * Signed records: purges, by the end of the purged range; older public keys, by the newer key that vouches for them and
 * their own name (`k2|k1`); and the preparation for an earlier version.
 */
export const RecordRow = entity("AuditDigests", z.object({ record: z.string() }));
export const PURGES_PARTITION = "purges";
export const KEYS_PARTITION = "keys";
/** The partition and row key of the record that the log was prepared for an earlier version (rollback.ts). */
export const ROLLBACK = "rollback";

/** A combination of filters. Without members, it matches all entries. */
export interface EntryFilter {
  actor?: string | undefined;
  eventType?: string | undefined;
}

/**
 * Returns the prefix of the index rows for a combination of filters. Every entry has four index rows, so that each combination
 * is one range of row keys.
 */
export function indexPrefix({ actor, eventType }: EntryFilter): string {
  if (actor !== undefined && eventType !== undefined) return `both|${actorKey(actor)}|${eventType}|`;
  if (actor !== undefined) return `actor|${actorKey(actor)}|`;
  return eventType === undefined ? "all|" : `type|${eventType}|`;
}

/** Returns the keys of the four index rows of an entry: without a filter, by actor, by event type, and by both. */
export const indexKeys = ({ id, occurredAt, actor, eventType }: AuditEntry): string[] =>
  [{}, { actor }, { eventType }, { actor, eventType }].map(
    (filter) => indexPrefix(filter) + position(id, Date.parse(occurredAt)),
  );

/** Usernames are not case-sensitive. */
const actorKey = (actor: string): string => keyText(actor.toLowerCase());

/**
 * Returns the position of an entry in the index: its time and the random part of its id as a ULID (26 characters), inverted so
 * that the newest sorts first.
 */
export const position = (id: string, occurredAtMs: number): string =>
  newestFirst(encodeTime(occurredAtMs) + id.slice(10));

/** Returns the time of a position in milliseconds since 1970. NaN if the position is invalid. */
export function instantOf(position: string): number {
  try {
    return decodeTime(newestFirst(position));
  } catch {
    return Number.NaN;
  }
}

/**
 * Returns the range of row keys under a prefix for entries in `start <= instant < end` (milliseconds). The newest entry sorts
 * first, so the range starts with `end`.
 */
export function indexRange(prefix: string, start?: number, end?: number): { from: string; before: string } {
  return {
    from: end === undefined ? prefix : prefix + newestFirst(timeText(end - 1)),
    before: `${prefix}${start === undefined ? "" : newestFirst(timeText(start))}~`,
  };
}

/** Encodes a time like a ULID, in 48 bits. Times before 1970 become 1970. */
const timeText = (timeMs: number): string => encodeTime(Math.min(Math.max(timeMs, 0), 2 ** 48 - 1));
