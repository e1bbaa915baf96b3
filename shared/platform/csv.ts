import { Parser } from "@json2csv/plainjs";

/** One column: its name in the header line, and a row's cell. `undefined` and `null` are an empty cell. */
export interface Column<T> {
  label: string;
  value: (row: T) => string | number | boolean | null | undefined;
}

/** Writes rows of one kind as CSV: RFC 4180, every text quoted. */
export interface Csv<T> {
  /** The header line, behind the byte order mark by which Excel knows UTF-8; no line break at its end. */
  header(): string;
  /** Lines that each begin with the line break that ends the one before, so that a file can be written in pieces. */
  rows(rows: readonly T[]): string;
}

/**
 * What makes a spreadsheet run a cell as a formula, also in full width, and also behind characters it skips. Such a cell
 * gets an apostrophe in front: https://owasp.org/www-community/attacks/CSV_Injection
 */
const FORMULA = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

const cell = (value: string): string => `"${(FORMULA.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;

const LINE_END = "\r\n";

/** @param columns - In their order. */
export function createCsv<T extends object>(columns: readonly Column<T>[]): Csv<T> {
  const options = {
    fields: columns.map(({ label, value }) => ({ label, value: (row: T) => value(row) ?? "" })),
    eol: LINE_END,
    formatters: { string: cell },
  };
  const header = new Parser<T, T>({ ...options, withBOM: true });
  const lines = new Parser<T, T>({ ...options, header: false });
  return {
    header: () => header.parse([]),
    rows: (rows) => (rows.length === 0 ? "" : LINE_END + lines.parse([...rows])),
  };
}
