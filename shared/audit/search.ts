import { filteredPage } from "../platform/http/filtered-page.ts";
import type { PageRequest } from "../platform/http/paging.ts";
import type { Tables } from "../platform/storage/tables.ts";
import type { Finding } from "./chain/findings.ts";
import type { AuditEntry } from "./entry.ts";
import { type AuditPage, type AuditQuery, queryName } from "./list.ts";
import { readIndexed } from "./read-indexed.ts";
import { readRows } from "./read-rows.ts";
import { INDEX_PARTITION, IndexRow, indexPrefix, indexRange, position } from "./rows.ts";
import type { Span } from "./span.ts";

/** Entries that are read at once. One call reads up to ten of these pages, because a text has no index. */
const PAGE_ENTRIES = 200;

/**
 * Returns one page of the entries that contain a text, newest first. Reads up to 2,000 entries of the index range and costs, for
 * each 200 of them, one request of the index and those of `readIndexed`.
 */
export async function searchEntries(
  tables: Tables,
  span: Span,
  query: AuditQuery & { search: string },
  request: PageRequest,
): Promise<AuditPage> {
  const prefix = indexPrefix(query);
  const start = Math.max(query.start?.getTime() ?? 0, span.from ?? 0);
  const end = Math.min(query.end?.getTime() ?? span.to, span.to);
  const range = { partitionKey: INDEX_PARTITION, ...indexRange(prefix, start, end) };
  const text = query.search.toLowerCase();
  const findings: Finding[] = [];

  /** Reads pages of index rows, each with its entry. Rows without a matching entry become findings. */
  async function* pages({ after }: { after?: string }) {
    const rowPages = readRows(tables, IndexRow, {
      ...range,
      ...(after !== undefined && { after }),
      pageSize: PAGE_ENTRIES,
    });
    for await (const rows of rowPages) {
      const indexed = rows.map(({ rowKey, value }) => ({ rowKey, position: rowKey.slice(prefix.length), value }));
      const page = await readIndexed(tables, indexed, span.isAuthentic);
      findings.push(...page.findings);
      const entries = new Map(
        page.items.map((entry) => [prefix + position(entry.id, Date.parse(entry.occurredAt)), entry]),
      );
      yield indexed.map(({ rowKey }) => ({ rowKey, entry: entries.get(rowKey) }));
    }
  }

  const { items, ...page } = await filteredPage(request, {
    filters: queryName(query),
    matches: ({ entry }: { rowKey: string; entry: AuditEntry | undefined }) =>
      entry !== undefined && textsOf(entry).some((entryText) => entryText.toLowerCase().includes(text)),
    pages,
  });
  return {
    ...page,
    items: items.flatMap(({ entry }) => entry ?? []),
    ...(findings.length > 0 && { findings }),
  };
}

/**
 * Returns the texts of an entry: all values, and the names of its event and of the members of its details, also as words, such
 * as "critical expiry days".
 */
function textsOf(entry: AuditEntry): string[] {
  const names = [entry.eventType, ...namesIn([entry.before, entry.after, entry.details])];
  return [...valuesIn(entry), ...names, ...names.map(wordsOf)];
}

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
const valuesIn = (value: unknown): string[] =>
  isObject(value) ? Object.values(value).flatMap(valuesIn) : [String(value)];
const namesIn = (value: unknown): string[] =>
  isObject(value) ? [...Object.keys(value), ...Object.values(value).flatMap(namesIn)] : [];
const wordsOf = (name: string): string =>
  name.replaceAll(/[.A-Z]/g, (part) => (part === "." ? " " : ` ${part.toLowerCase()}`));
