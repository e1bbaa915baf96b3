import { createHash } from "node:crypto";
import * as z from "zod";
import type { Clock } from "../runtime.ts";
import { isConflict, undefinedIfChanged } from "../storage/conflict.ts";
import { bytesMember, entity, type Row } from "../storage/entity.ts";
import { keyText } from "../storage/keys.ts";
import { StorageCorrupt, type Tables } from "../storage/tables.ts";
import { HOUR_MS, MINUTE_MS, SECOND_MS } from "../time.ts";

/** Callers cached in memory; the oldest are evicted first. An evicted caller costs one more read. */
const MAX_CACHED_CALLERS = 5_000;
/** Time after a conflict with another instance's write, in which the caller's row is read before each write. */
const SHARED_ROW_MS = MINUTE_MS;

/** Row of a caller: the accepted calls in the longest active window. Partitioned so that a cleanup can list the rows. */
export const Calls = entity(
  "RateLimits",
  z.object({
    /** Times in milliseconds, ascending, as 8-byte little-endian doubles. */
    times: bytesMember(({ length }) => length % Float64Array.BYTES_PER_ELEMENT === 0),
    lastAt: z.string(),
  }),
);

/** Whether a call is allowed, and the values of the rate limit headers. */
export interface Decision {
  allowed: boolean;
  /** Limit of the window with the fewest remaining calls. */
  limit: number;
  remaining: number;
  /** Whole seconds until `remaining` of that window increases. */
  resetSeconds: number;
  /** 0 when allowed. */
  retryAfterSeconds: number;
}

/** Limits of one rate limiter. 0 turns a window off. */
export interface Limits {
  perMinute: number;
  perHour: number;
}

/** Counts the calls of each caller and rejects those over the limit. */
export interface RateLimiter {
  /** Counts one call of `caller`, unless the limit is reached. Rejected calls are not counted. */
  take(caller: string): Promise<Decision>;
  /** Removes the rows of callers without a call for an hour. */
  cleanUp(): Promise<void>;
}

interface CachedCaller {
  /** The stored row as last read or written. Undefined if it must be read before the next write. */
  row: Row<{ times: Uint8Array<ArrayBuffer>; lastAt: string }> | undefined;
  /** Times of the accepted calls, from `row`. */
  times: number[];
  /** Until this time other instances may also write the row, so it is read before each write. */
  sharedUntil: number;
  /** Calls that arrived during a write. The next write counts them together. */
  waiting: { resolve: (decision: Decision) => void; reject: (error: unknown) => void }[];
  /** Whether a write is in progress. */
  running: boolean;
}

/**
 * Creates a rate limiter with sliding windows that is exact across instances. One row per caller stores the times of its calls
 * and is written with its ETag. Calls of a caller that arrive during a write are counted together in the next write. The cache
 * in memory can lack calls of other instances but has no extra ones, so a caller over its limit in the cache is rejected
 * without a read.
 */
export function createRateLimiter(deps: { tables: Tables; clock: Clock; limits: Limits; name: string }): RateLimiter {
  const { tables, clock, limits, name } = deps;
  const callers = new Map<string, CachedCaller>();
  /** Calls older than the longest window are not stored, because they would not count and could exceed the size of a row. */
  const longestWindowMs = limits.perHour > 0 ? HOUR_MS : MINUTE_MS;

  function cachedCaller(caller: string): CachedCaller {
    const cached = callers.get(caller);
    const memory = cached ?? { row: undefined, times: [], sharedUntil: 0, waiting: [], running: false };
    callers.delete(caller);
    callers.set(caller, memory);
    if (callers.size > MAX_CACHED_CALLERS) {
      const oldest = callers.entries().next().value;
      // During a write the caller stays. Otherwise its next call would start a second write of the same row.
      if (oldest && !oldest[1].running) callers.delete(oldest[0]);
    }
    return memory;
  }

  /** Counts the waiting calls of a caller. Calls that arrive meanwhile are counted next. Never rejects. */
  async function countWaiting(caller: string, memory: CachedCaller): Promise<void> {
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

  /** Decides `count` calls in one write. Starts again if another instance wrote the row in between. */
  async function countBatch(caller: string, memory: CachedCaller, count: number): Promise<Decision[]> {
    const partition = shardOf(`${name}|${caller}`);
    const key = keyText(`${name}|${caller}`);
    for (;;) {
      const now = clock.now().getTime();
      if (!memory.row || now < memory.sharedUntil) {
        memory.row = await readCalls(partition, key);
        memory.times = memory.row ? unpack(memory.row.times) : [];
      }
      const times = memory.times.filter((time) => time > now - longestWindowMs);
      const decisions: Decision[] = [];
      for (let call = 0; call < count; call++) {
        const decisionBefore = decide(times, now, limits);
        if (decisionBefore.allowed) times.push(now);
        decisions.push(
          decisionBefore.allowed
            ? { ...decide(times, now, limits), allowed: true, retryAfterSeconds: 0 }
            : decisionBefore,
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
        memory.sharedUntil = now + SHARED_ROW_MS;
      }
    }
  }

  /** Returns the row of a caller. A row that can't be read counts no calls, and the next write replaces it. */
  async function readCalls(partitionKey: string, rowKey: string): Promise<CachedCaller["row"]> {
    try {
      return await tables.get(Calls, partitionKey, rowKey);
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      return { partitionKey, rowKey, etag: error.etag, times: pack([]), lastAt: "" };
    }
  }

  return {
    async take(caller) {
      if (limits.perMinute === 0 && limits.perHour === 0) {
        return { allowed: true, limit: 0, remaining: 0, resetSeconds: 0, retryAfterSeconds: 0 };
      }
      const memory = cachedCaller(caller);
      const cachedDecision = decide(memory.times, clock.now().getTime(), limits);
      if (!cachedDecision.allowed) return cachedDecision;
      return await new Promise<Decision>((resolve, reject) => {
        memory.waiting.push({ resolve, reject });
        if (!memory.running) void countWaiting(caller, memory);
      });
    },

    async cleanUp() {
      const oldestKept = new Date(clock.now().getTime() - HOUR_MS).toISOString();
      for (const partitionKey of SHARDS) {
        for await (const rows of tables.pages(Calls, { partitionKey, select: ["lastAt"], onCorrupt: "leaveOut" })) {
          for (const row of rows) {
            if (row.lastAt >= oldestKept) continue;
            // If the caller has just called again, the ETag is stale and the row stays.
            await undefinedIfChanged(tables.remove(Calls, partitionKey, row.rowKey, row.etag));
          }
        }
      }
    },
  };
}

/** The partitions of the rows: the first hexadecimal digit of a hash of the limiter's name and the caller. */
const SHARDS = [..."0123456789abcdef"];
const shardOf = (caller: string): string => createHash("sha256").update(caller).digest("hex").slice(0, 1);

/** Returns the decision on one more call, given the accepted calls in ascending order. */
function decide(times: readonly number[], now: number, limits: Limits): Decision {
  const windows = [
    { limit: limits.perMinute, length: MINUTE_MS },
    { limit: limits.perHour, length: HOUR_MS },
  ]
    .filter((window) => window.limit > 0)
    .map((window) => {
      const inside = times.filter((time) => time > now - window.length);
      // When this call leaves the window, another call fits, or `remaining` increases.
      const oldest = inside[Math.max(0, inside.length - window.limit)];
      const secondsUntilFree =
        oldest === undefined ? 0 : Math.max(1, Math.ceil((oldest + window.length - now) / SECOND_MS));
      return { limit: window.limit, remaining: Math.max(0, window.limit - inside.length), secondsUntilFree };
    });
  const tightest = windows.reduce((least, window) => (window.remaining < least.remaining ? window : least));
  const exhausted = windows.filter((window) => window.remaining === 0);
  return {
    allowed: exhausted.length === 0,
    limit: tightest.limit,
    remaining: tightest.remaining,
    resetSeconds: tightest.secondsUntilFree,
    retryAfterSeconds: Math.max(0, ...exhausted.map((window) => window.secondsUntilFree)),
  };
}

const pack = (times: number[]): Uint8Array<ArrayBuffer> => new Uint8Array(new Float64Array(times).buffer);
const unpack = (bytes: Uint8Array): number[] => [...new Float64Array(new Uint8Array(bytes).buffer)];
