import * as z from "zod";
import { type Interval, intervalFrom } from "../interval.ts";

/**
 * Links between the entries of one process. Each process writes its entries in sequences, one write of a sequence at a time. The
 * link of an entry has the entry's number in its sequence and names entries that the process wrote before. So the removal of an
 * entry shows as soon as the process has written another one, without an additional request per entry.
 */

/**
 * Names an entry by its row. `count` is the entry's number of occurrences when it was named. A repeat of the event increases the
 * entry's count, so a lower count shows that the row was set back.
 */
export const EntryName = z.object({
  day: z.string(),
  key: z.string(),
  count: z.int().min(1),
  /** True if the index rows of the entry were written. */
  indexed: z.literal(true).optional(),
});
export type EntryName = z.infer<typeof EntryName>;

/**
 * `previous` names earlier entries of the process: first the sequence's entry with the number before, if there is one, then entries
 * that no link names yet, such as the last entry of a sequence that ended.
 */
export const Link = z.object({ sequence: z.string(), number: z.int().min(1), previous: z.array(EntryName) });
export type Link = z.infer<typeof Link>;

/** Parses the link of a row. Undefined if it has none. */
export function readLink(text: string | undefined): Link | undefined {
  if (text === undefined) return undefined;
  try {
    return Link.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Returns the interval of a named entry: the day, and the time at the start of the row key. */
export const intervalOfName = ({ day, key }: EntryName): Interval => intervalFrom(`${day}T${key.slice(0, 5)}Z`);

/** Returns a text that identifies the named row, for use as the key of a map. */
export const rowOfName = ({ day, key }: Pick<EntryName, "day" | "key">): string => `${day}|${key}`;
