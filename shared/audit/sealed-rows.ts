import { StorageCorrupt, type Tables } from "../storage/tables.ts";
import { sha256 } from "./canonical.ts";
import type { Interval } from "./interval.ts";
import { AnyRow, BORN_MARK, entriesPartition, OPEN_MARK } from "./rows.ts";

/** A row of an interval's partition that is no mark. */
export interface StoredEntry {
  rowKey: string;
  /** The entry's text, or undefined where the row holds none that can be read. */
  text: string | undefined;
}

const ULID = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/;

export const isEntryId = (rowKey: string): boolean => ULID.test(rowKey);

export const hashOf = ({ text }: StoredEntry): string => sha256(text ?? "");

/** Whatever stands in an interval's partition, by pages in the order of the row keys: also what this service never wrote. */
export async function* storedEntries(tables: Tables, interval: Interval, from?: string): AsyncGenerator<StoredEntry[]> {
  const partitionKey = entriesPartition(interval);
  let after: string | undefined;
  let pageSize = 1000;
  for (;;) {
    try {
      const start = after === undefined ? (from === undefined ? {} : { from }) : { after };
      for await (const page of tables.pages(AnyRow, { partitionKey, ...start, pageSize })) {
        after = page.at(-1)!.rowKey;
        yield page
          .filter(({ rowKey }) => rowKey !== BORN_MARK && rowKey !== OPEN_MARK)
          .map(({ rowKey, entry }) => ({ rowKey, text: typeof entry === "string" ? entry : undefined }));
      }
      return;
    } catch (error) {
      if (!(error instanceof StorageCorrupt)) throw error;
      // One row spoils its page: go on row by row up to it, then past it.
      if (pageSize === 1) {
        yield [{ rowKey: error.rowKey, text: undefined }];
        after = error.rowKey;
        pageSize = 1000;
      } else pageSize = 1;
    }
  }
}
