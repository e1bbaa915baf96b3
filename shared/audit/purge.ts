import { Problem } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import { put, remove, type Tables } from "../storage/tables.ts";
import type { AuditEvent } from "./audit.ts";
import { sha256 } from "./canonical.ts";
import { Digest } from "./chain.ts";
import { readEntry } from "./entry.ts";
import {
  DAY_MS,
  INTERVAL_MS,
  type Interval,
  intervalFrom,
  intervalName,
  intervalOf,
  intervalsByDay,
  isIntervalName,
} from "./interval.ts";
import { type PurgeRecord, purgedTo, readPurges } from "./purge-record.ts";
import {
  AnyRow,
  bornMark,
  DIGESTS_PARTITION,
  DigestRow,
  entriesPartition,
  FIRST_PARTITION,
  FirstRow,
  INDEX_PARTITION,
  IndexRow,
  indexKeys,
  MANIFESTS_PARTITION,
  ManifestRow,
  Mark,
  PURGES_PARTITION,
  RecordRow,
} from "./rows.ts";
import { readStatement, signStatement } from "./signing.ts";
import { storedEntries } from "./stored.ts";
import type { Trust } from "./trust.ts";

/** One call removes at most this much, so that it ends well within the platform's 230 seconds. */
export const MAX_PURGED_ENTRIES = 100_000;
export const MAX_PURGED_INTERVALS = 5_000;

export interface PurgeResult {
  /** Entries and digests this call removed. */
  entries: number;
  digests: number;
  /** Days that were kept: what was asked for, or the least that may be kept. */
  retentionDays: number;
  /** The end of what is removed by now; null when nothing ever was. */
  purgedTo: string | null;
  /** Whether there is more to remove: call again. */
  more: boolean;
  /** The interval purging stopped at, since its digest is missing or not genuine: what was tampered with is kept. */
  stoppedAt: string | null;
}

/**
 * Removes whole sealed intervals that are older than the retention. A signed record of what goes is kept first, then the
 * rows are removed from the back to the front of what points at them; a run that died is finished by the next one.
 */
export function createPurger(deps: {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  minimumRetentionDays: number;
  append(event: AuditEvent): Promise<void>;
}): (retentionDays: number, caller: AuditEvent["caller"]) => Promise<PurgeResult> {
  const { tables, clock, trust, minimumRetentionDays, append } = deps;

  return async (askedDays, caller) => {
    const { signer } = trust;
    if (!signer) {
      throw new Problem("conflict", "Only sealed entries are purged, and nothing is sealed: set AUDIT_SIGNING_KEYS.");
    }
    const retentionDays = Math.max(askedDays, minimumRetentionDays);
    const before = intervalOf(clock.now().getTime() - retentionDays * DAY_MS);
    const keys = await trust.keys();
    const purges = await readPurges(tables, keys);
    const done = purgedTo(purges);
    // What a run that died left behind, before its record is followed by another.
    if (done !== undefined) await removeUpTo(done);

    const first = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
    const from = done ?? (first && intervalFrom(first.interval));
    const plan = await planned(from ?? before, before);
    const upTo = plan.record ? intervalFrom(plan.record.to) : done;
    const result: PurgeResult = {
      entries: plan.record?.entries ?? 0,
      digests: plan.record?.digests ?? 0,
      retentionDays,
      purgedTo: upTo === undefined ? null : new Date(upTo).toISOString(),
      more: plan.more,
      stoppedAt: plan.stoppedAt === undefined ? null : new Date(plan.stoppedAt).toISOString(),
    };
    if (!plan.record) return result;

    const record: PurgeRecord = {
      ...plan.record,
      retentionDays,
      actor: caller.actor,
      requestId: caller.requestId,
      purgedAt: clock.now().toISOString(),
    };
    const event = { type: "audit.purged", caller, target: { type: "audit", id: `${record.from}/${record.to}` } };
    await append({ ...event, outcome: "intent", details: { ...record } });
    const statement = signStatement("audit-purge", record, signer);
    await tables.transaction(RecordRow.table, PURGES_PARTITION, [put(RecordRow, record.to, { record: statement })]);
    await removeUpTo(intervalFrom(record.to));
    await append({ ...event, outcome: "success", details: { entries: record.entries, digests: record.digests } });
    return result;

    /** Whole intervals from `start` on whose digests are genuine: what was tampered with is not swept away. */
    async function planned(start: Interval, end: Interval) {
      const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(start), before: intervalName(end) };
      let [entries, digests, more] = [0, 0, false];
      let to = start;
      let newest: { digest: Digest; statement: string } | undefined;
      let stoppedAt: Interval | undefined;
      if (start < end) {
        walk: for await (const page of tables.pages(DigestRow, range)) {
          for (const { rowKey, digest: statement } of page) {
            const read = readStatement("audit-digest", Digest, statement, keys);
            if (rowKey !== intervalName(to) || !("payload" in read) || read.payload.interval !== rowKey) {
              stoppedAt = to;
              break walk;
            }
            const full = digests > 0 && entries + read.payload.entries > MAX_PURGED_ENTRIES;
            if (full || digests >= MAX_PURGED_INTERVALS) {
              more = true;
              break walk;
            }
            newest = { digest: read.payload, statement };
            entries += read.payload.entries;
            digests += 1;
            to += INTERVAL_MS;
          }
        }
      }
      if (!newest) return { more, stoppedAt };
      const { number, interval, total } = newest.digest;
      const last = { number, interval, hash: sha256(newest.statement) };
      const record = { from: intervalName(start), to: intervalName(to), digests, entries, total, last };
      return { more, stoppedAt, record };
    }
  };

  /**
   * Removes what is still there of the intervals before `end`: their entries, marks and fingerprints, and last the digests,
   * by which a run that died knows where to go on.
   */
  async function removeUpTo(end: Interval): Promise<void> {
    const from = await earliest(end);
    if (from === undefined) return;
    for await (const page of storedEntries(tables, { from, to: end })) {
      const entries = page.flatMap(({ text = "" }) => readEntry(text) ?? []);
      await tables.write(IndexRow.table, INDEX_PARTITION, removals(IndexRow, entries.flatMap(indexKeys)));
      const byDay = Map.groupBy(page, ({ interval }) => entriesPartition(interval));
      for (const [day, rows] of byDay)
        await tables.write(
          AnyRow.table,
          day,
          removals(
            AnyRow,
            rows.map(({ rowKey }) => rowKey),
          ),
        );
    }
    for (const day of intervalsByDay(from, end)) {
      await tables.write(Mark.table, entriesPartition(day[0]!), removals(Mark, day.map(bornMark)));
    }
    const manifests = { partitionKey: MANIFESTS_PARTITION, before: intervalName(end) };
    for await (const page of tables.pages(ManifestRow, { ...manifests, select: [] })) {
      await tables.write(
        ManifestRow.table,
        MANIFESTS_PARTITION,
        removals(
          ManifestRow,
          page.map(({ rowKey }) => rowKey),
        ),
      );
    }
    const digests = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: intervalName(end) };
    for await (const page of tables.pages(DigestRow, { ...digests, select: [] })) {
      await tables.write(
        DigestRow.table,
        DIGESTS_PARTITION,
        removals(
          DigestRow,
          page.map(({ rowKey }) => rowKey),
        ),
      );
    }
  }

  /** The first interval before `end` whose digest is still there. */
  async function earliest(end: Interval): Promise<Interval | undefined> {
    const digests = { partitionKey: DIGESTS_PARTITION, before: intervalName(end), pageSize: 10 };
    for await (const page of tables.pages(DigestRow, { ...digests, select: [] })) {
      const found = page.find(({ rowKey }) => isIntervalName(rowKey));
      if (found) return intervalFrom(found.rowKey);
    }
    return undefined;
  }
}

function* removals(entity: Parameters<typeof remove>[0], rowKeys: string[]) {
  for (const rowKey of rowKeys) yield remove(entity, rowKey);
}
