import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { decodeTime, encodeTime } from "ulid";
import type { Clock, Randomness } from "../runtime.ts";
import { insert, merge, put, RowChanged, RowExists, RowMissing, replace, type Tables } from "../storage/tables.ts";
import type { AuditEvent } from "./audit.ts";
import { chainEnd } from "./chain.ts";
import { type AuditEntry, entryFrom, entryOf, entryText } from "./entry.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import {
  bornMark,
  EntryRow,
  entriesPartition,
  entryKey,
  FIRST_PARTITION,
  FirstRow,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  Mark,
  openMark,
} from "./rows.ts";
import type { Trust } from "./trust.ts";

/** How often one entry may meet a sealed interval, or one refusal another writer, before the call fails. */
const MAX_ATTEMPTS = 20;
const MINUTE_MS = 60_000;

export interface Writer {
  append(event: AuditEvent): Promise<void>;
  refused(event: AuditEvent): Promise<void>;
}

/**
 * Enters events, so that none can land behind a seal: an interval's first entry inserts its two marks, every later one
 * touches the open mark in its own transaction, and sealing deletes that mark first. A writer that comes too late fails
 * and takes the current interval. Writers don't contend: the touch asks only that the mark exists.
 */
export function createWriter(deps: { tables: Tables; clock: Clock; randomness: Randomness; trust: Trust }): Writer {
  const { tables, clock, randomness, trust } = deps;
  /** The last interval this instance knows to have been born: from then on, one transaction enters an entry. */
  let born: Interval | undefined;
  let first: Promise<Interval> | undefined;

  /** Where sealing begins. Written before the first entry of all, so that no entry can stand before it. */
  function firstInterval(candidate: Interval): Promise<Interval> {
    first ??= (async () => {
      const stored = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
      if (stored) return intervalFrom(stored.interval);
      try {
        await tables.insert(FirstRow, FIRST_PARTITION, FIRST_PARTITION, { interval: intervalName(candidate) });
        return candidate;
      } catch (error) {
        if (!(error instanceof RowExists)) throw error;
        return intervalFrom((await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION))!.interval);
      }
    })().catch((error: unknown) => {
      first = undefined;
      throw error;
    });
    return first;
  }

  /** `exists` when a row of that id is there: another writer's, or our own whose answer was lost. */
  async function enter(interval: Interval, id: string, text: string): Promise<"entered" | "exists" | "closed"> {
    const partition = entriesPartition(interval);
    const key = entryKey(interval, id);
    if (born !== interval) {
      if (interval < (await firstInterval(interval))) return "closed";
      try {
        await tables.transaction(EntryRow.table, partition, [
          insert(Mark, bornMark(interval), {}),
          insert(Mark, openMark(interval), {}),
          insert(EntryRow, key, { entry: text }),
        ]);
        born = interval;
        return "entered";
      } catch (error) {
        // Born already: by another instance, by sealing, or by this very call when its first answer was lost.
        if (!(error instanceof RowExists)) throw error;
      }
    }
    try {
      await tables.transaction(EntryRow.table, partition, [
        merge(Mark, openMark(interval), {}),
        insert(EntryRow, key, { entry: text }),
      ]);
      born = interval;
      return "entered";
    } catch (error) {
      if (error instanceof RowExists) return "exists";
      if (!(error instanceof RowMissing)) throw error;
      born = undefined;
      return (await tables.get(EntryRow, partition, key)) ? "exists" : "closed";
    }
  }

  /** The earliest instant that can still be entered after `interval` was found sealed, whatever this machine's clock says. */
  async function after(interval: Interval): Promise<number> {
    const sealed = (await chainEnd(tables, await trust.keys(), clock))?.interval ?? 0;
    return Math.max(interval, sealed, (await firstInterval(interval)) - INTERVAL_MS) + INTERVAL_MS;
  }

  /** All copies in one transaction, so that either every filter finds the entry or sealing sees that none does. */
  async function index(entry: AuditEntry): Promise<void> {
    const text = entryText(entry);
    await tables.transaction(
      IndexRow.table,
      INDEX_PARTITION,
      indexKeys(entry).map((key) => put(IndexRow, key, { entry: text })),
    );
  }

  async function append(event: AuditEvent): Promise<void> {
    let notBefore = 0;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      // The entry's instant is its id's: a factory of monotonic ids may be a little ahead of the clock.
      const id = randomness.ulid(new Date(Math.max(clock.now().getTime(), notBefore)));
      const at = decodeTime(id);
      const entry = entryOf(event, id, at);
      if ((await enter(intervalOf(at), id, entryText(entry))) !== "closed") return await index(entry);
      notBefore = await after(intervalOf(at));
    }
    throw new Error(`The audit entry ${event.type} found every interval sealed.`);
  }

  /** Enters a refusal, or adds `times` to its entry of this minute, under the id that follows from both. */
  async function tally(event: AuditEvent, times: number): Promise<void> {
    let notBefore = 0;
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const at = Math.max(clock.now().getTime(), notBefore);
      const interval = intervalOf(at);
      const id = refusalId(event, at);
      const key = entryKey(interval, id);
      const stored = await tables.get(EntryRow, entriesPartition(interval), key);
      if (!stored) {
        const entry = { ...entryOf(event, id, at), count: times };
        const result = await enter(interval, id, entryText(entry));
        if (result === "entered") return await index(entry);
        if (result === "closed") notBefore = await after(interval);
        continue;
      }
      const before = entryFrom(stored.entry);
      const entry = { ...before, count: before.count + times, lastOccurredAt: new Date(at).toISOString() };
      try {
        await tables.transaction(EntryRow.table, entriesPartition(interval), [
          merge(Mark, openMark(interval), {}),
          replace(EntryRow, key, { entry: entryText(entry) }, stored.etag),
        ]);
        return await index(entry);
      } catch (error) {
        if (error instanceof RowMissing && error.rowKey === openMark(interval)) notBefore = await after(interval);
        else if (error instanceof RowChanged) await delay(randomness.number() * 50 * (attempt + 1));
        else throw error;
      }
    }
    throw new Error(`The refusal ${event.type} could not be counted: too many writers at once.`);
  }

  /** Per refusal: the write under way, and those that wait to be counted by the next one. */
  const writing = new Map<string, Promise<void>>();
  const waiting = new Map<string, { times: number; done: Promise<void> }>();

  function refused(event: AuditEvent): Promise<void> {
    const key = refusalKey(event);
    const joined = waiting.get(key);
    if (joined) {
      joined.times += 1;
      return joined.done;
    }
    const ahead = writing.get(key);
    const group = { times: 1, done: Promise.resolve() };
    if (ahead) waiting.set(key, group);
    group.done = (async () => {
      if (ahead) {
        await ahead.catch(() => undefined); // its own caller hears of it
        waiting.delete(key);
      }
      await tally(event, group.times);
    })();
    writing.set(key, group.done);
    const forget = () => {
      if (writing.get(key) === group.done) writing.delete(key);
    };
    group.done.then(forget, forget);
    return group.done;
  }

  return { append, refused };
}

const refusalKey = ({ type, caller, target }: AuditEvent): string =>
  JSON.stringify([type, caller.actor, caller.address, target?.type, target?.id]);

/** A ULID of the minute's start whose random part is a hash: the same for every instance that sees the same refusal. */
function refusalId(event: AuditEvent, at: number): string {
  const minute = Math.floor(at / MINUTE_MS) * MINUTE_MS;
  const hash = createHash("sha256")
    .update(`${minute}|${refusalKey(event)}`)
    .digest();
  let random = "";
  for (let digit = 0; digit < 16; digit++) random += "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[hash[digit]! & 31];
  return encodeTime(minute) + random;
}
