import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRow, readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { type Beginning, type Digest, type DigestName, type DigestReading, readDigest } from "./digest.ts";
import type { Purges } from "./purge-record.ts";
import type { PublicKeys } from "./signing.ts";

/**
 * Reads the chain of digests. A digest is the signed hash of the entries of a ten-minute interval. Each digest names the
 * previous one. Anyone with access to storage may have changed the rows, so only signatures and the anchor (the copy of the
 * newest digest in the key vault) are trusted.
 */

/** The newest digest of the chain, after which sealing continues. */
export interface ChainEnd {
  interval: Interval;
  /** Number of the digest, counted from 1. */
  number: number;
  /** Number of entries in all intervals up to this one. */
  total: number;
  /** SHA-256 of the digest. */
  hash: string;
  /** The beginning of the chain according to this digest. Absent from digests of an earlier version. */
  beginning: Beginning | undefined;
  /** Every entry since this interval must have an authentication code, by this digest. */
  authenticatedFrom: Interval | undefined;
  /** False if no trusted key signed the digest and the anchor does not name it. Then only its position is used. */
  verified: boolean;
}

/** The services that reading the chain needs, and the trusted keys. */
export interface ChainDependencies {
  tables: Tables;
  clock: Clock;
  keys: PublicKeys;
}

/** Length of the first range in which the newest digest is searched, and the factor by which each next range is longer. */
const FIRST_SEARCH_MS = HOUR_MS;
const SEARCH_FACTOR = 8;
/** Digests of future intervals are ignored, except within this tolerance for the clock of the instance that sealed. */
const MAX_CLOCK_SKEW_MS = DAY_MS;
/** Earlier than any digest: this service did not exist before. */
const EARLIEST: Interval = Date.parse("2020-01-01T00:00:00Z");

/**
 * Returns the newest digest that a trusted key signed or that the anchor names. Other rows are ignored, so a forged row can't
 * change the result. Searches backwards from now in growing ranges, so it costs one request, however long the chain is, if the
 * last interval was sealed within the hour.
 *
 * If no such digest exists, returns the newest digest of an unknown key as unverified. So sealing continues that chain and does
 * not overwrite it after all keys were replaced at once.
 *
 * @param anchored - The digest that the anchor names.
 */
export async function chainEnd(deps: ChainDependencies, anchored?: DigestName): Promise<ChainEnd | undefined> {
  /** Where the search starts. Ranges are measured from here, so the first one starts `FIRST_SEARCH_MS` before now. */
  const horizon = intervalOf(deps.clock.now().getTime()) + MAX_CLOCK_SKEW_MS;
  let before = horizon;
  let unverified: ChainEnd | undefined;
  for (let rangeMs = FIRST_SEARCH_MS + MAX_CLOCK_SKEW_MS; before > EARLIEST; rangeMs *= SEARCH_FACTOR) {
    const from = Math.max(EARLIEST, intervalOf(horizon - rangeMs));
    const newest = await newestInRange(deps, { from, before }, anchored);
    if (newest.verified) return newest.verified;
    unverified ??= newest.unverified;
    if (newest.isEmpty && !(await existsDigestBefore(deps.tables, from))) break;
    before = from;
  }
  return unverified;
}

/**
 * Returns the newest digest of a range that is verified, and the newest one of an unknown key. Rows come in the order of time,
 * so the last match is the newest. `claims` is the content of a row that no trusted key signed.
 */
async function newestInRange(
  { tables, keys }: ChainDependencies,
  range: { from: Interval; before: Interval },
  anchored: DigestName | undefined,
) {
  let [verified, unverified]: (ChainEnd | undefined)[] = [];
  let isEmpty = true;
  const bounds = { from: intervalName(range.from), before: intervalName(range.before) };
  for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION, ...bounds })) {
    isEmpty = false;
    for (const { rowKey, value } of page) {
      const read = readDigest(rowKey, value?.digest, keys);
      if (read.state === "genuine") verified = endOf(read.digest, read.hash, true);
      // A misplaced digest belongs to another interval.
      if (read.state === "genuine" || read.state === "misplaced" || !read.claims) continue;
      // No trusted key signed this row. But if the anchor names its hash, it is the text that was sealed.
      const claims = { ...read.claims, beginning: undefined, authenticatedFrom: undefined };
      if (read.hash === anchored?.hash) {
        verified = endOf({ ...claims, number: anchored.number }, read.hash, true);
      } else if (isPlausible(claims)) {
        unverified = endOf(claims, read.hash, false);
      }
    }
  }
  return { verified, unverified, isEmpty };
}

/** Returns the end of a chain whose newest digest is this one. */
export const endOf = (digest: Digest, hash: string, verified: boolean): ChainEnd => ({
  interval: intervalFrom(digest.interval),
  number: digest.number,
  total: digest.total,
  hash,
  beginning: digest.beginning,
  authenticatedFrom: digest.authenticatedFrom === undefined ? undefined : intervalFrom(digest.authenticatedFrom),
  verified,
});

/** Returns false if a digest's number is too high: it can't exceed the number of intervals since the service exists. */
export const isPlausible = ({ number, interval }: { number: number; interval: string }): boolean =>
  number <= (intervalFrom(interval) - EARLIEST) / INTERVAL_MS;

async function existsDigestBefore(tables: Tables, interval: Interval): Promise<boolean> {
  const range = { partitionKey: DIGESTS_PARTITION, before: intervalName(interval), pageSize: 1, select: [] };
  for await (const page of tables.pages(DigestRow, range)) if (page.length > 0) return true;
  return false;
}

/**
 * Returns the beginning of a chain whose digests don't contain it, because an earlier version signed them. This is the start of
 * the first purge. Without a purge it is computed from the number of the oldest trusted digest, since each interval has one
 * digest.
 */
export async function oldestBeginning(
  { tables, keys }: Pick<ChainDependencies, "tables" | "keys">,
  purges: Purges,
): Promise<Beginning | undefined> {
  const [first] = purges.records;
  if (first) return { interval: first.record.from, hash: null };
  for await (const page of readRows(tables, DigestRow, { partitionKey: DIGESTS_PARTITION })) {
    for (const { rowKey, value } of page) {
      const read = readDigest(rowKey, value?.digest, keys);
      if (read.state !== "genuine") continue;
      const { digest, hash } = read;
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

/** Reads the row under the key of an interval's digest. Undefined if there is none. */
export async function digestAt(tables: Tables, interval: string, keys: PublicKeys): Promise<DigestReading | undefined> {
  const row = await readRow(tables, DigestRow, DIGESTS_PARTITION, interval);
  return row && readDigest(interval, row.value?.digest, keys);
}

/** Returns the end of a chain whose digests were all purged: the last purged digest. */
export function purgedEnd(purges: Purges): ChainEnd | undefined {
  const record = purges.records.at(-1)?.record;
  if (!record) return undefined;
  const { number, interval, hash } = record.last;
  const unknown = { beginning: undefined, authenticatedFrom: undefined };
  return { interval: intervalFrom(interval), number, hash, total: record.total, ...unknown, verified: true };
}
