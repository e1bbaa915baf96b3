import { Parser } from "@json2csv/plainjs";

/** A column: its name in the header line, and the cell of a row. `undefined` and `null` are empty cells. */
export interface Column<T> {
  label: string;
  value: (row: T) => string | number | boolean | null | undefined;
}

/** Writes rows of one kind as CSV (RFC 4180). Every text is quoted. */
export interface Csv<T> {
  /**
   * Returns the header line without a line break at its end. Starts with a byte order mark, by which Excel recognizes UTF-8.
   */
  header(): string;
  /**
   * Returns the lines of the rows. Each starts with the line break that ends the previous line, so that a file can be written
   * in parts.
   */
  rows(rows: readonly T[]): string;
}

/**
 * Matches a cell that a spreadsheet would run as a formula, such as `=1+1`, also with full-width characters, or after
 * characters that spreadsheets skip. A leading apostrophe prevents this: https://owasp.org/www-community/attacks/CSV_Injection
 */
const FORMULA = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

const cell = (value: string): string => `"${(FORMULA.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;

const LINE_END = "\r\n";

/**
 * Creates a CSV writer.
 *
 * @param columns - Columns in their order.
 */
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
