import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { encodeTime } from "ulid";
import type { Randomness } from "../../platform/runtime.ts";
import { isConflict } from "../../platform/storage/conflict.ts";
import { merge, RowMissing, replace } from "../../platform/storage/tables.ts";
import { MINUTE_MS } from "../../platform/time.ts";
import { entryOf, entryText, readEntry } from "../entry.ts";
import type { AuditEvent } from "../event.ts";
import { intervalOf } from "../interval.ts";
import { readRow } from "../read-rows.ts";
import { EntryRow, entriesPartition, entryKey, Mark, openMark } from "../rows.ts";
import { type EntryWriter, type EntryWriterDependencies, MAX_CLOSED } from "./entry-writer.ts";

/** Maximum number of write conflicts of one counted entry before the call fails. */
const MAX_CONFLICTS = 20;

/** Identifies the events that share one entry, and the length of their window. */
export interface CountedAs {
  key: string;
  windowMs: number;
}

/** Groups repeats of one rejected request by actor and address within a minute. */
export const asRefusal = ({ type, caller, target }: AuditEvent): CountedAs => ({
  key: JSON.stringify([type, caller.actor, caller.address, target?.type, target?.id]),
  windowMs: MINUTE_MS,
});

/** Groups readings of one kind and filter by one actor within 15 minutes. */
export const asReading = ({ type, caller, target }: AuditEvent): CountedAs => ({
  key: JSON.stringify([type, caller.actor, target?.type, target?.id]),
  windowMs: 15 * MINUTE_MS,
});

/**
 * Creates the function that records an event, or counts it in the entry of its window. The entry's id is derived from the group
 * and the window, so that instances share the entry. If that entry is already sealed, a second one is created. Events of an
 * instance that arrive during a write are counted together by the next write.
 */
export function createCounter(
  deps: EntryWriterDependencies & { randomness: Randomness; writer: EntryWriter },
): (event: AuditEvent, as: CountedAs) => Promise<void> {
  const { tables, clock, randomness, writer } = deps;
  /** By key: the write in progress, and the group that waits for the next write. */
  const writing = new Map<string, Promise<void>>();
  const waiting = new Map<string, { times: number; done: Promise<void> }>();

  async function count(event: AuditEvent, as: CountedAs, times: number): Promise<void> {
    let notBefore = 0;
    let occupiedIds = 0;
    let conflicts = 0;
    for (let attempt = 0; attempt < MAX_CLOSED && conflicts < MAX_CONFLICTS; attempt++) {
      const now = clock.now().getTime();
      const at = Math.max(now, notBefore);
      const interval = intervalOf(at);
      const id = countedId(as, at, occupiedIds);
      const key = entryKey(interval, id);
      const row = await readRow(tables, EntryRow, entriesPartition(interval), key);
      const before = readEntry(row?.value?.entry);
      if (row && !before) {
        // A foreign row occupies the key. Sealing ignores it, and verification reports it.
        occupiedIds += 1;
        continue;
      }
      if (!row || !before) {
        const entry = { ...entryOf(event, id, at, notBefore > now ? now : undefined), count: times };
        const result = await writer.enter(interval, id, entryText(entry));
        if (result === "entered") return await writer.index(entry);
        if (result === "closed") notBefore = await writer.after(interval);
        continue;
      }
      const entry = { ...before, count: before.count + times, lastOccurredAt: new Date(at).toISOString() };
      try {
        await tables.transaction(EntryRow.table, entriesPartition(interval), [
          merge(Mark, openMark(interval), {}),
          replace(EntryRow, key, { entry: entryText(entry) }, row.value!.etag),
        ]);
        return;
      } catch (error) {
        if (error instanceof RowMissing && error.rowKey === openMark(interval))
          notBefore = await writer.after(interval);
        else if (isConflict(error)) await delay(randomness.number() * 50 * ++conflicts);
        else throw error;
      }
    }
    throw new Error(`The audit entry ${event.type} could not be counted: too many writers at once.`);
  }

  return (event, as) => {
    const joined = waiting.get(as.key);
    if (joined) {
      joined.times += 1;
      return joined.done;
    }
    const underWay = writing.get(as.key);
    const group = { times: 1, done: Promise.resolve() };
    if (underWay) waiting.set(as.key, group);
    group.done = (async () => {
      if (underWay) {
        await underWay.catch(() => undefined); // the caller of that write handles the error
        waiting.delete(as.key);
      }
      await count(event, as, group.times);
    })();
    writing.set(as.key, group.done);
    const forget = () => {
      if (writing.get(as.key) === group.done) writing.delete(as.key);
    };
    group.done.then(forget, forget);
    return group.done;
  };
}

/**
 * Returns a ULID of the window's start, or of the interval's start if that is later. Its random part is a hash, so that all
 * instances compute the same id.
 */
function countedId({ key, windowMs }: CountedAs, at: number, occupiedIds: number): string {
  const start = Math.max(Math.floor(at / windowMs) * windowMs, intervalOf(at));
  const hash = createHash("sha256")
    .update(`${start}|${key}${"|".repeat(occupiedIds)}`)
    .digest();
  let random = "";
  for (let digit = 0; digit < 16; digit++) random += "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[hash[digit]! & 31];
  return encodeTime(start) + random;
}
