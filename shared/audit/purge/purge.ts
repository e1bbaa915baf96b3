import { Problem } from "../../platform/http/problem.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { Tables } from "../../platform/storage/tables.ts";
import { DAY_MS } from "../../platform/time.ts";
import { audited } from "../audited.ts";
import { chainState } from "../chain/chain-state.ts";
import { type Digest, readDigest } from "../chain/digest.ts";
import { type PurgeRecord, purgedTo } from "../chain/purge-record.ts";
import { type PublicKeys, type SigningKey, signStatement } from "../chain/signing.ts";
import type { Trust } from "../chain/trust.ts";
import type { AuditEvent, AuditRecorder } from "../event.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "../interval.ts";
import { readRows } from "../read-rows.ts";
import { DIGESTS_PARTITION, DigestRow, PURGES_PARTITION, RecordRow } from "../rows.ts";
import { removeUpTo } from "./remove.ts";

/**
 * Deletes sealed audit entries that are older than the retention. A daily timer and an administrator can call it. A sealed
 * interval has a digest, the signed hash of its entries; a purge deletes both and leaves a signed record.
 */

/** Maximum work of one call, so that it ends well within the platform's limit of 230 seconds. */
export const MAX_PURGED_ENTRIES = 100_000;
export const MAX_PURGED_INTERVALS = 5_000;

/** Result of one call of a purge. */
export interface PurgeResult {
  /** Number of entries and digests that this call removed. */
  entries: number;
  digests: number;
  /** The applied retention in days: the requested one, or the minimum if that is longer. */
  retentionDays: number;
  /** End of the purged range; null if nothing was purged. */
  purgedTo: string | null;
  /** True if there is more to remove. Call again. */
  more: boolean;
  /** The interval at which purging stopped because its digest is missing or not genuine. Evidence of tampering is kept. */
  stoppedAt: string | null;
}

export interface PurgeDependencies extends AuditRecorder {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  minimumRetentionDays: number;
}

/**
 * Removes sealed intervals that are older than the retention. First stores a signed record, then deletes the rows. The next
 * call completes an interrupted purge.
 *
 * @throws {Problem} conflict if nothing is sealed because `AUDIT_SIGNING_KEYS` is not set.
 */
export async function purgeSealed(
  deps: PurgeDependencies,
  requestedDays: number,
  caller: AuditEvent["caller"],
): Promise<PurgeResult> {
  const { tables, clock, trust } = deps;
  const { signer } = trust;
  if (!signer) {
    throw new Problem("conflict", "Only sealed entries can be purged, and nothing is sealed: set AUDIT_SIGNING_KEYS.");
  }
  const retentionDays = Math.max(requestedDays, deps.minimumRetentionDays);
  const retainedFrom = intervalOf(clock.now().getTime() - retentionDays * DAY_MS);
  const { keys, purges, keptFrom } = await chainState({ tables, clock, trust, anchor: undefined });
  const previousEnd = purgedTo(purges);
  // Completes an interrupted purge before the next record is written.
  if (previousEnd !== undefined) await removeUpTo(tables, previousEnd);

  // Without a sealed interval (`keptFrom` is undefined), the range is empty.
  const plan = await selectIntervals(tables, keys, { start: keptFrom ?? retainedFrom, end: retainedFrom });
  const upTo = plan.removed ? intervalFrom(plan.removed.to) : previousEnd;
  if (plan.removed) {
    const record: PurgeRecord = {
      ...plan.removed,
      retentionDays,
      actor: caller.actor,
      requestId: caller.requestId,
      purgedAt: clock.now().toISOString(),
    };
    await storeRecordAndRemove(deps, signer, record, caller);
  }
  return {
    entries: plan.removed?.entries ?? 0,
    digests: plan.removed?.digests ?? 0,
    retentionDays,
    purgedTo: upTo === undefined ? null : new Date(upTo).toISOString(),
    more: plan.more,
    stoppedAt: plan.stoppedAt === undefined ? null : new Date(plan.stoppedAt).toISOString(),
  };
}

async function storeRecordAndRemove(
  deps: PurgeDependencies,
  signer: SigningKey,
  record: PurgeRecord,
  caller: AuditEvent["caller"],
): Promise<void> {
  const { tables } = deps;
  const target = { type: "audit", id: `${record.from}/${record.to}` };
  await audited(
    deps,
    { type: "audit.purged", caller, target, details: { ...record } },
    async () => {
      await tables.put(RecordRow, PURGES_PARTITION, record.to, {
        record: signStatement("audit-purge", record, signer),
      });
      await removeUpTo(tables, intervalFrom(record.to));
    },
    () => ({ details: { entries: record.entries, digests: record.digests } }),
  );
}

/**
 * Selects the intervals to purge, from `start` on. Stops before an interval whose digest is missing or has no valid signature,
 * so that evidence of tampering is not deleted.
 */
async function selectIntervals(tables: Tables, keys: PublicKeys, { start, end }: { start: Interval; end: Interval }) {
  const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(start), before: intervalName(end) };
  let [entries, digests, more] = [0, 0, false];
  let to = start;
  let newest: { digest: Digest; hash: string } | undefined;
  let stoppedAt: Interval | undefined;
  if (start < end) {
    pages: for await (const page of readRows(tables, DigestRow, range)) {
      for (const { rowKey, value } of page) {
        const read = readDigest(rowKey, value?.digest, keys);
        if (rowKey !== intervalName(to) || read.state !== "genuine") {
          stoppedAt = to;
          break pages;
        }
        // An interval with more entries than the limit is purged alone.
        const full = digests > 0 && entries + read.digest.entries > MAX_PURGED_ENTRIES;
        if (full || digests >= MAX_PURGED_INTERVALS) {
          more = true;
          break pages;
        }
        newest = read;
        entries += read.digest.entries;
        digests += 1;
        to += INTERVAL_MS;
      }
    }
  }
  if (!newest) return { more, stoppedAt, removed: undefined };
  const { number, interval, total } = newest.digest;
  const last = { number, interval, hash: newest.hash };
  const removed = { from: intervalName(start), to: intervalName(to), digests, entries, total, last };
  return { more, stoppedAt, removed };
}
