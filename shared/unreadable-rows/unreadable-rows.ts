import { createHash } from "node:crypto";
import * as z from "zod";
import type { AuditRecorder } from "../audit/event.ts";
import { IntervalSealed } from "../audit/interval.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { entity, type Row, withoutKeys } from "../platform/storage/entity.ts";
import { RowExists, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { HOUR_MS, MINUTE_MS } from "../platform/time.ts";

/**
 * Maximum number of rows that are listed, each with an audit entry of its own. If more rows are unreadable, one audit entry an
 * hour says so, because someone who can write tables could make any number of rows unreadable.
 */
export const MAX_LISTED = 100;
/** Time between two audit entries about rows beyond the listed ones. */
const SUMMARY_EVERY_MS = HOUR_MS;
/** Time for which a process does not report the same row again. */
const REPORT_EVERY_MS = HOUR_MS;
/** Time after which a report that failed is repeated. */
const RETRY_AFTER_MS = MINUTE_MS;
/** Time for which a process uses the same count of listed rows. */
const COUNT_CACHE_MS = MINUTE_MS;
/** Maximum number of rows that a process remembers as reported. */
const MAX_REMEMBERED = 10_000;
/** Maximum length of a stored reason. A reason names members of a row and never contains a value. */
const MAX_REASON_LENGTH = 500;

const TABLE = "UnreadableRows";
const UnreadableRowRecord = z.object({
  table: z.string(),
  /** The partition key and the row key of the unreadable row. */
  partition: z.string(),
  key: z.string(),
  /** The ETag of the unreadable row when it was reported. */
  version: z.string(),
  reason: z.string(),
  reportedAt: z.string(),
  /** ULID of the row's audit entry. */
  auditId: z.string(),
  /** False until the audit entry is recorded. */
  audited: z.boolean(),
});
/** An unreadable row, without its contents. */
export type UnreadableRow = z.infer<typeof UnreadableRowRecord>;
const Listed = entity(TABLE, UnreadableRowRecord);
const LISTED = "rows";

/** The time of the last audit entry about rows beyond the listed ones. */
const Summary = entity(TABLE, z.object({ recordedAt: z.string() }));
const SUMMARY = "summary";

/** A row of any table, which is read only for its ETag. */
const AnyRow = entity(TABLE, z.object({}));

/** The location of a row. */
export interface RowLocation {
  readonly table: string;
  readonly partitionKey: string;
  readonly rowKey: string;
}

const keyOf = ({ table, partitionKey, rowKey }: RowLocation): string =>
  createHash("sha256")
    .update(JSON.stringify([table, partitionKey, rowKey]))
    .digest("hex");

/**
 * The rows that the service can't read, because they don't match their schema or their signature. The tables report each row
 * that they find (`onUnreadable` of `createTables`), so that modules need not. The list contains locations and reasons, never
 * contents.
 *
 * Each listed row has one audit entry, `storage.rowUnreadable`, with the row's location and the reason. At most `MAX_LISTED`
 * rows are listed. While further rows are unreadable, one entry an hour without a target says so.
 */
export interface UnreadableRows {
  /**
   * Lists rows and records each in the audit log, once. A row that this process reported within the last hour costs no request.
   * Never throws: a report that fails is logged, and repeated when the row is read again after a minute.
   */
  report(rows: readonly StorageCorrupt[]): Promise<void>;
  /**
   * Removes a row from the list, after it was repaired, rebuilt or removed. Records no audit entry, because the caller records its
   * own action. Returns false if the row was not listed.
   */
  resolve(row: RowLocation): Promise<boolean>;
  /** Returns the listed rows, at most about `MAX_LISTED`. Costs one request. */
  list(): Promise<UnreadableRow[]>;
  /**
   * Returns the number of listed rows, and whether further rows were unreadable within the last two hours. Costs two requests,
   * at most once a minute in each process.
   */
  count(): Promise<{ listed: number; more: boolean }>;
  /**
   * Removes the rows from the list that no longer exist or were written again since they were reported. A row that is still
   * unreadable is reported again when it is next read. Returns the number of removed rows. Costs one request for each listed row.
   */
  removeResolved(): Promise<number>;
}

export function createUnreadableRows(deps: {
  tables: Tables;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}): UnreadableRows {
  const { tables, audit, clock, randomness, log } = deps;
  /** Time until which a row is not reported again, by the row's key in the list. */
  const remembered = new Map<string, number>();
  let cachedCount: { listed: number; keys: ReadonlySet<string>; more: boolean; readAt: number } | undefined;
  /** Until when this process records no further entry about rows beyond the listed ones. */
  let summaryUntil = 0;
  const now = () => clock.now().getTime();

  const record = (details: Record<string, unknown>, identity: { id?: string; target?: { type: string; id: string } }) =>
    audit.append({
      ...identity,
      type: "storage.rowUnreadable",
      caller: { actor: "system", requestId: "storage" },
      outcome: "failure",
      details,
    });

  /** Records the audit entry of a listed row, unless it is recorded. A repetition after a crash uses the same ID. */
  async function recordOnce(row: Row<UnreadableRow>): Promise<void> {
    if (row.audited) return;
    const { table, partition, key, reason, auditId } = row;
    const target = { type: "row", id: `${table}/${partition}/${key}` };
    const details = { table, partitionKey: partition, rowKey: key, reason };
    let recordedId = auditId;
    try {
      await record(details, { id: auditId, target });
    } catch (error) {
      // The interval of the ULID's time was sealed without the entry, so the entry gets the current time.
      if (!(error instanceof IntervalSealed)) throw error;
      recordedId = randomness.ulid(clock.now());
      await record(details, { id: recordedId, target });
    }
    await tables.modify(
      Listed,
      LISTED,
      row.rowKey,
      (current) => current && { ...current, auditId: recordedId, audited: true },
    );
  }

  /** Stores a listed row's current ETag. An entry of the list that can't be read itself is written again. */
  async function renewListed(row: StorageCorrupt, key: string): Promise<void> {
    try {
      const listed = await tables.modify(Listed, LISTED, key, (current) =>
        current === undefined || current.version === row.etag ? undefined : { ...current, version: row.etag },
      );
      if (listed) await recordOnce(listed);
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      await recordOnce(await tables.put(Listed, LISTED, key, newEntry(row)));
    }
  }

  function newEntry(row: StorageCorrupt): UnreadableRow {
    const at = clock.now();
    return {
      table: row.table,
      partition: row.partitionKey,
      key: row.rowKey,
      version: row.etag,
      reason: row.reason.slice(0, MAX_REASON_LENGTH),
      reportedAt: at.toISOString(),
      auditId: randomness.ulid(at),
      audited: false,
    };
  }

  async function listRow(row: StorageCorrupt, key: string): Promise<void> {
    try {
      const listed = await tables.insert(Listed, LISTED, key, newEntry(row));
      if (cachedCount) cachedCount.listed++;
      log.error("A row can't be read", { table: row.table, row: row.message });
      await recordOnce(listed);
    } catch (error) {
      if (!(error instanceof RowExists)) throw error;
      await renewListed(row, key);
    }
  }

  /** Records, at most once an hour, that more rows are unreadable than the list has. */
  async function recordSummary(row: StorageCorrupt): Promise<void> {
    if (summaryUntil > now()) return;
    summaryUntil = now() + SUMMARY_EVERY_MS;
    const summary = await tables.get(Summary, SUMMARY, SUMMARY, { onCorrupt: () => {} });
    if (summary && now() - Date.parse(summary.recordedAt) < SUMMARY_EVERY_MS) return;
    const recordedAt = clock.now().toISOString();
    // Several processes can be here at the same time. Only the one whose write succeeds records the entry.
    try {
      if (summary) await tables.replace(Summary, { ...summary, recordedAt });
      // Also over a row that can't be read. In the first hour, two processes may both record the entry.
      else await tables.put(Summary, SUMMARY, SUMMARY, { recordedAt });
    } catch (error) {
      if (isConflict(error)) return;
      throw error;
    }
    cachedCount = undefined;
    const reason = `More than ${MAX_LISTED} rows can't be read. Further rows have no entry of their own.`;
    log.error("More rows can't be read", { table: row.table, row: row.message });
    await record({ table: row.table, reason, listed: MAX_LISTED }, {});
  }

  async function reportMore(row: StorageCorrupt): Promise<void> {
    try {
      await recordSummary(row);
    } catch (error) {
      summaryUntil = now() + RETRY_AFTER_MS;
      log.error("Further unreadable rows could not be reported", { row: row.message, error: String(error) });
    }
  }

  async function count() {
    if (cachedCount && now() - cachedCount.readAt < COUNT_CACHE_MS) return cachedCount;
    const keys = new Set<string>();
    for await (const rows of tables.pages(Listed, { partitionKey: LISTED, select: [] }))
      for (const { rowKey } of rows) keys.add(rowKey);
    const summary = await tables.get(Summary, SUMMARY, SUMMARY, { onCorrupt: () => {} });
    const more = summary !== undefined && now() - Date.parse(summary.recordedAt) < 2 * SUMMARY_EVERY_MS;
    cachedCount = { listed: keys.size, keys, more, readAt: now() };
    return cachedCount;
  }

  /** Reports a row. Returns false if the list is full and does not contain the row. */
  async function reportRow(row: StorageCorrupt): Promise<boolean> {
    const key = keyOf(row);
    if ((remembered.get(key) ?? 0) > now()) return true;
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    // Before the first request, so that a row that the report itself reads is not reported without end.
    remembered.set(key, now() + REPORT_EVERY_MS);
    try {
      const { listed, keys } = await count();
      if (keys.has(key)) await renewListed(row, key);
      else if (listed < MAX_LISTED) await listRow(row, key);
      else return false;
    } catch (error) {
      remembered.set(key, now() + RETRY_AFTER_MS);
      log.error("An unreadable row could not be reported", { row: row.message, error: String(error) });
    }
    return true;
  }

  async function resolve(row: RowLocation): Promise<boolean> {
    const key = keyOf(row);
    remembered.delete(key);
    cachedCount = undefined;
    return await tables.remove(Listed, LISTED, key);
  }

  async function list(): Promise<UnreadableRow[]> {
    const listed: UnreadableRow[] = [];
    for await (const rows of tables.pages(Listed, { partitionKey: LISTED, onCorrupt: () => {} }))
      listed.push(...rows.map(withoutKeys));
    return listed;
  }

  return {
    async report(rows) {
      // The list does not report its own rows, because each report would read them.
      let notListed: StorageCorrupt | undefined;
      for (const row of rows) if (row.table !== TABLE && !(await reportRow(row))) notListed = row;
      if (notListed) await reportMore(notListed);
    },
    resolve,
    list,
    async count() {
      const { listed, more } = await count();
      return { listed, more };
    },
    async removeResolved() {
      let removed = 0;
      for (const { table, partition, key, version } of await list()) {
        const row = await tables.get({ ...AnyRow, table }, partition, key);
        if (row?.etag !== version && (await resolve({ table, partitionKey: partition, rowKey: key }))) removed++;
      }
      return removed;
    },
  };
}
