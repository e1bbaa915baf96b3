import { decodeTime, encodeTime } from "ulid";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { AuditEntry } from "./entry.ts";
import { dayOf, type Interval, timeOf } from "./interval.ts";

/**
 * The primary rows of the log: one partition per day, with one row per entry under its interval and id (`10:40|01J…`), so
 * oldest first, and the two marks of each interval. An entry is stored as the canonical text that is hashed, so any change is
 * detected.
 */
export const EntryRow = entity("AuditEntries", z.object({ entry: z.string() }));
export const Mark = entity("AuditEntries", z.object({}));
/**
 * A birth mark of a closed interval, with a signed statement that it is closed. An earlier version closed intervals without a
 * statement.
 */
export const ClosedMark = entity("AuditEntries", z.object({ closed: z.string() }));

export const entriesPartition = (interval: Interval): string => dayOf(interval);
export const entryKey = (interval: Interval, id: string): string => `${timeOf(interval)}|${id}`;

/**
 * The open mark exists while entries can be added to the interval. The transaction of every entry touches it; sealing deletes
 * it for good.
 */
export const openMark = (interval: Interval): string => `${OPEN}${timeOf(interval)}`;
/**
 * The birth mark stays, so that an interval is created only once. The first entry inserts it, or sealing does for an interval
 * without entries.
 */
export const bornMark = (interval: Interval): string => `${BORN}${timeOf(interval)}`;
const OPEN = "~open|";
const BORN = "~born|";
/** The row keys of all marks of a day. */
export const MARKS = { from: BORN, before: `${OPEN}~` };
/** Sorts after every digest's row key. */
export const DIGESTS_END = "~";
export const isMark = (rowKey: string): boolean => /^~(born|open)\|\d\d:\d0$/.test(rowKey);

/**
 * The index: positions of the entries for each filter, newest first; see `indexPrefix` and `position`. A row only names its
 * entry. Rows without `id` are of an earlier version, which stored the entry's text in `entry`.
 */
export const IndexRow = entity("AuditIndex", z.object({ id: z.string().optional(), entry: z.string().optional() }));
export const INDEX_PARTITION = "entries";

/** Signed statements (compact JWS): the digests by interval. An earlier version stored the newest digest again under `HEAD`. */
export const DigestRow = entity("AuditDigests", z.object({ digest: z.string() }));
export const DIGESTS_PARTITION = "digests";
export const HEAD = "~head";
/** The interval of the first entry, where sealing starts. Ignored once there is a digest. */
export const FirstRow = entity("AuditDigests", z.object({ interval: z.string() }));
export const FIRST_PARTITION = "first";
/** The ids and hashes of the entries with which an interval was sealed. Row key: `<interval>|<part>`. */
export const ManifestRow = entity("AuditDigests", z.object({ hashes: z.instanceof(Uint8Array) }));
export const MANIFESTS_PARTITION = "manifests";
/** Purge records, by the end of their range; and older public keys that a newer key vouches for. */
export const RecordRow = entity("AuditDigests", z.object({ record: z.string() }));
export const PURGES_PARTITION = "purges";
export const KEYS_PARTITION = "keys";

export interface EntryFilter {
  actor?: string | undefined;
  eventType?: string | undefined;
}

/** Every entry has four rows in the index, so that each combination of filters is one range of row keys. */
export function indexPrefix({ actor, eventType }: EntryFilter): string {
  if (actor !== undefined && eventType !== undefined) return `both|${actorKey(actor)}|${eventType}|`;
  if (actor !== undefined) return `actor|${actorKey(actor)}|`;
  return eventType === undefined ? "all|" : `type|${eventType}|`;
}

export const indexKeys = ({ id, occurredAt, actor, eventType }: AuditEntry): string[] =>
  [{}, { actor }, { eventType }, { actor, eventType }].map(
    (filter) => indexPrefix(filter) + position(id, Date.parse(occurredAt)),
  );

/** Usernames are not case-sensitive. */
const actorKey = (actor: string): string => keyText(actor.toLowerCase());

/** Returns the position of an entry in the index: by time, newest first, then by the random part of its id. */
export const position = (id: string, at: number): string => newestFirst(encodeTime(at) + id.slice(10));

/** The time with which a position begins, in milliseconds. NaN if the position is invalid. */
export function instantOf(position: string): number {
  try {
    return decodeTime(newestFirst(position));
  } catch {
    return Number.NaN;
  }
}

/** Returns the range of row keys under a prefix for entries in `start <= instant < end` (milliseconds). */
export function indexRange(prefix: string, start?: number, end?: number): { from: string; before: string } {
  return {
    from: end === undefined ? prefix : prefix + newestFirst(timeText(end - 1)),
    before: `${prefix}${start === undefined ? "" : newestFirst(timeText(start))}~`,
  };
}

/** A ULID stores a time from 1970 on in 48 bits. */
const timeText = (at: number): string => encodeTime(Math.min(Math.max(at, 0), 2 ** 48 - 1));
