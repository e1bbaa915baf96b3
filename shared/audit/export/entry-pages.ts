import type { Tables } from "../../platform/storage/tables.ts";
import type { AuditEntry } from "../entry.ts";
import { dayOf, INTERVAL_MS, type Interval, intervalOf } from "../interval.ts";
import type { AuditQuery } from "../list.ts";
import { entryOfRow, type StoredEntry, storedEntries } from "../stored-entries.ts";

/** Position of an export: after this row. */
export interface Position {
  interval: Interval;
  rowKey: string;
}

/** The position in a signed statement. Sorts in the order of the export. */
export const positionText = ({ interval, rowKey }: Position): string => `${dayOf(interval)}|${rowKey}`;

export interface WalkedRow {
  row: StoredEntry;
  /** Undefined if the row is not an entry. An export skips it, verification reports it. */
  entry: AuditEntry | undefined;
}

/**
 * Yields the primary rows of `start <= instant < end`, oldest first, page by page, starting after `after`. The caller filters
 * by actor and type.
 */
export async function* walkEntries(
  tables: Tables,
  range: { start: number; end: number },
  after: Position | undefined,
): AsyncGenerator<WalkedRow[]> {
  const from = after ? after.interval : intervalOf(range.start);
  const to = intervalOf(range.end - 1) + INTERVAL_MS;
  for await (const page of storedEntries(tables, { from, to }, after)) {
    yield page
      .map((row) => ({ row, entry: entryOfRow(row) }))
      .filter(({ entry }) => entry === undefined || within(entry, range));
  }
}

const within = ({ occurredAt }: AuditEntry, { start, end }: { start: number; end: number }): boolean =>
  Date.parse(occurredAt) >= start && Date.parse(occurredAt) < end;

/** Returns true if an entry passes the filters that the primary rows have no key for. */
export const matchesFilter = (entry: AuditEntry, { actor, eventType }: AuditQuery): boolean =>
  (actor === undefined || entry.actor.toLowerCase() === actor.toLowerCase()) &&
  (eventType === undefined || entry.eventType === eventType);
