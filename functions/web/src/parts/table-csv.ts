/** Excel needs the byte order mark to detect UTF-8. */
export const BYTE_ORDER_MARK = "\uFEFF";

/**
 * Returns the shown texts of a table as CSV. Leaves out columns of buttons: their header is empty or `Actions`, a text for screen
 * readers only.
 */
export function csvOf(table: HTMLTableElement): string {
  const [head, ...rows] = [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
  const kept = head!.flatMap((title, index) => (title === "" || title === "Actions" ? [] : [index]));
  return `${BYTE_ORDER_MARK}${[head!, ...rows].map((row) => kept.map((index) => quoted(row[index]!)).join(",")).join("\r\n")}\r\n`;
}

/**
 * Matches a value that a spreadsheet would run as a formula, also with full-width characters, or after characters that
 * spreadsheets skip. Exports of the API use the same expression (shared/platform/csv.ts).
 */
const FORMULA = /^[\s\p{Cc}\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

/** Quotes a value. A value that looks like a formula gets an apostrophe. */
const quoted = (value: string): string => `"${(FORMULA.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
