import type { Clock } from "../platform/runtime.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { chainEnd, digestAt, purgedEnd } from "./chain/chain.ts";
import { readDigest } from "./chain/digest.ts";
import { type Fingerprint, fingerprintOf, manifestHash, readManifests, type Sealed } from "./chain/manifest.ts";
import { purgedTo, readPurges } from "./chain/purge-record.ts";
import type { PublicKeys } from "./chain/signing.ts";
import type { Trust } from "./chain/trust.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import { readRows } from "./read-rows.ts";
import { DIGESTS_END, DIGESTS_PARTITION, DigestRow, entryKey } from "./rows.ts";
import { firstInterval } from "./seal/first-interval.ts";
import { byInterval, entryOfRow, type StoredEntry, storedEntries } from "./stored-entries.ts";

/**
 * Reads the sealed part of the log in order: the entries of an interval, then the digest that seals them. No entry can be added to
 * a sealed interval and none of its entries changes, so a reader that remembers its position misses nothing. Each entry is compared
 * with the manifest that the digest names before it is yielded.
 */

/** Another program changed, removed or inserted sealed entries or digests. */
export class SealedLogChanged extends Error {
  override readonly name = "SealedLogChanged";
}

/**
 * Maximum number of characters of an entry: three details of 16,384 characters, and the other members. Another program wrote a
 * longer one, which must not fill the message of a receiver.
 */
const MAX_ENTRY_CHARACTERS = 60_000;

/** A position in the sealed log. Everything before it was read. */
export interface SealedPosition {
  /** Name of the first interval whose digest was not read: `2026-11-21T10:40Z`. */
  interval: string;
  /** Row key of the last entry that was read at or after this interval, with the interval it is in. */
  after?: { interval: string; rowKey: string } | undefined;
  /** Number of entries that were read since the last digest. */
  entries: number;
}

/** An entry, or the digest of an interval, with the position after it. */
export type SealedItem =
  | {
      kind: "entry";
      id: string;
      /** The entry as stored. Its SHA-256 is in the manifest that the digest names. */
      text: string;
      /** Time under which the entry is listed, ISO 8601. */
      at: string;
      rowKey: string;
      next: SealedPosition;
    }
  | {
      kind: "digest";
      interval: string;
      number: number;
      entries: number;
      total: number;
      /** The signed statement, a compact JWS. The next digest names its SHA-256. */
      statement: string;
      sealedAt: string;
      next: SealedPosition;
    };

/** What was sealed but not read since a position. */
export interface SealedLag {
  entries: number;
  /** Start of the oldest interval that was not completely read, ISO 8601. Null if everything sealed was read. */
  since: string | null;
}

/** The sealed part of the audit log. */
export interface SealedLog {
  /** Returns the position before the oldest entry of the log (`beginning`), or before the first interval that is not sealed (`now`). */
  start(from: "beginning" | "now"): Promise<SealedPosition>;
  /**
   * Returns the newest digest. Undefined before the first. Costs two requests, or more if the newest digest is older than an
   * hour.
   */
  newest(): Promise<{ interval: string; total: number } | undefined>;
  /**
   * Yields everything that is sealed after the position. Costs one request per 1,000 digests, and if these sealed entries one
   * request per 250 entries and at least one per day, and one per 100 rows of manifests. Rows that this service did not write
   * and did not seal are left out: the verification reports them.
   *
   * @throws {SealedLogChanged} before the first entry that is not in the manifest of its digest, at a missing entry, and before a
   *   digest without its predecessor, unless a purge removed it. Everything that was yielded before is genuine.
   */
  itemsAfter(position: SealedPosition): AsyncGenerator<SealedItem>;
  /** Returns what was not read since the position. Costs one request. @param newest - The result of `newest`. */
  lag(position: SealedPosition, newest: { interval: string; total: number } | undefined): Promise<SealedLag>;
}

/** Creates the reader of the sealed log. */
export function createSealedLog({ tables, clock, trust }: { tables: Tables; clock: Clock; trust: Trust }): SealedLog {
  async function readEnd(keys: PublicKeys) {
    return await chainEnd({ tables, clock, keys });
  }

  return {
    async start(from) {
      const keys = await trust.keys();
      const purges = await readPurges(tables, keys);
      const end = (await readEnd(keys)) ?? purgedEnd(purges);
      const now = intervalOf(clock.now().getTime());
      if (from === "now") return positionAt(end ? end.interval + INTERVAL_MS : now);
      const beginning = end?.beginning && intervalFrom(end.beginning.interval);
      return positionAt(purgedTo(purges) ?? beginning ?? (await firstInterval(tables, clock)) ?? now);
    },

    async newest() {
      const end = await readEnd(await trust.keys());
      return end?.verified ? { interval: intervalName(end.interval), total: end.total } : undefined;
    },

    async *itemsAfter(position) {
      const keys = await trust.keys();
      let next = position;
      const range = { partitionKey: DIGESTS_PARTITION, from: position.interval, before: DIGESTS_END };
      for await (const page of readRows(tables, DigestRow, range)) {
        const digests = page.flatMap(({ rowKey, value }) => {
          const read = readDigest(rowKey, value?.digest, keys);
          return read.state === "genuine" ? [{ ...read.digest, statement: value!.digest }] : [];
        });
        const last = digests.at(-1);
        if (!last) continue;
        const to = intervalFrom(last.interval) + INTERVAL_MS;
        const hasEntries = digests.some(({ entries }) => entries > 0);
        const stored = byInterval(hasEntries ? readEntries(next, to) : none());
        const manifests = byInterval(
          hasEntries ? readManifests(tables, { from: intervalFrom(next.interval), to }) : none(),
        );
        for (const { interval: name, number, entries, total, statement, sealedAt, manifest } of digests) {
          const interval = intervalFrom(name);
          if (intervalFrom(next.interval) < interval) {
            // Digest 1 has no predecessor: the position can be that of a log without entries.
            const isPurged = number === 1 || interval <= (purgedTo(await readPurges(tables, keys)) ?? 0);
            if (!isPurged)
              throw new SealedLogChanged(`The digest of ${next.interval} is missing or not signed by this service.`);
            next = positionAt(interval);
          }
          const sealed = entries > 0 ? await sealedEntries(manifests.itemsOf(interval), manifest) : [];
          if (!sealed) throw new SealedLogChanged(`The manifest of ${name} was changed by another program.`);
          let read = next.after ? sealed.findIndex(([id]) => entryKey(interval, id) === next.after!.rowKey) + 1 : 0;
          for await (const row of entries > 0 ? stored.itemsOf(interval) : []) {
            const entry = entryOfRow(row);
            if (!entry) continue;
            const [id, hash] = fingerprintOf(row);
            const expected = sealed[read++];
            if (expected?.[0] !== id || expected[1] !== hash)
              throw new SealedLogChanged(
                `The entries of ${name} were changed by another program after they were sealed.`,
              );
            next = { ...next, after: { interval: name, rowKey: row.rowKey }, entries: next.entries + 1 };
            if (row.text!.length > MAX_ENTRY_CHARACTERS) continue;
            yield { kind: "entry", id, text: row.text!, at: entry.occurredAt, rowKey: row.rowKey, next };
          }
          if (read < sealed.length)
            throw new SealedLogChanged(`Entries of ${name} were removed by another program after they were sealed.`);
          next = positionAt(interval + INTERVAL_MS);
          yield { kind: "digest", interval: name, number, entries, total, statement, sealedAt, next };
        }
      }
    },

    async lag({ interval, entries }, newest) {
      if (!newest || newest.interval < interval) return { entries: 0, since: null };
      const since = new Date(intervalFrom(interval)).toISOString();
      const first = await digestAt(tables, interval, await trust.keys());
      // Without the interval's digest, because it was purged or changed, all sealed entries may be missing.
      const before = first?.state === "genuine" ? first.digest.total - first.digest.entries : 0;
      return { entries: Math.max(0, newest.total - before - entries), since };
    },
  };

  function readEntries({ interval, after }: SealedPosition, to: Interval): AsyncGenerator<StoredEntry[]> {
    const from = intervalFrom(after?.interval ?? interval);
    const lastRead = after && { interval: intervalFrom(after.interval), rowKey: after.rowKey };
    return storedEntries(tables, { from, to }, lastRead);
  }
}

const positionAt = (interval: Interval): SealedPosition => ({ interval: intervalName(interval), entries: 0 });

/** Returns the fingerprints of an interval. Undefined if they are not those that the digest names. */
async function sealedEntries(parts: AsyncIterable<Sealed>, manifest: string): Promise<Fingerprint[] | undefined> {
  const hash = manifestHash();
  const fingerprints: Fingerprint[] = [];
  for await (const { fingerprint } of parts) {
    hash.add(fingerprint);
    fingerprints.push(fingerprint);
  }
  return hash.digest() === manifest ? fingerprints : undefined;
}

async function* none(): AsyncGenerator<never[]> {}
