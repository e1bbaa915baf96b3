import pMap from "p-map";
import type { Audit } from "../audit/audit.ts";
import type { Tier } from "../platform/http/endpoint.ts";
import type { Clock, Logger } from "../platform/runtime.ts";
import { keyEnd } from "../platform/storage/keys.ts";
import type { Queues } from "../platform/storage/queues.ts";
import { merge, type Operation, RowMissing, type StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { DAY_MS, MINUTE_MS } from "../platform/time.ts";
import { DUE_PREFIX, DueRows, LICENCE_NOTICE, Notices, Records, RUN_QUEUE, SYNC } from "./record.ts";
import { ALL_RECORDS, type SyncRecords } from "./records.ts";

/**
 * Time after which a message for the same record is sent again. Until then, its run is probably waiting in the queue or in
 * progress.
 */
const RESEND_AFTER_MS = 30 * MINUTE_MS;
/**
 * Time after which the timer replaces a follow-up that did not arrive, counted from its planned arrival. A follow-up is a
 * delayed message: a worker that finds a record leased by another worker sends it, and it runs the record once the lease has
 * expired (run.ts). The worker first writes the follow-up's time to the due row, so that no other worker sends a second
 * follow-up. If the worker crashes in between, no message arrives, so this time is shorter than `RESEND_AFTER_MS`.
 */
const RESEND_FOLLOW_UP_AFTER_MS = 5 * MINUTE_MS;
/** Number of messages that are sent concurrently. */
const SENDS_AT_ONCE = 16;
/** Number of rows that one transaction marks. */
const ROWS_PER_TRANSACTION = 100;

/** Sends messages for records that are due. */
export interface SyncSchedule {
  /**
   * Sends a message for each due record. Makes one request per 1,000 due rows, one per message, and one transaction per 100.
   * Without a license it sends none, and writes that to the log and once a day to the audit log.
   */
  sendDueRecords(): Promise<void>;
  /** Starts the records that failed because of this provider's configuration. Called after an administrator changed it. */
  retryFailedRecords(provider: string): Promise<void>;
}

export function createSchedule(deps: {
  tables: Tables;
  queues: Queues;
  records: SyncRecords;
  licensing: { tier(): Promise<Tier> };
  audit: Pick<Audit, "append">;
  clock: Clock;
  log: Logger;
}): SyncSchedule {
  const { tables, queues, records, licensing, audit, clock, log } = deps;

  async function reportUnlicensed(): Promise<void> {
    log.warn("Sync skipped: no PRO license");
    const day = clock.now().toISOString().slice(0, 10);
    if ((await tables.get(Notices, SYNC, LICENCE_NOTICE))?.day === day) return;
    await audit.append({
      type: "sync.unlicensed",
      caller: { actor: "system", requestId: "sync" },
      outcome: "refused",
      target: { type: "timer", id: "runDueSyncs" },
    });
    await tables.put(Notices, SYNC, LICENCE_NOTICE, { day });
  }

  /** Marks rows as sent. Skips rows that are gone, because their records were run or changed at the same time. */
  async function markAsSent(rowKeys: readonly string[], sentAt: string): Promise<void> {
    let remaining: Operation[] = rowKeys.map((rowKey) => merge(DueRows, rowKey, { sentAt, followUp: false }));
    while (remaining.length > 0) {
      try {
        await tables.transaction(DueRows.table, SYNC, remaining);
        return;
      } catch (error) {
        if (!(error instanceof RowMissing)) throw error;
        remaining = remaining.filter(({ rowKey }) => rowKey !== error.rowKey);
      }
    }
  }

  const onCorrupt = ({ message }: StorageCorrupt) => log.error("A sync record was skipped", { row: message });

  return {
    async sendDueRecords() {
      const now = clock.now();
      const timeBefore = (milliseconds: number) => new Date(now.getTime() - milliseconds).toISOString();
      // `aside`: another program changed the record. It is not used, and is only checked once a day.
      const sentBefore = ({ aside, followUp }: { aside?: boolean | undefined; followUp?: boolean | undefined }) =>
        timeBefore(aside ? DAY_MS : followUp ? RESEND_FOLLOW_UP_AFTER_MS : RESEND_AFTER_MS);
      const range = { partitionKey: SYNC, from: DUE_PREFIX, before: keyEnd(DUE_PREFIX + now.toISOString()), onCorrupt };
      for await (const rows of tables.pages(DueRows, range)) {
        if ((await licensing.tier()) !== "pro") return await reportUnlicensed();
        const due = rows
          .filter((row) => row.sentAt === undefined || row.sentAt < sentBefore(row))
          .map(({ rowKey }) => rowKey);
        // Messages are sent before the rows are marked: a duplicate message is harmless, a missing one would wait for half an
        // hour.
        await pMap(due, (rowKey) => queues.send(RUN_QUEUE, { recordId: recordIdIn(rowKey) }), {
          concurrency: SENDS_AT_ONCE,
        });
        for (let start = 0; start < due.length; start += ROWS_PER_TRANSACTION) {
          await markAsSent(due.slice(start, start + ROWS_PER_TRANSACTION), now.toISOString());
        }
      }
    },

    async retryFailedRecords(provider) {
      if ((await licensing.tier()) !== "pro") return;
      for await (const rows of tables.pages(Records, { ...ALL_RECORDS, onCorrupt })) {
        const failedRecords = rows.filter(
          ({ targetProvider, failure }) =>
            targetProvider === provider && FIXED_BY_CONFIGURATION.has(failure?.code ?? ""),
        );
        await pMap(failedRecords, ({ recordId }) => records.request(recordId), { concurrency: SENDS_AT_ONCE });
      }
    },
  };
}

/** Failures that a new provider configuration can fix. `otherPlace`: the provider was configured for another address. */
const FIXED_BY_CONFIGURATION = new Set(["badCredentials", "notConfigured", "otherPlace", "accessDenied"]);

const recordIdIn = (dueRowKey: string): string => dueRowKey.slice(dueRowKey.lastIndexOf("|") + 1);
