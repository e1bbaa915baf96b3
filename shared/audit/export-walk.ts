import type { Tables } from "../storage/tables.ts";
import { ahead } from "./ahead.ts";
import { Digest } from "./chain.ts";
import { type AuditEntry, readEntry } from "./entry.ts";
import { INTERVAL_MS, type Interval, intervalFrom, intervalName, intervalOf } from "./interval.ts";
import type { AuditQuery } from "./list.ts";
import { DIGESTS_PARTITION, DigestRow } from "./rows.ts";
import { type StoredEntry, storedEntries } from "./sealed-rows.ts";
import { peekStatement } from "./signing.ts";

const PARALLEL = 8;

/** Where an export stands: behind this entry. Sorts as the entries are walked. */
export interface Position {
  interval: Interval;
  id: string;
}

/** As a signed statement names it. */
export const positionText = ({ interval, id }: Position): string => `${intervalName(interval)}|${id}`;

export interface Walked {
  interval: Interval;
  row: StoredEntry;
  /** Undefined where someone wrote a row that is no entry: an export leaves it out, verification tells of it. */
  entry: AuditEntry | undefined;
}

/**
 * The primary rows of `start <= instant < end`, oldest first, page by page, from behind `after` on. Filters on actor and
 * type are left to the caller. Intervals that were sealed empty cost nothing; the others one request each, asked for ahead.
 */
export async function* walkEntries(
  tables: Tables,
  range: { start: number; end: number },
  after: Position | undefined,
): AsyncGenerator<Walked[]> {
  const from = after ? after.interval : intervalOf(range.start);
  const begin = async (interval: Interval) => {
    // The least key behind the last one, so that a part may end anywhere.
    const pages = storedEntries(tables, interval, after && interval === after.interval ? `${after.id}!` : undefined);
    return { interval, first: await pages.next(), pages };
  };
  for await (const { interval, first, pages } of ahead(occupied(tables, from, range.end), PARALLEL, begin)) {
    const whole = interval >= range.start && interval + INTERVAL_MS <= range.end;
    for (let page = first; !page.done; page = await pages.next()) {
      const walked = page.value.map((row) => ({ interval, row, entry: readEntry(row.text ?? "") }));
      yield whole ? walked : walked.filter(({ entry }) => entry && within(entry, range));
    }
  }
}

const within = ({ occurredAt }: AuditEntry, { start, end }: { start: number; end: number }): boolean =>
  Date.parse(occurredAt) >= start && Date.parse(occurredAt) < end;

/** Every interval of the range but those that were sealed empty. */
async function* occupied(tables: Tables, from: Interval, end: number): AsyncGenerator<Interval> {
  let next = from;
  const range = { partitionKey: DIGESTS_PARTITION, from: intervalName(from), before: intervalName(end) };
  for await (const page of tables.pages(DigestRow, range)) {
    for (const { rowKey, digest } of page) {
      const sealed = peekStatement(Digest, digest);
      if (sealed?.interval !== rowKey) continue;
      for (; next < intervalFrom(rowKey); next += INTERVAL_MS) yield next;
      if (sealed.entries > 0) yield next;
      next += INTERVAL_MS;
    }
  }
  for (; next < end; next += INTERVAL_MS) yield next;
}

/** Whether an entry passes the filters that the primary rows have no key for. */
export const passes = (entry: AuditEntry, { actor, eventType }: AuditQuery): boolean =>
  (actor === undefined || entry.actor.toLowerCase() === actor.toLowerCase()) &&
  (eventType === undefined || entry.eventType === eventType);
