import type { Clock, Logger } from "../runtime.ts";
import { insert, put, RowExists, type Tables } from "../storage/tables.ts";
import { ahead } from "./ahead.ts";
import type { Anchor } from "./anchor.ts";
import { sha256 } from "./canonical.ts";
import { type ChainEnd, chainEnd, type Digest, type DigestName } from "./chain.ts";
import { type AuditEntry, entryText, readEntry } from "./entry.ts";
import { INTERVAL_MINUTES, INTERVAL_MS, type Interval, intervalFrom, intervalName, SEAL_DELAY_MS } from "./interval.ts";
import { type Fingerprint, writeManifest } from "./manifest.ts";
import {
  BORN_MARK,
  DIGESTS_PARTITION,
  DigestRow,
  entriesPartition,
  FIRST_PARTITION,
  FirstRow,
  HEAD,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  indexPrefix,
  indexRange,
  Mark,
  OPEN_MARK,
} from "./rows.ts";
import { hashOf, isEntryId, type StoredEntry, storedEntries } from "./sealed-rows.ts";
import { signStatement } from "./signing.ts";
import type { Trust } from "./trust.ts";

/** Digests per transaction, which also moves the head. */
const BATCH = 50;
const PARALLEL = 8;
/** Intervals one call seals at most, two weeks of them: what is left is the next call's. */
const MAX_INTERVALS = 2016;

export interface Sealing {
  /** False when `AUDIT_SIGNING_KEYS` is not set: then nothing can be sealed. */
  configured: boolean;
  /** Digests this call wrote. */
  sealed: number;
  /** Whether intervals are still due. */
  more: boolean;
  /** The newest digest the service remembered, where the tables no longer hold it. */
  lost?: DigestName;
}

/**
 * Seals every interval that is over: closes it for writers, keeps the fingerprints of its entries, mends the index where a
 * writer died, and adds its digest to the chain. May run twice at once and die at any line: closing and fingerprints give
 * the same again, and a digest is inserted once.
 */
export function createSealer(deps: {
  tables: Tables;
  clock: Clock;
  log: Logger;
  trust: Trust;
  anchor: Anchor | undefined;
}): () => Promise<Sealing> {
  const { tables, clock, log, trust, anchor } = deps;

  return async () => {
    const { signer } = trust;
    if (!signer) return { configured: false, sealed: 0, more: false };
    await trust.vouch();
    let end = await chainEnd(tables, await trust.keys(), clock);
    const remembered = await anchor?.read();
    let lost = remembered && isLost(remembered, end) ? remembered : undefined;
    if (lost) log.error("The audit log's newest digest is gone from the tables", { digest: lost.number });

    const found = lost ? { lost } : {};
    const first = end ? end.interval + INTERVAL_MS : await firstInterval();
    const limit = clock.now().getTime() - INTERVAL_MS - SEAL_DELAY_MS;
    if (first === undefined || first > limit) {
      await remember(end, remembered, lost);
      return { configured: true, sealed: 0, more: false, ...found };
    }
    const due = Math.floor((limit - first) / INTERVAL_MS) + 1;
    const intervals = Array.from({ length: Math.min(due, MAX_INTERVALS) }, (_, index) => first + index * INTERVAL_MS);

    for (let start = 0; start < intervals.length; start += BATCH) {
      const digests: { rowKey: string; digest: string }[] = [];
      const batch = intervals.slice(start, start + BATCH);
      for await (const { interval, born } of ahead(batch, PARALLEL, close)) {
        const { entries, hash } = await writeManifest(tables, interval, born ? fingerprints(interval) : nothing());
        const digest: Digest = {
          number: Math.max(end?.number ?? 0, lost?.number ?? 0) + 1,
          interval: intervalName(interval),
          minutes: INTERVAL_MINUTES,
          entries,
          total: (end?.total ?? 0) + entries,
          manifest: hash,
          previous: end?.hash ?? null,
          sealedAt: clock.now().toISOString(),
          ...(lost ? { lost } : {}),
        };
        lost = undefined;
        const statement = signStatement("audit-digest", digest, signer);
        digests.push({ rowKey: digest.interval, digest: statement });
        end = { interval, number: digest.number, total: digest.total, hash: sha256(statement) };
      }
      try {
        await tables.transaction(DigestRow.table, DIGESTS_PARTITION, [
          ...digests.map(({ rowKey, digest }) => insert(DigestRow, rowKey, { digest })),
          put(DigestRow, HEAD, { digest: digests.at(-1)!.digest }),
        ]);
      } catch (error) {
        // Another sealer was faster. It goes on with the rest and remembers its own newest digest.
        if (error instanceof RowExists) return { configured: true, sealed: start, more: true, ...found };
        throw error;
      }
    }
    await remember(end, remembered, undefined);
    return { configured: true, sealed: intervals.length, more: due > intervals.length, ...found };
  };

  async function firstInterval(): Promise<Interval | undefined> {
    const row = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
    return row && intervalFrom(row.interval);
  }

  async function remember(end: ChainEnd | undefined, known: DigestName | undefined, lost: unknown): Promise<void> {
    if (!anchor || !end || lost || known?.number === end.number) return;
    await anchor.write({ number: end.number, interval: intervalName(end.interval), hash: end.hash });
  }

  /** After this no entry can come in: the birth is taken, or the open mark is gone and can't be made again. */
  async function close(interval: Interval): Promise<{ interval: Interval; born: boolean }> {
    const partition = entriesPartition(interval);
    try {
      await tables.insert(Mark, partition, BORN_MARK, {});
      return { interval, born: false };
    } catch (error) {
      if (!(error instanceof RowExists)) throw error;
    }
    await tables.remove(Mark, partition, OPEN_MARK);
    return { interval, born: true };
  }

  async function* fingerprints(interval: Interval): AsyncGenerator<Fingerprint> {
    for await (const page of storedEntries(tables, interval)) {
      const entries = page.filter(({ rowKey }) => isEntryId(rowKey));
      await mendIndex(entries);
      for (const entry of entries) yield [entry.rowKey, hashOf(entry)];
    }
  }

  /** Writes the index rows that a dead writer left out, and the final count of every refusal. */
  async function mendIndex(stored: StoredEntry[]): Promise<void> {
    const entries = stored.flatMap(({ text = "" }) => readEntry(text) ?? []);
    if (entries.length === 0) return;
    const instants = entries.map(({ occurredAt }) => Date.parse(occurredAt));
    const prefix = indexPrefix({});
    const indexed = new Set<string>();
    const range = indexRange(prefix, Math.min(...instants), Math.max(...instants) + 1);
    for await (const page of tables.pages(IndexRow, { partitionKey: INDEX_PARTITION, ...range, select: [] })) {
      for (const { rowKey } of page) indexed.add(rowKey);
    }
    const missing = entries.filter((entry) => entry.count > 1 || !indexed.has(indexKeys(entry)[0]!));
    await tables.write(IndexRow.table, INDEX_PARTITION, indexOperations(missing));
  }
}

function* indexOperations(entries: AuditEntry[]) {
  for (const entry of entries) {
    const value = { entry: entryText(entry) };
    for (const key of indexKeys(entry)) yield put(IndexRow, key, value);
  }
}

async function* nothing(): AsyncGenerator<Fingerprint> {}

/** The tables end before the digest that was remembered, or hold another one in its place. */
const isLost = (remembered: DigestName, end: ChainEnd | undefined): boolean =>
  end === undefined ||
  remembered.number > end.number ||
  (remembered.number === end.number && remembered.hash !== end.hash);
