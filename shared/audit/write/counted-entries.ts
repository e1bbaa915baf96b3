import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { encodeTime } from "ulid";
import type { Randomness } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { merge, RowMissing, replace } from "../../platform/storage/tables.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import type { AuthenticatedRow } from "../chain/entry-authentication.ts";
import { type AuditEntry, entryOf, entryText, readEntry } from "../entry.ts";
import type { AuditEvent } from "../event.ts";
import { intervalOf } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { EntryRow, entriesPartition, entryKey, Mark, openMark } from "../rows.ts";
import { type EntryWriter, type EntryWriterDependencies, MAX_ATTEMPTS } from "./entry-writer.ts";

/**
 * Counted entries: repeats of one event within a window of time share an entry with a count, so that rejected requests and
 * readings of the log don't flood it.
 */

/** Maximum number of write conflicts of one counted entry before the call fails, below `MAX_ATTEMPTS` of any reason. */
const MAX_CONFLICTS = 20;

/** Maximum number of request ids that a counted entry keeps, the first one included. */
const MAX_REQUEST_IDS = 20;

/** The events that share one entry: their common key, and the length of the window. */
export interface CountGroup {
  key: string;
  windowMs: number;
  /** Whether the entry keeps the ids of repeated requests. A person has such an id from an error page. */
  keepsRequestIds: boolean;
}

/**
 * Groups repeats of one rejected request by actor, address and cause within a minute. Another `reason` or `code` in the details
 * is another cause: both are fixed texts of this service.
 */
export const refusalGroup = ({ type, caller, target, details }: AuditEvent): CountGroup => ({
  key: JSON.stringify([
    type,
    caller.actor,
    caller.address,
    target?.type,
    target?.id,
    details?.reason,
    details?.code,
    caller.via,
  ]),
  windowMs: MINUTE_MS,
  keepsRequestIds: true,
});

/** Groups readings of one kind and filter by one actor within 15 minutes. */
export const readingGroup = ({ type, caller, target }: AuditEvent): CountGroup => ({
  key: JSON.stringify([type, caller.actor, target?.type, target?.id]),
  windowMs: 15 * MINUTE_MS,
  keepsRequestIds: false,
});

/**
 * Creates the function that records an event as a new entry, or increases the count of the entry of its group and window. The
 * entry's id is derived from the group and the window, so that all instances use the same entry. If that entry is already
 * sealed, a second one is created. Events of a group that arrive during a write are counted together by the next write. Once
 * the count of a rejection exceeds 1, `details.requestIds` has the ids of up to 20 of the requests, so that each can be found.
 */
export function createCounter(
  deps: EntryWriterDependencies & { randomness: Randomness; writer: EntryWriter },
): (event: AuditEvent, group: CountGroup) => Promise<void> {
  const { tables, clock, randomness, trust, sequences, writer } = deps;
  /** The write in progress of each group, by the group's key. */
  const currentWrites = new Map<string, Promise<void>>();
  /** The next write of each group, with the request ids of the events that it will count. */
  const nextWrites = new Map<string, { requestIds: string[]; done: Promise<void> }>();

  async function count(event: AuditEvent, group: CountGroup, requestIds: readonly string[]): Promise<void> {
    /** Start of the first interval that is not sealed, once an interval was found closed. */
    let notBefore = 0;
    let occupiedIds = 0;
    let conflicts = 0;
    for (let attempt = 0; attempt < MAX_ATTEMPTS && conflicts < MAX_CONFLICTS; attempt++) {
      const now = clock.now().getTime();
      const occurredAtMs = Math.max(now, notBefore);
      const interval = intervalOf(occurredAtMs);
      const id = countedId(group, occurredAtMs, occupiedIds);
      const key = entryKey(interval, id);
      const partitionKey = entriesPartition(interval);
      const row = await readRow(tables, EntryRow, partitionKey, key);
      const existing = readEntry(row?.value?.entry);
      const isOwn =
        existing && isWritten({ partitionKey, rowKey: key, text: row!.value!.entry, ...linkOf(row!.value!) });
      if (row && !isOwn) {
        // Someone else wrote or changed the row with this key. Counting would give it a valid authentication code. So it
        // stays as it is, verification reports it, and the next attempt uses another id. An entry of an earlier version
        // without a code also stays.
        occupiedIds += 1;
        continue;
      }
      if (!row || !existing) {
        const first = entryOf(event, id, occurredAtMs, notBefore > now ? now : undefined);
        const entry = withRepeats(first, requestIds.slice(1), group);
        const result = await writer.insert(interval, entry);
        if (result === "written") return await writer.writeIndex(entry);
        // If the row exists, another instance was faster, and the next attempt increases the count of its entry.
        if (result === "closed") notBefore = await writer.earliestOpenTime(interval);
        continue;
      }
      const entry = {
        ...withRepeats(existing, requestIds, group),
        lastOccurredAt: new Date(occurredAtMs).toISOString(),
      };
      const { link, etag } = row.value!;
      const write = { partitionKey, rowKey: key, text: entryText(entry), count: entry.count, replaced: { link } };
      const result = await sequences.write(write, async ({ columns, operations }) => {
        try {
          // The empty merge fails if the interval was sealed meanwhile, the replacement if another instance counted.
          await tables.transaction(EntryRow.table, partitionKey, [
            merge(Mark, openMark(interval), {}),
            replace(EntryRow, key, columns, etag),
            ...operations,
          ]);
          return "written";
        } catch (error) {
          if (error instanceof RowMissing && error.rowKey === openMark(interval)) return "closed";
          if (isConflict(error)) return "exists";
          throw error;
        }
      });
      if (result === "written") return;
      if (result === "closed") notBefore = await writer.earliestOpenTime(interval);
      else await delay(randomness.number() * 50 * ++conflicts);
    }
    throw new Error(`The audit entry ${event.type} could not be counted after repeated attempts.`);
  }

  /** Returns whether this service wrote the row: always true without keys, because nothing is authenticated then. */
  function isWritten(row: AuthenticatedRow): boolean {
    return trust.signer === undefined || trust.authentication.check(row) === "authentic";
  }

  return (event, group) => {
    const nextWrite = nextWrites.get(group.key);
    if (nextWrite) {
      nextWrite.requestIds.push(event.caller.requestId);
      return nextWrite.done;
    }
    const currentWrite = currentWrites.get(group.key);
    const write = { requestIds: [event.caller.requestId], done: Promise.resolve() };
    if (currentWrite) nextWrites.set(group.key, write);
    write.done = (async () => {
      if (currentWrite) {
        await currentWrite.catch(() => undefined); // the caller of that write handles the error
        nextWrites.delete(group.key);
      }
      await count(event, group, write.requestIds);
    })();
    currentWrites.set(group.key, write.done);
    const removeCurrentWrite = () => {
      if (currentWrites.get(group.key) === write.done) currentWrites.delete(group.key);
    };
    write.done.then(removeCurrentWrite, removeCurrentWrite);
    return write.done;
  };
}

const linkOf = ({ link, mac }: { link?: string | undefined; mac?: string | undefined }) => ({ link, mac });

/** Returns an entry that also counts the requests with these ids. */
function withRepeats(entry: AuditEntry, requestIds: readonly string[], { keepsRequestIds }: CountGroup): AuditEntry {
  const counted = { ...entry, count: entry.count + requestIds.length };
  if (!keepsRequestIds || requestIds.length === 0) return counted;
  const details = { ...(entry.details as Record<string, unknown> | undefined) };
  const earlierIds = Array.isArray(details.requestIds) ? (details.requestIds as string[]) : [entry.requestId];
  const all = [...new Set([...earlierIds, ...requestIds])].slice(0, MAX_REQUEST_IDS);
  return { ...counted, details: { ...details, requestIds: all } };
}

/**
 * Returns a ULID of the window's start, or of the interval's start if that is later. Its random part is a hash, so that all
 * instances compute the same id.
 *
 * @param occupiedIds - Number of ids whose rows this service did not write. Each one leads to another id.
 */
function countedId({ key, windowMs }: CountGroup, occurredAtMs: number, occupiedIds: number): string {
  const start = Math.max(Math.floor(occurredAtMs / windowMs) * windowMs, intervalOf(occurredAtMs));
  const hash = createHash("sha256")
    .update(`${start}|${key}${"|".repeat(occupiedIds)}`)
    .digest();
  // The 16 characters of the random part, in a ULID's base32.
  let random = "";
  for (let digit = 0; digit < 16; digit++) random += "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[hash[digit]! & 31];
  return encodeTime(start) + random;
}
