/** Excel needs the byte order mark to detect UTF-8. */
export const BYTE_ORDER_MARK = "\uFEFF";

/** Returns the shown texts of a table as CSV. Columns of buttons, which have no visible header, are left out. */
export function csvOf(table: HTMLTableElement): string {
  const [head, ...rows] = [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
  const kept = head!.flatMap((title, index) => (title === "" || title === "Actions" ? [] : [index]));
  return `${BYTE_ORDER_MARK}${[head!, ...rows].map((row) => kept.map((index) => quoted(row[index]!)).join(",")).join("\r\n")}\r\n`;
}

/** Quotes a value. A spreadsheet would run a value that starts like a formula, so such a value gets an apostrophe. */
const quoted = (value: string): string =>
  `"${(/^[=+\-@\t\r]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
