import { decodeTime, encodeTime } from "ulid";
import * as z from "zod";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import { newestFirst } from "../platform/ulid.ts";
import type { AuditEntry } from "./entry.ts";
import { dayOf, type Interval, timeOf } from "./interval.ts";

/**
 * The truth: one partition per day, in it one row per entry under its interval and id (`10:40|01J…`), so oldest first, and
 * each interval's two marks. An entry is the canonical text that is hashed, so a change of any of it shows.
 */
export const EntryRow = entity("AuditEntries", z.object({ entry: z.string() }));
export const Mark = entity("AuditEntries", z.object({}));
/** A birth mark whose interval was closed, with the signed statement of it. An earlier version closed without one. */
export const ClosedMark = entity("AuditEntries", z.object({ closed: z.string() }));

export const entriesPartition = (interval: Interval): string => dayOf(interval);
export const entryKey = (interval: Interval, id: string): string => `${timeOf(interval)}|${id}`;

/** Stands while entries may come in. Every entry's transaction touches it; sealing deletes it, for good. */
export const openMark = (interval: Interval): string => `${OPEN}${timeOf(interval)}`;
/** Stays, so that an interval is born once: a birth inserts it, and so does sealing an interval that never was born. */
export const bornMark = (interval: Interval): string => `${BORN}${timeOf(interval)}`;
const OPEN = "~open|";
const BORN = "~born|";
/** The row keys of a day's marks of either kind. */
export const MARKS = { from: BORN, before: `${OPEN}~` };
/** Behind every digest's row key. */
export const DIGESTS_END = "~";
export const isMark = (rowKey: string): boolean => /^~(born|open)\|\d\d:\d0$/.test(rowKey);

/**
 * Where the entries stand for each filter, newest first; see `indexPrefix` and `position`. A row names its entry and says
 * nothing else that is believed. Rows without `id` are of an earlier version, which kept the entry's text in `entry`.
 */
export const IndexRow = entity("AuditIndex", z.object({ id: z.string().optional(), entry: z.string().optional() }));
export const INDEX_PARTITION = "entries";

/** Signed statements (compact JWS): the digests by interval. An earlier version kept the newest once more under `HEAD`. */
export const DigestRow = entity("AuditDigests", z.object({ digest: z.string() }));
export const DIGESTS_PARTITION = "digests";
export const HEAD = "~head";
/** The interval of the first entry there ever was: where sealing begins, and never read for anything else after that. */
export const FirstRow = entity("AuditDigests", z.object({ interval: z.string() }));
export const FIRST_PARTITION = "first";
/** Which entries, with which hashes, an interval was sealed with: `<interval>|<part>`. */
export const ManifestRow = entity("AuditDigests", z.object({ hashes: z.instanceof(Uint8Array) }));
export const MANIFESTS_PARTITION = "manifests";
/** What was purged, by the interval up to which; and the old public keys that a newer key vouches for. */
export const RecordRow = entity("AuditDigests", z.object({ record: z.string() }));
export const PURGES_PARTITION = "purges";
export const KEYS_PARTITION = "keys";

export interface EntryFilter {
  actor?: string | undefined;
  eventType?: string | undefined;
}

/** One entry stands in the index four times, so that each combination of filters is one range of row keys. */
export function indexPrefix({ actor, eventType }: EntryFilter): string {
  if (actor !== undefined && eventType !== undefined) return `both|${actorKey(actor)}|${eventType}|`;
  if (actor !== undefined) return `actor|${actorKey(actor)}|`;
  return eventType === undefined ? "all|" : `type|${eventType}|`;
}

export const indexKeys = ({ id, occurredAt, actor, eventType }: AuditEntry): string[] =>
  [{}, { actor }, { eventType }, { actor, eventType }].map(
    (filter) => indexPrefix(filter) + position(id, Date.parse(occurredAt)),
  );

/** Usernames ignore case. */
const actorKey = (actor: string): string => keyText(actor.toLowerCase());

/** Where an entry stands in the index: by instant, newest first, then by the random part of its id. */
export const position = (id: string, at: number): string => newestFirst(encodeTime(at) + id.slice(10));

/** The instant a position begins with, in milliseconds. NaN for what is none. */
export function instantOf(position: string): number {
  try {
    return decodeTime(newestFirst(position));
  } catch {
    return Number.NaN;
  }
}

/** The range of row keys of the entries under a prefix in `start <= instant < end` (milliseconds). */
export function indexRange(prefix: string, start?: number, end?: number): { from: string; before: string } {
  return {
    from: end === undefined ? prefix : prefix + newestFirst(timeText(end - 1)),
    before: `${prefix}${start === undefined ? "" : newestFirst(timeText(start))}~`,
  };
}

/** A ULID holds an instant from 1970 on in 48 bits. */
const timeText = (at: number): string => encodeTime(Math.min(Math.max(at, 0), 2 ** 48 - 1));
