import { Problem } from "../http/problem.ts";
import type { Clock } from "../runtime.ts";
import { put, remove, type Tables } from "../storage/tables.ts";
import { each } from "./ahead.ts";
import type { AuditEvent } from "./audit.ts";
import { sha256 } from "./canonical.ts";
import { Digest, isIntervalName } from "./chain.ts";
import { readEntry } from "./entry.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import { manifestRange } from "./manifest.ts";
import { type PurgeRecord, purgedTo, readPurges } from "./purge-record.ts";
import {
  AnyRow,
  BORN_MARK,
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
import { storedEntries } from "./sealed-rows.ts";
import { readStatement, signStatement } from "./signing.ts";
import type { Trust } from "./trust.ts";

const DAY_MS = 86_400_000;
/** One call removes at most this much, so that it ends well within the platform's 230 seconds. */
export const MAX_PURGED_ENTRIES = 100_000;
export const MAX_PURGED_INTERVALS = 5_000;
const PARALLEL = 8;

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

  /** Removes every digest before `end` that is still there, with what it sealed; the digest goes last. */
  async function removeUpTo(end: Interval): Promise<void> {
    const range = { partitionKey: DIGESTS_PARTITION, before: intervalName(end) };
    for await (const page of tables.pages(DigestRow, { ...range, select: [] })) {
      const intervals = page.map(({ rowKey }) => rowKey).filter(isIntervalName);
      await each(intervals, PARALLEL, (name) => removeInterval(intervalFrom(name)));
      await tables.write(DigestRow.table, DIGESTS_PARTITION, removals(DigestRow, intervals));
    }
  }

  async function removeInterval(interval: Interval): Promise<void> {
    const partition = entriesPartition(interval);
    for await (const page of storedEntries(tables, interval)) {
      const entries = page.flatMap(({ text = "" }) => readEntry(text) ?? []);
      await tables.write(IndexRow.table, INDEX_PARTITION, removals(IndexRow, entries.flatMap(indexKeys)));
      await tables.write(
        AnyRow.table,
        partition,
        removals(
          AnyRow,
          page.map(({ rowKey }) => rowKey),
        ),
      );
    }
    await tables.write(Mark.table, partition, removals(Mark, [BORN_MARK]));
    for await (const page of tables.pages(ManifestRow, {
      partitionKey: MANIFESTS_PARTITION,
      ...manifestRange(interval),
      select: [],
    })) {
      await tables.write(
        ManifestRow.table,
        MANIFESTS_PARTITION,
        removals(
          ManifestRow,
          page.map(({ rowKey }) => rowKey),
        ),
      );
    }
  }
}

function* removals(entity: Parameters<typeof remove>[0], rowKeys: string[]) {
  for (const rowKey of rowKeys) yield remove(entity, rowKey);
}
