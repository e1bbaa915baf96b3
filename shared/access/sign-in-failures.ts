import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";

/** Failed sign-ins of one username from one address after which that pair is blocked. */
const PAIR_LIMIT = 5;
/** Time that a pair (a username and an address) stays blocked, and after which its failures expire. */
const PAIR_BLOCK_MS = 15 * MINUTE_MS;
/** Failed sign-ins of one username from all addresses after which further sign-ins are delayed: 2, 4, 8 … seconds. */
const NAME_LIMIT = 10;
const MAX_NAME_DELAY_MS = 15 * MINUTE_MS;
/** Time without a failure after which the failures of a username expire. */
const NAME_MEMORY_MS = DAY_MS;
/** Attempts to write a count while other sign-ins of the username write it. */
const ATTEMPTS = 20;

const count = z.object({ count: z.number(), lastAt: z.string(), expiresAt: z.string() });
type Count = z.infer<typeof count>;

/**
 * A count of failed sign-ins. Partition: the first hex digit of the username's hash, so that a clean-up can enumerate all
 * partitions. Row key: the hash and `|`, and for a pair the address's hash, so that all rows of a username form one range.
 */
export const Failures = entity("SignInFailures", count);

/** A sign-in whose password is about to be verified. */
export interface SignInAttempt {
  username: string;
  address: string;
  /**
   * True if the user recently signed in from this address. Then only failures of this pair count, so failures from other
   * addresses can't lock out the user.
   */
  isKnownAddress: boolean;
}

/** A sign-in that was counted as a failure before its password is verified, with the previous rows. */
export interface CountedAttempt {
  readonly partition: string;
  readonly pair: CountedRow;
  /** Undefined for a known address. */
  readonly name: CountedRow | undefined;
  /** True if the pair is blocked unless this attempt succeeds. */
  readonly isLast: boolean;
}
/** A count that this attempt increased: its row key, its value before, and its ETag after. */
interface CountedRow {
  readonly key: string;
  readonly before: Row<Count> | undefined;
  readonly etag: string;
}

/**
 * Counts failed sign-ins, and blocks or delays further ones: per pair of username and address, and per username. It counts for
 * unknown users too. An attempt is counted as a failure before its password is verified, and the count is undone after a
 * success. So concurrent attempts on many instances get no more tries than sequential ones.
 */
export interface SignInFailures {
  /** Counts an attempt, or returns how long the caller must wait. */
  begin(attempt: SignInAttempt): Promise<CountedAttempt | { waitSeconds: number }>;
  /** Records a correct password: resets the count of the pair, and undoes this attempt for the username. */
  succeeded(attempt: CountedAttempt): Promise<void>;
  /** Undoes an attempt whose password was not verified. */
  withdraw(attempt: CountedAttempt): Promise<void>;
  /** Returns when the last block or delay of the username ends, over all addresses. Undefined if there is none. */
  lockedUntil(username: string): Promise<Date | undefined>;
  /** Deletes a username's failures from every address. */
  clear(username: string): Promise<void>;
  /** Deletes expired counts. */
  cleanUp(): Promise<void>;
}

/**
 * Creates the counter of failed sign-ins.
 *
 * @param deps.hash - Hashes a username or address to hex. Usernames are not stored because people sometimes type a password
 * into the username field.
 */
export function createSignInFailures(deps: {
  tables: Tables;
  clock: Clock;
  hash: (text: string) => string;
}): SignInFailures {
  const { tables, clock, hash } = deps;

  function keysOf(username: string, address: string) {
    const name = hash(username);
    return { partition: name.slice(0, 1), nameKey: `${name}|`, pairKey: `${name}|${hash(address)}` };
  }

  /** The range of all rows of a username. */
  function rangeOf(username: string) {
    const { partition, nameKey } = keysOf(username, "");
    return { partition, nameKey, range: { partitionKey: partition, from: nameKey, before: keyEnd(nameKey) } };
  }

  async function read(username: string, address: string) {
    const { partition, nameKey, pairKey } = keysOf(username, address);
    const [pair, name] = await Promise.all([
      tables.get(Failures, partition, pairKey),
      tables.get(Failures, partition, nameKey),
    ]);
    return { partition, nameKey, pairKey, pair, name, now: clock.now().getTime() };
  }

  /** Restores the previous rows, or subtracts one failure if another attempt has been counted since. */
  async function undo({ partition, pair, name }: CountedAttempt, resetPair: boolean): Promise<void> {
    await repeatOnConflict(async (attempt) => {
      const currentCount = async ({ key, etag, before }: CountedRow): Promise<CurrentCount | undefined> => {
        // First assumes, without a read, that no other attempt has been counted since. A conflict shows if one has.
        if (attempt === 1) return { etag, without: before };
        const current = await tables.get(Failures, partition, key);
        return current && { etag: current.etag, without: current.etag === etag ? before : withOneLessFailure(current) };
      };
      const [currentPair, currentName] = await Promise.all([currentCount(pair), name && currentCount(name)]);
      const operations = [
        ...restore(pair.key, currentPair && resetPair ? { ...currentPair, without: undefined } : currentPair),
        ...(name ? restore(name.key, currentName) : []),
      ];
      if (operations.length > 0) await tables.transaction(Failures.table, partition, operations);
    }, ATTEMPTS);
  }

  return {
    begin: ({ username, address, isKnownAddress }) =>
      repeatOnConflict(async () => {
        const { partition, nameKey, pairKey, pair, name, now } = await read(username, address);
        const waitMs = isKnownAddress ? pairWaitMs(pair, now) : Math.max(pairWaitMs(pair, now), nameWaitMs(name, now));
        if (waitMs > 0) return { waitSeconds: Math.ceil(waitMs / SECOND_MS) };
        const pairCount = withOneMoreFailure(pair, now, PAIR_BLOCK_MS);
        const etags = await tables.transaction(Failures.table, partition, [
          writeCount(pairKey, pair, pairCount),
          ...(isKnownAddress ? [] : [writeCount(nameKey, name, withOneMoreFailure(name, now, NAME_MEMORY_MS))]),
        ]);
        return {
          partition,
          pair: { key: pairKey, before: pair, etag: etags.get(pairKey)! },
          name: isKnownAddress ? undefined : { key: nameKey, before: name, etag: etags.get(nameKey)! },
          isLast: pairCount.count >= PAIR_LIMIT,
        };
      }, ATTEMPTS),

    succeeded: (attempt) => undo(attempt, true),
    withdraw: (attempt) => undo(attempt, false),

    async lockedUntil(username) {
      const { nameKey, range } = rangeOf(username);
      const now = clock.now().getTime();
      let waitMs = 0;
      for await (const rows of tables.pages(Failures, range)) {
        for (const row of rows) {
          waitMs = Math.max(waitMs, row.rowKey === nameKey ? nameWaitMs(row, now) : pairWaitMs(row, now));
        }
      }
      return waitMs > 0 ? new Date(now + waitMs) : undefined;
    },

    async clear(username) {
      const { partition, range } = rangeOf(username);
      for await (const rows of tables.pages(Failures, { ...range, select: ["count"] })) {
        const removals = rows.map((row) => remove(Failures, row.rowKey));
        await tables.write(Failures.table, partition, removals);
      }
    },

    async cleanUp() {
      const now = clock.now().toISOString();
      for (const partitionKey of "0123456789abcdef") {
        for await (const rows of tables.pages(Failures, {
          partitionKey,
          select: ["expiresAt"],
          onCorrupt: "leaveOut",
        })) {
          for (const row of rows.filter(({ expiresAt }) => expiresAt <= now)) {
            // A count that was just increased has another ETag, and its row stays.
            await undefinedIfChanged(tables.remove(Failures, partitionKey, row.rowKey, row.etag));
          }
        }
      }
    },
  };
}

const failuresOf = (row: Count | undefined, now: number): number =>
  row && Date.parse(row.expiresAt) > now ? row.count : 0;

/** Returns how long a pair is still blocked. 0 if it is not. */
function pairWaitMs(row: Count | undefined, now: number): number {
  return row && failuresOf(row, now) >= PAIR_LIMIT ? Date.parse(row.lastAt) + PAIR_BLOCK_MS - now : 0;
}

/** Returns how long further sign-ins of a username are still delayed. 0 if they are not. */
function nameWaitMs(row: Count | undefined, now: number): number {
  const over = failuresOf(row, now) - NAME_LIMIT;
  if (!row || over <= 0) return 0;
  return Math.max(0, Date.parse(row.lastAt) + Math.min(SECOND_MS * 2 ** over, MAX_NAME_DELAY_MS) - now);
}

const withOneMoreFailure = (row: Count | undefined, now: number, memoryMs: number): Count => ({
  count: failuresOf(row, now) + 1,
  lastAt: new Date(now).toISOString(),
  expiresAt: new Date(now + memoryMs).toISOString(),
});

const writeCount = (key: string, row: Row<Count> | undefined, value: Count): Operation =>
  row ? replace(Failures, key, value, row.etag) : insert(Failures, key, value);

/** The current ETag of a count, and its value without the attempt that is undone. */
interface CurrentCount {
  etag: string;
  without: Count | undefined;
}

/** Returns the operation that undoes an attempt. None if the row has been deleted. */
function restore(key: string, current: CurrentCount | undefined): Operation[] {
  if (!current) return [];
  return [
    current.without ? replace(Failures, key, current.without, current.etag) : remove(Failures, key, current.etag),
  ];
}

const withOneLessFailure = (row: Count): Count | undefined =>
  row.count > 1 ? { ...row, count: row.count - 1 } : undefined;

/** Verifies a password or second factor. If that throws, the counted attempt is withdrawn, so that it is no failure. */
export async function verifyCounted<T>(
  failures: SignInFailures,
  attempt: CountedAttempt,
  verify: () => Promise<T>,
): Promise<T> {
  try {
    return await verify();
  } catch (error) {
    await failures.withdraw(attempt);
    throw error;
  }
}
