import type { Tables } from "../../platform/storage/tables.ts";
import type { AuditEntry } from "../entry.ts";
import { dayOf, INTERVAL_MS, type Interval, intervalOf } from "../interval.ts";
import type { AuditQuery } from "../list.ts";
import { entryOfRow, type StoredEntry, storedEntries } from "../stored.ts";

/** Where an export stands: behind this row. */
export interface Position {
  interval: Interval;
  rowKey: string;
}

/** As a signed statement names it: sorts as the entries are walked. */
export const positionText = ({ interval, rowKey }: Position): string => `${dayOf(interval)}|${rowKey}`;

export interface Walked {
  row: StoredEntry;
  /** Undefined where someone wrote a row that is no entry: an export leaves it out, verification tells of it. */
  entry: AuditEntry | undefined;
}

/**
 * The primary rows of `start <= instant < end`, oldest first, page by page, from behind `after` on. Filters on actor and
 * type are left to the caller.
 */
export async function* walkEntries(
  tables: Tables,
  range: { start: number; end: number },
  after: Position | undefined,
): AsyncGenerator<Walked[]> {
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

/** Whether an entry passes the filters that the primary rows have no key for. */
export const passes = (entry: AuditEntry, { actor, eventType }: AuditQuery): boolean =>
  (actor === undefined || entry.actor.toLowerCase() === actor.toLowerCase()) &&
  (eventType === undefined || entry.eventType === eventType);
