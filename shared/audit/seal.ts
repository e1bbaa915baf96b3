import type { Clock, Logger } from "../runtime.ts";
import { insert, put, RowExists, remove, type Tables } from "../storage/tables.ts";
import type { Anchor } from "./anchor.ts";
import { sha256 } from "./canonical.ts";
import { type ChainEnd, chainEnd, type Digest, type DigestName } from "./chain.ts";
import { type AuditEntry, entryText, readEntry } from "./entry.ts";
import {
  INTERVAL_MINUTES,
  INTERVAL_MS,
  type Interval,
  intervalFrom,
  intervalName,
  intervalsByDay,
  SEAL_DELAY_MS,
} from "./interval.ts";
import { type Fingerprint, writeManifest } from "./manifest.ts";
import {
  bornMark,
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
  MARKS,
  Mark,
  openMark,
} from "./rows.ts";
import { signStatement } from "./signing.ts";
import { byInterval, fingerprintOf, isEntryId, type StoredEntry, storedEntries } from "./stored.ts";
import type { Trust } from "./trust.ts";

/** Digests per transaction, which also moves the head: half a day. */
const BATCH = 72;
/** Intervals one call seals at most, sixty days of them: what is left is the next call's. */
const MAX_INTERVALS = 8_640;
/** Entries whose index rows are looked for together. */
const MENDED_AT_ONCE = 1_000;
/** How often closing looks again when a writer or another sealer comes between. */
const MAX_ATTEMPTS = 10;

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
    let sealed = 0;
    for (const batch of intervalsByDay(first, first + Math.min(due, MAX_INTERVALS) * INTERVAL_MS, BATCH)) {
      const digests: { rowKey: string; digest: string }[] = [];
      const born = await close(batch);
      const range = { from: batch[0]!, to: batch.at(-1)! + INTERVAL_MS };
      const entries = byInterval(born ? storedEntries(tables, range) : nothing());
      for (const interval of batch) {
        const manifest = await writeManifest(tables, interval, fingerprints(entries.of(interval)));
        const digest: Digest = {
          number: Math.max(end?.number ?? 0, lost?.number ?? 0) + 1,
          interval: intervalName(interval),
          minutes: INTERVAL_MINUTES,
          entries: manifest.entries,
          total: (end?.total ?? 0) + manifest.entries,
          manifest: manifest.hash,
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
        if (error instanceof RowExists) return { configured: true, sealed, more: true, ...found };
        throw error;
      }
      sealed += batch.length;
    }
    await remember(end, remembered, undefined);
    return { configured: true, sealed, more: due > sealed, ...found };
  };

  async function firstInterval(): Promise<Interval | undefined> {
    const row = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
    return row && intervalFrom(row.interval);
  }

  async function remember(end: ChainEnd | undefined, known: DigestName | undefined, lost: unknown): Promise<void> {
    if (!anchor || !end || lost || known?.number === end.number) return;
    await anchor.write({ number: end.number, interval: intervalName(end.interval), hash: end.hash });
  }

  /**
   * Closes the intervals of one day; says whether any was born. After this no entry can come in: the birth is taken, or
   * the open mark is gone and can't be made again.
   */
  async function close(intervals: Interval[]): Promise<boolean> {
    const partition = entriesPartition(intervals[0]!);
    for (let attempt = 1; ; attempt++) {
      const marks = new Set<string>();
      for await (const page of tables.pages(Mark, { partitionKey: partition, ...MARKS })) {
        for (const { rowKey } of page) marks.add(rowKey);
      }
      const unborn = intervals.filter((interval) => !marks.has(bornMark(interval)));
      const open = intervals.map(openMark).filter((mark) => marks.has(mark));
      try {
        if (unborn.length > 0) {
          const births = unborn.map((interval) => insert(Mark, bornMark(interval), {}));
          await tables.transaction(Mark.table, partition, births);
        }
      } catch (error) {
        // Born in between, or being closed by another sealer: look again.
        if (error instanceof RowExists && attempt < MAX_ATTEMPTS) continue;
        throw error;
      }
      await tables.write(Mark.table, partition, removals(open));
      return unborn.length < intervals.length;
    }
  }

  async function* fingerprints(entries: AsyncIterable<StoredEntry>): AsyncGenerator<Fingerprint> {
    let pending: StoredEntry[] = [];
    for await (const entry of entries) {
      if (!isEntryId(entry.id)) continue;
      yield fingerprintOf(entry);
      if (pending.push(entry) < MENDED_AT_ONCE) continue;
      await mendIndex(pending);
      pending = [];
    }
    await mendIndex(pending);
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

function* removals(marks: string[]) {
  for (const mark of marks) yield remove(Mark, mark);
}

async function* nothing(): AsyncGenerator<StoredEntry[]> {}

/** The tables end before the digest that was remembered, or hold another one in its place. */
const isLost = (remembered: DigestName, end: ChainEnd | undefined): boolean =>
  end === undefined ||
  remembered.number > end.number ||
  (remembered.number === end.number && remembered.hash !== end.hash);
