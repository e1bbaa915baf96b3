import type { Tables } from "../../platform/storage/tables.ts";
import type { AuditEntry } from "../entry.ts";
import { dayOf, INTERVAL_MS, type Interval, intervalOf } from "../interval.ts";
import type { AuditQuery } from "../list.ts";
import { entryOfRow, type StoredEntry, storedEntries } from "../stored-entries.ts";

/** Reads the entries for an export, oldest first. */

/** The position of an export: the next part starts after this row. */
export interface Position {
  interval: Interval;
  rowKey: string;
}

/** Returns a position as text for a signed statement, `2026-11-21|10:40|01J…`. The texts sort in the order of the export. */
export const positionText = ({ interval, rowKey }: Position): string => `${dayOf(interval)}|${rowKey}`;

/** A row among the entries. */
export interface ExportedRow {
  row: StoredEntry;
  /** Undefined if the row is not an entry. An export skips it, verification reports it. */
  entry: AuditEntry | undefined;
}

/**
 * Yields the rows of `start <= occurredAt < end` (milliseconds), oldest first, page by page, starting after the position
 * `after`. The caller filters by actor and type.
 */
export async function* readEntryPages(
  tables: Tables,
  range: { start: number; end: number },
  after: Position | undefined,
): AsyncGenerator<ExportedRow[]> {
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

/** Returns true if an entry has the actor and the type of a query. The row keys of entries contain neither. */
export const matchesFilter = (entry: AuditEntry, { actor, eventType }: AuditQuery): boolean =>
  (actor === undefined || entry.actor.toLowerCase() === actor.toLowerCase()) &&
  (eventType === undefined || entry.eventType === eventType);
