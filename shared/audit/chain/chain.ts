import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRow, readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { type Beginning, type Digest, type DigestName, type FoundDigest, readDigest } from "./digest.ts";
import type { Purges } from "./purge-record.ts";
import type { PublicKeys } from "./signing.ts";

/** The end of the chain, where sealing continues. */
export interface ChainEnd {
  interval: Interval;
  number: number;
  total: number;
  hash: string;
  /** The beginning of the chain according to this digest. Absent from digests of an earlier version. */
  beginning: Beginning | undefined;
  /** False if no trusted key signed the digest and the key vault does not store it. Then only its position is used. */
  verified: boolean;
}

export interface ChainDependencies {
  tables: Tables;
  clock: Clock;
  keys: PublicKeys;
}

/** The first range to search for the newest digest, and the factor of each next range. */
const FIRST_SEARCH_MS = HOUR_MS;
const SEARCH_FACTOR = 8;
/** Digests of future intervals are ignored, except within this tolerance for the clock that sealed. */
const CLOCK_AHEAD_MS = DAY_MS;
/** Earlier than any digest: this service did not exist before. */
const EARLIEST: Interval = Date.parse("2020-01-01T00:00:00Z");

/**
 * Returns the newest digest that a trusted key signed or that the key vault stores. Other rows are ignored, so a forged row
 * can't move the end. Searches backwards from now, so it costs one request, however long the chain is, if the last interval was
 * sealed within the hour.
 *
 * If no such digest exists, returns the newest digest of another key as unverified. So a chain continues and is not overwritten
 * after all keys were replaced at once.
 */
export async function chainEnd(deps: ChainDependencies, remembered?: DigestName): Promise<ChainEnd | undefined> {
  const horizon = intervalOf(deps.clock.now().getTime()) + CLOCK_AHEAD_MS;
  let before = horizon;
  let unknown: ChainEnd | undefined;
  for (let look = FIRST_SEARCH_MS + CLOCK_AHEAD_MS; before > EARLIEST; look *= SEARCH_FACTOR) {
    const from = Math.max(EARLIEST, intervalOf(horizon - look));
    const found = await newestIn(deps, { from, before }, remembered);
    if (found.verified) return found.verified;
    unknown ??= found.unknown;
    if (!found.seen && !(await anyBefore(deps.tables, from))) break;
    before = from;
  }
  return unknown;
}

async function newestIn(
  { tables, keys }: ChainDependencies,
  range: { from: Interval; before: Interval },
  remembered: DigestName | undefined,
) {
  let [verified, unknown]: (ChainEnd | undefined)[] = [];
  let seen = false;
  const bounds = { from: intervalName(range.from), before: intervalName(range.before) };
  for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...bounds })) {
    seen = true;
    for (const { rowKey, value } of page) {
      const found = readDigest(rowKey, value?.digest, keys);
      if (found.state === "genuine") verified = endOf(found.digest, found.hash, true);
      if (found.state === "genuine" || found.state === "moved" || !found.claims) continue;
      const claims = { ...found.claims, beginning: undefined };
      if (found.hash === remembered?.hash) {
        verified = endOf({ ...claims, number: remembered.number }, found.hash, true);
      } else if (isPlausible(claims)) {
        unknown = endOf(claims, found.hash, false);
      }
    }
  }
  return { verified, unknown, seen };
}

const endOf = (digest: Digest, hash: string, verified: boolean): ChainEnd => ({
  interval: intervalFrom(digest.interval),
  number: digest.number,
  total: digest.total,
  hash,
  beginning: digest.beginning,
  verified,
});

/** Returns false if the number is too high: each interval has one digest, so there are at most as many as intervals so far. */
export const isPlausible = ({ number, interval }: { number: number; interval: string }): boolean =>
  number <= (intervalFrom(interval) - EARLIEST) / INTERVAL_MS;

async function anyBefore(tables: Tables, interval: Interval): Promise<boolean> {
  const range = { partitionKey: DIGESTS_PARTITION, before: intervalName(interval), pageSize: 1, select: [] };
  for await (const page of tables.pages(DigestRow, range)) if (page.length > 0) return true;
  return false;
}

/**
 * Returns the beginning of a chain whose digests don't contain it (earlier versions): the start of the first purge, else
 * computed from the number of the oldest trusted digest, since each interval has one digest.
 */
export async function oldestBeginning(
  { tables, keys }: Pick<ChainDependencies, "tables" | "keys">,
  purges: Purges,
): Promise<Beginning | undefined> {
  const [first] = purges.records;
  if (first) return { interval: first.record.from, hash: null };
  for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION })) {
    for (const { rowKey, value } of page) {
      const found = readDigest(rowKey, value?.digest, keys);
      if (found.state !== "genuine") continue;
      const { digest, hash } = found;
      return { ...beginningByNumber(digest), hash: digest.number === 1 ? hash : null };
    }
  }
  return undefined;
}

/** Computes the beginning of the chain from a digest's number, since each interval has one digest. */
export const beginningByNumber = ({ number, interval }: { number: number; interval: string }): Beginning => ({
  interval: intervalName(intervalFrom(interval) - (number - 1) * INTERVAL_MS),
  hash: null,
});

/** Reads the row in a digest's place. Undefined if there is none. */
export async function digestAt(tables: Tables, interval: string, keys: PublicKeys): Promise<FoundDigest | undefined> {
  const row = await readRow(tables, DigestRow, DIGESTS_PARTITION, interval);
  return row && readDigest(interval, row.value?.digest, keys);
}

/** Returns the end of a chain whose digests were all purged: the last purged digest. */
export function purgedEnd(purges: Purges): ChainEnd | undefined {
  const record = purges.records.at(-1)?.record;
  if (!record) return undefined;
  const { number, interval, hash } = record.last;
  return { interval: intervalFrom(interval), number, hash, total: record.total, beginning: undefined, verified: true };
}
