import { createHash } from "node:crypto";
import * as z from "zod";
import type { AuditRecorder } from "../audit/event.ts";
import { IntervalSealed } from "../audit/interval.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { entity, keysOnly, type Row, withoutKeys } from "../platform/storage/entity.ts";
import type { StorageCorrupt, Tables } from "../platform/storage/tables.ts";
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
/** The rows of the list. */
export const Listed = entity(TABLE, UnreadableRowRecord);
const LISTED = "rows";

/** The time of the last audit entry about rows beyond the listed ones. */
export const Summary = entity(TABLE, z.object({ recordedAt: z.string() }));
const SUMMARY = "summary";

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

interface Dependencies {
  tables: Tables;
  audit: AuditRecorder;
  clock: Clock;
  randomness: Randomness;
  log: Logger;
}

export function createUnreadableRows(deps: Dependencies): UnreadableRows {
  const { tables, clock, log } = deps;
  /** Time until which a row is not reported again, by the row's key in the list. */
  const remembered = new Map<string, number>();
  let cached: { keys: Set<string>; more: boolean; readAt: number } | undefined;
  /** Until when this process records no further entry about rows beyond the listed ones. */
  let summaryUntil = 0;
  const now = () => clock.now().getTime();

  async function count() {
    if (!cached || now() - cached.readAt >= COUNT_CACHE_MS) cached = { ...(await readCount(deps)), readAt: now() };
    return cached;
  }

  /** Reports a row. Returns false if the list is full and does not contain the row. */
  async function reportRow(row: StorageCorrupt): Promise<boolean> {
    const key = keyOf(row);
    if ((remembered.get(key) ?? 0) > now()) return true;
    if (remembered.size >= MAX_REMEMBERED) remembered.clear();
    // The row is remembered before the first request. The report may read the same row, and would otherwise report it endlessly.
    remembered.set(key, now() + REPORT_EVERY_MS);
    try {
      const { keys } = await count();
      if (!keys.has(key) && keys.size >= MAX_LISTED) return false;
      keys.add(key);
      await listRow(row, key, deps);
    } catch (error) {
      remembered.set(key, now() + RETRY_AFTER_MS);
      log.error("An unreadable row could not be reported", { row: row.message, error: String(error) });
    }
    return true;
  }

  /** Reports, at most once an hour, that more rows are unreadable than the list has. */
  async function reportMore(row: StorageCorrupt): Promise<void> {
    if (summaryUntil > now()) return;
    summaryUntil = now() + SUMMARY_EVERY_MS;
    try {
      if (await recordSummary(row, deps)) cached = undefined;
    } catch (error) {
      summaryUntil = now() + RETRY_AFTER_MS;
      log.error("Further unreadable rows could not be reported", { row: row.message, error: String(error) });
    }
  }

  async function resolve(row: RowLocation): Promise<boolean> {
    const key = keyOf(row);
    remembered.delete(key);
    cached = undefined;
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
      // The list does not report its own rows, because each report would read them. One summary covers all unlisted rows.
      let notListed: StorageCorrupt | undefined;
      for (const row of rows) if (row.table !== TABLE && !(await reportRow(row))) notListed = row;
      if (notListed) await reportMore(notListed);
    },
    resolve,
    list,
    async count() {
      const { keys, more } = await count();
      return { listed: keys.size, more };
    },
    async removeResolved() {
      let removed = 0;
      for (const { table, partition, key, version } of await list()) {
        const row = await tables.get(keysOnly({ table }), partition, key);
        if (row?.etag !== version && (await resolve({ table, partitionKey: partition, rowKey: key }))) removed++;
      }
      return removed;
    },
  };
}

/** Reads the keys of the listed rows, and whether there are more. Costs two requests. */
async function readCount({ tables, clock }: Dependencies): Promise<{ keys: Set<string>; more: boolean }> {
  const keys = new Set<string>();
  for await (const rows of tables.pages(Listed, { partitionKey: LISTED, select: [] }))
    for (const { rowKey } of rows) keys.add(rowKey);
  let more = false;
  for await (const rows of tables.pages(Summary, { partitionKey: SUMMARY, onCorrupt: () => {} }))
    for (const { recordedAt } of rows) more = clock.now().getTime() - Date.parse(recordedAt) < 2 * SUMMARY_EVERY_MS;
  return { keys, more };
}

/** Adds a row to the list, or stores the row's current ETag. An entry of the list that can't be read is written again. */
async function listRow(row: StorageCorrupt, key: string, deps: Dependencies): Promise<void> {
  let isNew = false;
  const update = (entry: UnreadableRow | undefined): UnreadableRow | undefined => {
    isNew = entry === undefined;
    if (!entry) return newEntry(row, deps);
    // Undefined: nothing is written.
    return entry.version === row.etag ? undefined : { ...entry, version: row.etag };
  };
  const listed = await deps.tables.modify(Listed, LISTED, key, update, { replaceCorrupt: true });
  if (isNew) deps.log.error("A row can't be read", { table: row.table, row: row.message });
  await recordOnce(listed!, deps);
}

function newEntry(row: StorageCorrupt, { clock, randomness }: Dependencies): UnreadableRow {
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

/** Records the audit entry of a listed row, unless it is recorded. A repetition after a crash uses the same ID. */
async function recordOnce(row: Row<UnreadableRow>, deps: Dependencies): Promise<void> {
  if (row.audited) return;
  const { tables, audit, clock, randomness } = deps;
  const { table, partition, key, reason, auditId } = row;
  const event = {
    ...EVENT,
    target: { type: "row", id: `${table}/${partition}/${key}` },
    details: { table, partitionKey: partition, rowKey: key, reason },
  };
  let recordedId = auditId;
  try {
    await audit.append({ ...event, id: auditId });
  } catch (error) {
    // The interval of the ULID's time was sealed without the entry, so the entry gets the current time.
    if (!(error instanceof IntervalSealed)) throw error;
    recordedId = randomness.ulid(clock.now());
    await audit.append({ ...event, id: recordedId });
  }
  const setAudited = (entry: UnreadableRow | undefined) => entry && { ...entry, auditId: recordedId, audited: true };
  await tables.modify(Listed, LISTED, row.rowKey, setAudited);
}

/** Records that more rows are unreadable than the list has, unless any process did within the last hour. */
async function recordSummary(row: StorageCorrupt, { tables, audit, clock, log }: Dependencies): Promise<boolean> {
  const at = clock.now();
  let isDue = false;
  const update = (summary: { recordedAt: string } | undefined) => {
    isDue = !summary || at.getTime() - Date.parse(summary.recordedAt) >= SUMMARY_EVERY_MS;
    return isDue ? { recordedAt: at.toISOString() } : undefined;
  };
  await tables.modify(Summary, SUMMARY, SUMMARY, update, { replaceCorrupt: true });
  if (!isDue) return false;
  log.error("More rows can't be read", { table: row.table, row: row.message });
  const reason = `More than ${MAX_LISTED} rows can't be read. Further rows have no entry of their own.`;
  await audit.append({ ...EVENT, details: { table: row.table, reason, listed: MAX_LISTED } });
  return true;
}

const EVENT = {
  type: "storage.rowUnreadable",
  caller: { actor: "system", requestId: "storage" },
  outcome: "failure",
} as const;
