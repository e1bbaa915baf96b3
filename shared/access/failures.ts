import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { repeatOnConflict, undefinedIfChanged } from "../platform/storage/conflict.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import { insert, type Operation, remove, replace, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS, SECOND_MS } from "../platform/time.ts";

/** Failures of one username from one address after which that pair is refused. */
const PAIR_LIMIT = 5;
/** Milliseconds that a pair is refused, and after which its failures are forgotten. */
const PAIR_BLOCK_MS = 15 * MINUTE_MS;
/** Failures of one username, over all addresses, after which its answers slow down: 2, 4, 8 … seconds. */
const NAME_LIMIT = 10;
const MAX_NAME_DELAY_MS = 15 * MINUTE_MS;
/** Milliseconds without a failure after which a username's failures are forgotten. */
const NAME_MEMORY_MS = DAY_MS;
/** How often a count is written that other sign-ins of the username come before. */
const ATTEMPTS = 20;

const count = z.object({ count: z.number(), lastAt: z.string(), expiresAt: z.string() });
type Count = z.infer<typeof count>;

/**
 * Partition: the first hex digit of the username's hash, so that a clean-up can walk them all. Row key: the hash and `|`,
 * followed by the address's hash for a pair, so that all rows of a username are one range.
 */
const Failures = entity("SignInFailures", count);

/** Whose password is about to be checked. */
export interface Try {
  username: string;
  address: string;
  /**
   * Whether the user signed in from there lately. Then only this pair's failures count: whoever fails for the username
   * from elsewhere keeps nobody out who is known.
   */
  known: boolean;
}

/** A sign-in that was counted as a failure before its password is looked at, and what its rows were before. */
export interface Attempt {
  readonly partition: string;
  readonly pair: Counted;
  /** None for a known pair. */
  readonly name: Counted | undefined;
  /** True when the pair is refused from now on, unless this attempt succeeds. */
  readonly isLast: boolean;
}
interface Counted {
  readonly key: string;
  readonly before: Row<Count> | undefined;
  readonly etag: string;
}

/**
 * Counts failed sign-ins per username and address and per username, known user or not. An attempt is counted before its
 * password is checked and taken back afterwards, so that many at once on many instances get no more tries than one after
 * the other.
 */
export interface SignInFailures {
  /** Counts an attempt, unless seconds must pass before it may come. */
  begin(attempt: Try): Promise<Attempt | { waitSeconds: number }>;
  /** The password was right: the pair starts over, and the username stands as it did before. */
  succeeded(attempt: Attempt): Promise<void>;
  /** The password was not looked at: both stand as they did before. */
  withdraw(attempt: Attempt): Promise<void>;
  /** Until when the username is refused or slowed down, from whichever address that is longest. Undefined: from none. */
  lockedUntil(username: string): Promise<Date | undefined>;
  /** Forgets a username's failures from every address. */
  clear(username: string): Promise<void>;
  /** Removes what no longer counts. */
  cleanUp(): Promise<void>;
}

/** @param deps.hash - Hashes a username or address, in hex: people type passwords into the field for their name. */
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

  /** All rows of a username. */
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

  /** Writes what the rows were before, or one failure less where another attempt was counted meanwhile. */
  async function takeBack({ partition, pair, name }: Attempt, pairStartsOver: boolean): Promise<void> {
    await repeatOnConflict(async (attempt) => {
      const standing = async ({ key, etag, before }: Counted): Promise<Standing | undefined> => {
        if (attempt === 1) return { etag, without: before };
        const now = await tables.get(Failures, partition, key);
        return now && { etag: now.etag, without: now.etag === etag ? before : oneLess(now) };
      };
      const [pairNow, nameNow] = await Promise.all([standing(pair), name && standing(name)]);
      const operations = [
        ...restore(pair.key, pairNow && pairStartsOver ? { ...pairNow, without: undefined } : pairNow),
        ...(name ? restore(name.key, nameNow) : []),
      ];
      if (operations.length > 0) await tables.transaction(Failures.table, partition, operations);
    }, ATTEMPTS);
  }

  return {
    begin: ({ username, address, known }) =>
      repeatOnConflict(async () => {
        const { partition, nameKey, pairKey, pair, name, now } = await read(username, address);
        const waitMs = known ? pairWait(pair, now) : Math.max(pairWait(pair, now), nameWait(name, now));
        if (waitMs > 0) return { waitSeconds: Math.ceil(waitMs / SECOND_MS) };
        const ofPair = counted(pair, now, PAIR_BLOCK_MS);
        const etags = await tables.transaction(Failures.table, partition, [
          write(pairKey, pair, ofPair),
          ...(known ? [] : [write(nameKey, name, counted(name, now, NAME_MEMORY_MS))]),
        ]);
        return {
          partition,
          pair: { key: pairKey, before: pair, etag: etags.get(pairKey)! },
          name: known ? undefined : { key: nameKey, before: name, etag: etags.get(nameKey)! },
          isLast: ofPair.count >= PAIR_LIMIT,
        };
      }, ATTEMPTS),

    succeeded: (attempt) => takeBack(attempt, true),
    withdraw: (attempt) => takeBack(attempt, false),

    async lockedUntil(username) {
      const { nameKey, range } = rangeOf(username);
      const now = clock.now().getTime();
      let waitMs = 0;
      for await (const rows of tables.pages(Failures, range)) {
        for (const row of rows) {
          waitMs = Math.max(waitMs, row.rowKey === nameKey ? nameWait(row, now) : pairWait(row, now));
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
        for await (const rows of tables.pages(Failures, { partitionKey, select: ["expiresAt"] })) {
          for (const row of rows.filter(({ expiresAt }) => expiresAt <= now)) {
            // One that failed again in this moment keeps its row: the ETag no longer fits.
            await undefinedIfChanged(tables.remove(Failures, partitionKey, row.rowKey, row.etag));
          }
        }
      }
    },
  };
}

const failuresOf = (row: Count | undefined, now: number): number =>
  row && Date.parse(row.expiresAt) > now ? row.count : 0;

function pairWait(row: Count | undefined, now: number): number {
  return row && failuresOf(row, now) >= PAIR_LIMIT ? Date.parse(row.lastAt) + PAIR_BLOCK_MS - now : 0;
}

function nameWait(row: Count | undefined, now: number): number {
  const over = failuresOf(row, now) - NAME_LIMIT;
  if (!row || over <= 0) return 0;
  return Math.max(0, Date.parse(row.lastAt) + Math.min(SECOND_MS * 2 ** over, MAX_NAME_DELAY_MS) - now);
}

const counted = (row: Count | undefined, now: number, memoryMs: number): Count => ({
  count: failuresOf(row, now) + 1,
  lastAt: new Date(now).toISOString(),
  expiresAt: new Date(now + memoryMs).toISOString(),
});

const write = (key: string, row: Row<Count> | undefined, value: Count): Operation =>
  row ? replace(Failures, key, value, row.etag) : insert(Failures, key, value);

/** A row as it is now, and what it is without the attempt that is taken back. */
interface Standing {
  etag: string;
  without: Count | undefined;
}

/** Nothing to do for a row that is gone: it was cleared, or cleaned up. */
function restore(key: string, now: Standing | undefined): Operation[] {
  if (!now) return [];
  return [now.without ? replace(Failures, key, now.without, now.etag) : remove(Failures, key, now.etag)];
}

const oneLess = (row: Count): Count | undefined => (row.count > 1 ? { ...row, count: row.count - 1 } : undefined);
