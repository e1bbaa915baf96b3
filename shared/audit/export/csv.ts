import { Parser } from "@json2csv/plainjs";
import { canonicalJson } from "../canonical.ts";
import type { AuditEntry } from "../entry.ts";

const json = (value: unknown): string => (value === undefined ? "" : canonicalJson(value));

/** Columns in their order; `before`, `after` and `details` are JSON text. */
const COLUMNS: { label: string; value: (entry: AuditEntry) => unknown }[] = [
  { label: "id", value: ({ id }) => id },
  { label: "occurredAt", value: ({ occurredAt }) => occurredAt },
  { label: "eventType", value: ({ eventType }) => eventType },
  { label: "outcome", value: ({ outcome }) => outcome },
  { label: "actor", value: ({ actor }) => actor },
  { label: "address", value: ({ address }) => address ?? "" },
  { label: "requestId", value: ({ requestId }) => requestId },
  { label: "targetType", value: ({ target }) => target?.type ?? "" },
  { label: "targetId", value: ({ target }) => target?.id ?? "" },
  { label: "before", value: ({ before }) => json(before) },
  { label: "after", value: ({ after }) => json(after) },
  { label: "details", value: ({ details }) => json(details) },
  { label: "count", value: ({ count }) => count },
  { label: "lastOccurredAt", value: ({ lastOccurredAt }) => lastOccurredAt ?? "" },
];

/**
 * What makes a spreadsheet run a cell as a formula, also in full width, and also behind characters it skips. Such a cell
 * gets an apostrophe in front: https://owasp.org/www-community/attacks/CSV_Injection
 */
const FORMULA = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

const cell = (value: string): string => `"${(FORMULA.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;

const options = { fields: COLUMNS, eol: "\r\n", formatters: { string: cell } };
const rows = new Parser<AuditEntry, AuditEntry>({ ...options, header: false });

/** RFC 4180, every text quoted; the byte order mark tells Excel that it is UTF-8. */
export const csvHeader = (): string => new Parser<AuditEntry, AuditEntry>({ ...options, withBOM: true }).parse([]);

/** Lines that each begin with the line break that ends the one before. */
export const csvRows = (entries: AuditEntry[]): string => (entries.length === 0 ? "" : `\r\n${rows.parse(entries)}`);
