import type { Tables } from "../../platform/storage/tables.ts";
import type { AuditEntry } from "../entry.ts";
import { type Interval, intervalName } from "../interval.ts";
import { readRow, readRows } from "../read-rows.ts";
import { EntryRow, entriesPartition, LAST_ROWS, LastRow, lastRowKey } from "../rows.ts";
import { entryOfRow, type StoredEntry } from "../stored-entries.ts";
import type { EntryAuthentication } from "./entry-authentication.ts";
import type { Finding } from "./findings.ts";
import { type EntryName, intervalOfName, type Link, readLink, rowOfName } from "./link.ts";

/**
 * Checks the entries of an interval that is not sealed yet: their authentication codes, and whether every entry exists that a
 * link names. Sealing and verification use it. Each process writes its entries in sequences: the link of an entry has its
 * number in the sequence, and names entries that the process wrote before. The newest entry of a sequence is named by the row
 * of its last entry. An entry's count is its number of occurrences. It only grows, because repeats of an event replace the
 * entry's row by one with a higher count.
 */

/** Maximum number of findings of one interval that are listed. */
const MAX_LISTED = 100;
/**
 * Maximum number of rows of one interval that are read once more before they are reported as missing. Beyond it, missing
 * entries are reported at once, and rows of last entries are not checked.
 */
const MAX_READ_AGAIN = 1_000;

/** The services that the check needs, and the limits of the log. */
export interface AuthenticityDependencies {
  tables: Tables;
  authentication: EntryAuthentication;
  /** Entries before this interval may have no code. Undefined: no entry needs one. */
  authenticatedFrom: Interval | undefined;
  /** Entries before this interval may be purged. */
  keptFrom: Interval | undefined;
}

/** A falsification of an interval that was found before it was sealed. */
export interface Falsification extends Finding {
  kind: "entryChanged" | "entryRemoved" | "entryInserted" | "lastEntryChanged";
  interval: string;
}

/** The check of one interval. The caller adds all its rows and then finishes it. */
export interface IntervalCheck {
  /** Adds a row of the interval. @param entry - Undefined if the row is not an entry. */
  add(row: StoredEntry, entry: AuditEntry | undefined): void;
  /**
   * Returns what was changed, removed or inserted. `total` also counts what is not listed. `withoutCode` counts the entries that were
   * accepted without a code.
   *
   * @param lastRows - The rows of last entries of the day, read before the entries.
   */
  finish(lastRows: readonly LastEntryRow[]): Promise<{ listed: Falsification[]; total: number; withoutCode: number }>;
  /** The entries whose index rows exist according to a link, by row. */
  readonly indexed: ReadonlySet<string>;
}

/** The row of the last entry of a sequence. The link is undefined if the row was not written by this service. */
export interface LastEntryRow {
  rowKey: string;
  link: Link | undefined;
  isForged: boolean;
}

/** Returns whether an entry was written by this service: it has a valid code, or its interval needs none. */
export function isAuthentic(
  rule: Pick<AuthenticityDependencies, "authentication" | "authenticatedFrom"> & { acceptsUnknownKeys?: boolean },
  row: Pick<StoredEntry, "interval" | "rowKey" | "text" | "link" | "mac">,
): boolean {
  const { authentication, authenticatedFrom, acceptsUnknownKeys = false } = rule;
  const authenticity = authentication.check({ ...row, partitionKey: entriesPartition(row.interval) });
  if (authenticity === "absent") return authenticatedFrom === undefined || row.interval < authenticatedFrom;
  return authenticity === "authentic" || (acceptsUnknownKeys && authenticity === "unknownKey");
}

/** Reads the rows of last entries of a day. Costs one request. */
export async function readLastRows(
  tables: Tables,
  authentication: EntryAuthentication,
  partitionKey: string,
): Promise<LastEntryRow[]> {
  const rows: LastEntryRow[] = [];
  for await (const page of readRows(tables, LastRow, { partitionKey, ...LAST_ROWS }))
    for (const { rowKey, value } of page) rows.push(lastEntryRow(authentication, partitionKey, rowKey, value));
  return rows;
}

function lastEntryRow(
  authentication: EntryAuthentication,
  partitionKey: string,
  rowKey: string,
  value: { link: string; mac: string } | undefined,
): LastEntryRow {
  const row = { partitionKey, rowKey, text: undefined, link: value?.link, mac: value?.mac };
  const authenticity = value ? authentication.check(row) : "invalid";
  const link = authenticity === "authentic" ? readLink(value?.link) : undefined;
  // An unknown key may have been removed from the configuration after the last entry. The row then counts as missing if there are
  // entries of its sequence.
  return { rowKey, link, isForged: authenticity === "invalid" };
}

/** Creates the check of an interval that is not sealed yet. */
export function createIntervalCheck(deps: AuthenticityDependencies, interval: Interval): IntervalCheck {
  const { tables, authentication, authenticatedFrom = Number.POSITIVE_INFINITY, keptFrom = 0 } = deps;
  const partitionKey = entriesPartition(interval);
  /** The authentic entries, and entries without a code that need none. */
  const present = new Map<string, { count: number; hasCode: boolean }>();
  /** Rows without a required or valid code. */
  const suspicious = new Map<string, { id: string; kind: "entryChanged" | "entryInserted" }>();
  /**
   * The entries that links name, by row: the name with the highest count, which the row must reach, and the link with that
   * name.
   */
  const named = new Map<string, { name: EntryName; link: Link }>();
  /** The numbers of the authentic entries, by their sequence. */
  const numbers = new Map<string, number[]>();
  const indexed = new Set<string>();
  const listed: Falsification[] = [];
  let total = 0;
  let readAgain = 0;

  function report(
    kind: Falsification["kind"],
    inInterval: Interval,
    entryId: string | undefined,
    detail: string,
  ): void {
    total += 1;
    const id = entryId === undefined ? {} : { entryId };
    if (listed.length < MAX_LISTED) listed.push({ kind, interval: intervalName(inInterval), ...id, detail });
  }

  function addNames(link: Link): void {
    for (const name of link.previous) {
      const earlier = named.get(rowOfName(name));
      if (!earlier || earlier.name.count < name.count) named.set(rowOfName(name), { name, link });
    }
  }

  /**
   * Reads the row of a name: a row of another interval, whose own check tests its code, or a row of this interval once more, because
   * it may have been written after the page that should contain it.
   */
  async function readNamed(name: EntryName): Promise<{ count: number; hasCode: boolean } | undefined> {
    if (++readAgain > MAX_READ_AGAIN) return undefined;
    const row = await readRow(tables, EntryRow, name.day, name.key);
    if (!row) return undefined;
    // A key is the time of the interval and the entry's id: `10:40|01J…`.
    const id = name.key.slice(6);
    const stored = {
      interval: intervalOfName(name),
      rowKey: name.key,
      id,
      text: undefined,
      link: undefined,
      mac: undefined,
    };
    const content = row.value && { text: row.value.entry, link: row.value.link, mac: row.value.mac };
    const entry = entryOfRow({ ...stored, ...content });
    return { count: entry?.count ?? 0, hasCode: content?.mac !== undefined };
  }

  /** Reports a named entry that is missing or was set back. */
  async function checkName({ name, link }: { name: EntryName; link: Link }): Promise<void> {
    const target = intervalOfName(name);
    if (!Number.isFinite(target) || target < keptFrom || suspicious.has(rowOfName(name))) return;
    let row = target === interval ? present.get(rowOfName(name)) : undefined;
    if (!row || row.count < name.count) row = await readNamed(name);
    const id = name.key.slice(6);
    if (!row) {
      report("entryRemoved", target, id, "The service wrote the entry, and it is missing.");
      // Only the missing entry names the one before it. If that is missing, too, the numbers of the sequence have a gap. Of
      // the names in a link, only the first one is that of the sequence's previous entry.
      const isPrevious = link.number > 1 && link.previous[0] === name;
      const before = isPrevious ? missingBefore(link.sequence, link.number - 1) : 0;
      for (let count = 0; count < before; count++)
        report(
          "entryRemoved",
          target,
          undefined,
          `Entry ${count + 1} of ${before} that the service wrote before ${id} is missing, too.`,
        );
    } else if (row.count < name.count) {
      report("entryChanged", target, id, "The entry was replaced by an earlier state with a lower count.");
    } else if (!row.hasCode && row.count === name.count) {
      report("entryChanged", target, id, "The authentication code of the entry was removed.");
    }
  }

  /**
   * Returns how many entries of a sequence directly before a missing number are missing, too. Zero if the interval has no entry
   * with a lower number.
   */
  function missingBefore(sequence: string, number: number): number {
    const lowerNumbers = (numbers.get(sequence) ?? []).filter((other) => other < number);
    return lowerNumbers.length === 0 ? 0 : number - Math.max(...lowerNumbers) - 1;
  }

  /**
   * Reports the rows of last entries that are missing or older than an entry of their sequence. The preparation for an earlier version
   * removes these rows.
   */
  async function checkLastRows(lastRows: readonly LastEntryRow[]): Promise<void> {
    if (interval < authenticatedFrom) return;
    const byKey = new Map(lastRows.map((row) => [row.rowKey, row]));
    for (const [sequence, entryNumbers] of numbers) {
      const rowKey = lastRowKey(sequence);
      const newest = Math.max(...entryNumbers);
      // The row's link is that of the sequence's next entry, so its number is higher than that of every entry. `finish` reports a
      // forged row.
      const isCurrent = (row: LastEntryRow | undefined) =>
        row && (row.isForged || (row.link && row.link.number > newest));
      if (isCurrent(byKey.get(rowKey)) || ++readAgain > MAX_READ_AGAIN) continue;
      const again = await readRow(tables, LastRow, partitionKey, rowKey);
      if (again && isCurrent(lastEntryRow(authentication, partitionKey, rowKey, again.value))) continue;
      const detail = `The row of the last entry of the writer ${sequence} was removed or set back, so its last entries may be missing.`;
      report("lastEntryChanged", interval, undefined, detail);
    }
  }

  return {
    indexed,

    add(row, entry) {
      const rowName = rowOfName({ day: partitionKey, key: row.rowKey });
      if (!entry || !isAuthentic(deps, row)) {
        suspicious.set(rowName, { id: row.id, kind: row.mac === undefined ? "entryInserted" : "entryChanged" });
        return;
      }
      present.set(rowName, { count: entry.count, hasCode: row.mac !== undefined });
      const link = readLink(row.link);
      if (!link) return;
      addNames(link);
      for (const previous of link.previous) if (previous.indexed) indexed.add(rowOfName(previous));
      numbers.set(link.sequence, [...(numbers.get(link.sequence) ?? []), link.number]);
    },

    async finish(lastRows) {
      // No entry names the last entry of a sequence. The row of last entries does.
      for (const { link } of lastRows) {
        if (link?.previous.some((name) => intervalOfName(name) === interval)) {
          addNames({ ...link, previous: link.previous.filter((name) => intervalOfName(name) === interval) });
        }
      }
      for (const [rowName, { id, kind }] of suspicious) {
        // If a link names the row, this service wrote an entry there, and someone removed its code.
        const isOwnEntry = named.has(rowName) || kind === "entryChanged";
        const detail = isOwnEntry
          ? "The entry has no valid authentication code: it was changed after it was written."
          : "The row has no authentication code: this service did not write it.";
        report(isOwnEntry ? "entryChanged" : "entryInserted", interval, id, detail);
      }
      for (const names of named.values()) await checkName(names);
      await checkLastRows(lastRows);
      for (const { rowKey, isForged } of lastRows)
        if (isForged) report("lastEntryChanged", interval, undefined, `This service did not write the row ${rowKey}.`);
      const withoutCode = [...present.values()].filter(({ hasCode }) => !hasCode).length;
      return { listed, total, withoutCode };
    },
  };
}
