import type { LateEntries } from "../api.ts";
import { type Interval, intervalName } from "../interval.ts";
import { entryOfRow, type StoredEntry } from "../stored-entries.ts";

/** Maximum number of late entries listed in one response. All are counted. */
const MAX_LISTED = 100;

/**
 * Collects late entries while a verification reads all entries. If the log was already closed for the time of an event, the
 * event's entry is listed under a later time (`occurredAt`) and contains `happenedAt`. Other entries don't have that member.
 */
export interface LateCheck {
  /** Yields the same pages, and collects their late entries. */
  recordFrom(pages: AsyncIterable<StoredEntry[]>): AsyncGenerator<StoredEntry[]>;
  /** Returns the late entries whose interval begins before `to`. */
  until(to: Interval): LateEntries;
}

export function createLateCheck(): LateCheck {
  const late: (LateEntries["listed"][number] & { startsAt: Interval })[] = [];
  return {
    async *recordFrom(pages) {
      for await (const page of pages) {
        for (const row of page) {
          // Parsing is expensive, and almost no entry has the member.
          if (!row.text?.includes('"happenedAt"')) continue;
          const entry = entryOfRow(row);
          if (entry?.happenedAt === undefined) continue;
          const { id: entryId, occurredAt, happenedAt } = entry;
          late.push({ startsAt: row.interval, interval: intervalName(row.interval), entryId, occurredAt, happenedAt });
        }
        yield page;
      }
    },
    until(to) {
      const within = late.filter(({ startsAt }) => startsAt < to);
      return { total: within.length, listed: within.slice(0, MAX_LISTED).map(({ startsAt: _, ...entry }) => entry) };
    },
  };
}
