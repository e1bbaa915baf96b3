import { Parser } from "@json2csv/plainjs";

/** What a spreadsheet would run as a formula: https://owasp.org/www-community/attacks/CSV_Injection */
const FORMULA = /^[=+\-@\t\r]/;

/** A cell no spreadsheet runs: an apostrophe before what would be a formula. Numbers and booleans stay as they are. */
const defused = (value: unknown): unknown => {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return defused(JSON.stringify(value));
  return typeof value === "string" && FORMULA.test(value) ? `'${value}` : value;
};

/** Rows as CSV (RFC 4180) in the order of `columns`, each line ended; with the header line when asked for. */
export function toCsv<T extends object>(
  rows: readonly T[],
  columns: readonly (keyof T & string)[],
  header: boolean,
): string {
  const parser = new Parser({ fields: [...columns], header, eol: "\r\n" });
  const cells = rows.map((row) => Object.fromEntries(columns.map((column) => [column, defused(row[column])])));
  const text = parser.parse(cells);
  return text === "" ? "" : `${text}\r\n`;
}
