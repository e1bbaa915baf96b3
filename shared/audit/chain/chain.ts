import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS, HOUR_MS } from "../../platform/time.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRow, readRows } from "../read.ts";
import { DIGESTS_PARTITION, DigestRow } from "../rows.ts";
import { type Beginning, type Digest, type DigestName, type FoundDigest, readDigest } from "./digest.ts";
import type { Purges } from "./purge-record.ts";
import type { PublicKeys } from "./signing.ts";

/** The end of the chain, where sealing goes on. */
export interface ChainEnd {
  interval: Interval;
  number: number;
  total: number;
  hash: string;
  /** Where the chain begins, as this digest says; an earlier version's don't. */
  beginning: Beginning | undefined;
  /** False when no trusted key signed it and the key vault does not remember it: it only holds its place. */
  verified: boolean;
}

export interface ChainDependencies {
  tables: Tables;
  clock: Clock;
  keys: PublicKeys;
}

/** How far back the newest digest is looked for at first, and how much further each time. */
const FIRST_LOOK_MS = HOUR_MS;
const LOOK_FURTHER = 8;
/** Digests of the future are none, but for those of a clock that was ahead when it sealed. */
const CLOCK_AHEAD_MS = DAY_MS;
/** No digest was written before this service was. */
const EARLIEST: Interval = Date.parse("2020-01-01T00:00:00Z");

/**
 * The newest digest that a trusted key signed, or that the key vault remembers. Nothing else is believed: what anyone wrote
 * beside it does not move the end. Looks back from now, so that it costs one request however long the chain is, where the
 * last one was sealed within the hour.
 *
 * Where there is no such digest at all, the newest one of another key is taken, unverified, so that a chain goes on, and
 * nothing of it is replaced, after all keys were replaced at once.
 */
export async function chainEnd(deps: ChainDependencies, remembered?: DigestName): Promise<ChainEnd | undefined> {
  const horizon = intervalOf(deps.clock.now().getTime()) + CLOCK_AHEAD_MS;
  let before = horizon;
  let unknown: ChainEnd | undefined;
  for (let look = FIRST_LOOK_MS + CLOCK_AHEAD_MS; before > EARLIEST; look *= LOOK_FURTHER) {
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

/** Every interval has one digest, so its number can't be higher than the intervals since the service exists. */
export const isPlausible = ({ number, interval }: { number: number; interval: string }): boolean =>
  number <= (intervalFrom(interval) - EARLIEST) / INTERVAL_MS;

async function anyBefore(tables: Tables, interval: Interval): Promise<boolean> {
  const range = { partitionKey: DIGESTS_PARTITION, before: intervalName(interval), pageSize: 1, select: [] };
  for await (const page of tables.pages(DigestRow, range)) if (page.length > 0) return true;
  return false;
}

/**
 * Where a chain begins whose digests don't say it yet: where the first purge began, else by the number of the oldest
 * digest that a trusted key signed, since each interval has one.
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

/** Where a chain with such a digest begins, since each interval has one. */
export const beginningByNumber = ({ number, interval }: { number: number; interval: string }): Beginning => ({
  interval: intervalName(intervalFrom(interval) - (number - 1) * INTERVAL_MS),
  hash: null,
});

/** What stands where a digest is to be; undefined when nothing does. */
export async function digestAt(tables: Tables, interval: string, keys: PublicKeys): Promise<FoundDigest | undefined> {
  const row = await readRow(tables, DigestRow, DIGESTS_PARTITION, interval);
  return row && readDigest(interval, row.value?.digest, keys);
}

/** The end of a chain of which retention removed every digest: the last one that it removed. */
export function purgedEnd(purges: Purges): ChainEnd | undefined {
  const record = purges.records.at(-1)?.record;
  if (!record) return undefined;
  const { number, interval, hash } = record.last;
  return { interval: intervalFrom(interval), number, hash, total: record.total, beginning: undefined, verified: true };
}
