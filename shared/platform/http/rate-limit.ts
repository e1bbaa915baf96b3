import { createHash } from "node:crypto";
import * as z from "zod";
import type { Clock } from "../runtime.ts";
import { isConflict, unlessChanged } from "../storage/conflict.ts";
import { entity, type Row } from "../storage/entity.ts";
import { keyText } from "../storage/keys.ts";
import type { Tables } from "../storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../time.ts";

/** Callers remembered in memory; the oldest are forgotten first. A forgotten caller only costs one more read. */
const REMEMBERED_CALLERS = 5_000;
/** After another instance was seen writing a caller's row, it is read before each write for this long. */
const SHARED_FOR = MINUTE_MS;

/** One caller's row: the accepted calls of the longest window in force. Partitioned so that a clean-up can walk it. */
const Calls = entity(
  "RateLimits",
  z.object({
    /** Instants in milliseconds, ascending, as 8-byte little-endian doubles. */
    times: z.instanceof(Uint8Array),
    lastAt: z.string(),
  }),
);

export interface Decision {
  allowed: boolean;
  /** Of the window with the least left. */
  limit: number;
  remaining: number;
  /** Whole seconds until that window has room again for one more than `remaining`. */
  resetSeconds: number;
  /** 0 when allowed. */
  retryAfterSeconds: number;
}

/** Limits of one kind of bucket; 0 turns a window off. */
export interface Limits {
  perMinute: number;
  perHour: number;
}

export interface RateLimiter {
  /** Counts one call of `caller` unless it is over; refused calls are not counted. */
  take(caller: string): Promise<Decision>;
  /** Removes the rows of callers not seen for an hour. */
  cleanUp(): Promise<void>;
}

interface Memory {
  row: Row<{ times: Uint8Array<ArrayBuffer>; lastAt: string }> | undefined;
  times: number[];
  sharedUntil: number;
  waiting: { resolve: (decision: Decision) => void; reject: (error: unknown) => void }[];
  running: boolean;
}

/**
 * Sliding windows, exact across instances: one row of packed times per caller, written with its ETag. Calls of one
 * caller that arrive while its row is being written are counted together in the next write. What is remembered in
 * memory can only lack calls, so a caller it knows to be over is refused without asking.
 */
export function createRateLimiter(deps: { tables: Tables; clock: Clock; limits: Limits; name: string }): RateLimiter {
  const { tables, clock, limits, name } = deps;
  const callers = new Map<string, Memory>();
  /** Older calls count in no window; a row that kept them could outgrow what an entity may hold. */
  const longest = limits.perHour > 0 ? HOUR_MS : MINUTE_MS;

  function remember(caller: string): Memory {
    const known = callers.get(caller);
    const memory = known ?? { row: undefined, times: [], sharedUntil: 0, waiting: [], running: false };
    callers.delete(caller);
    callers.set(caller, memory);
    if (callers.size > REMEMBERED_CALLERS) {
      const oldest = callers.entries().next().value;
      if (oldest && !oldest[1].running) callers.delete(oldest[0]);
    }
    return memory;
  }

  async function countWaiting(caller: string, memory: Memory): Promise<void> {
    memory.running = true;
    const batch = memory.waiting.splice(0);
    try {
      const decisions = await countBatch(caller, memory, batch.length);
      batch.forEach((waiter, index) => {
        waiter.resolve(decisions[index]!);
      });
    } catch (error) {
      for (const waiter of batch) waiter.reject(error);
    }
    memory.running = false;
    if (memory.waiting.length > 0) void countWaiting(caller, memory);
  }

  /** Decides `count` calls in one write, again from the start when another instance wrote in between. */
  async function countBatch(caller: string, memory: Memory, count: number): Promise<Decision[]> {
    const partition = shardOf(`${name}|${caller}`);
    const key = keyText(`${name}|${caller}`);
    for (;;) {
      const now = clock.now().getTime();
      if (!memory.row || now < memory.sharedUntil) {
        memory.row = await tables.get(Calls, partition, key);
        memory.times = memory.row ? unpack(memory.row.times) : [];
      }
      const times = memory.times.filter((time) => time > now - longest);
      const decisions: Decision[] = [];
      for (let call = 0; call < count; call++) {
        const before = decide(times, now, limits);
        if (before.allowed) times.push(now);
        decisions.push(
          before.allowed ? { ...decide(times, now, limits), allowed: true, retryAfterSeconds: 0 } : before,
        );
      }
      if (!decisions.some((decision) => decision.allowed)) return decisions;
      const value = { times: pack(times), lastAt: new Date(now).toISOString() };
      try {
        memory.row = memory.row
          ? await tables.replace(Calls, { ...memory.row, ...value })
          : await tables.insert(Calls, partition, key, value);
        memory.times = times;
        return decisions;
      } catch (error) {
        if (!isConflict(error)) throw error;
        memory.row = undefined;
        memory.sharedUntil = now + SHARED_FOR;
      }
    }
  }

  return {
    async take(caller) {
      if (limits.perMinute === 0 && limits.perHour === 0) {
        return { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
      }
      const memory = remember(caller);
      const known = decide(memory.times, clock.now().getTime(), limits);
      if (!known.allowed) return known;
      return await new Promise<Decision>((resolve, reject) => {
        memory.waiting.push({ resolve, reject });
        if (!memory.running) void countWaiting(caller, memory);
      });
    },

    async cleanUp() {
      const before = new Date(clock.now().getTime() - HOUR_MS).toISOString();
      for (const partitionKey of SHARDS) {
        for await (const rows of tables.pages(Calls, { partitionKey, select: ["lastAt"] })) {
          for (const row of rows) {
            if (row.lastAt >= before) continue;
            // A caller that came back in this moment keeps its row: the ETag no longer fits.
            await unlessChanged(tables.remove(Calls, partitionKey, row.rowKey, row.etag));
          }
        }
      }
    },
  };
}

const SHARDS = [..."0123456789abcdef"];
const shardOf = (caller: string): string => createHash("sha256").update(caller).digest("hex").slice(0, 1);

/** What one more call would get, given the accepted ones (ascending). */
function decide(times: readonly number[], now: number, limits: Limits): Decision {
  const windows = [
    { limit: limits.perMinute, length: MINUTE_MS },
    { limit: limits.perHour, length: HOUR_MS },
  ]
    .filter((window) => window.limit > 0)
    .map((window) => {
      const inside = times.filter((time) => time > now - window.length);
      const oldest = inside[Math.max(0, inside.length - window.limit)];
      const frees = oldest === undefined ? 0 : Math.max(1, Math.ceil((oldest + window.length - now) / SECOND_MS));
      return { limit: window.limit, remaining: Math.max(0, window.limit - inside.length), frees };
    });
  const tightest = windows.reduce((least, window) => (window.remaining < least.remaining ? window : least));
  const over = windows.filter((window) => window.remaining === 0);
  return {
    allowed: over.length === 0,
    limit: tightest.limit,
    remaining: tightest.remaining,
    resetSeconds: tightest.frees,
    retryAfterSeconds: Math.max(0, ...over.map((window) => window.frees)),
  };
}

const pack = (times: number[]): Uint8Array<ArrayBuffer> => new Uint8Array(new Float64Array(times).buffer);
const unpack = (bytes: Uint8Array): number[] => [...new Float64Array(new Uint8Array(bytes).buffer)];
