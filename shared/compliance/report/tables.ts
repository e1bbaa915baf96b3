import { ALARM, type Cell, CONTENT_BOTTOM, type Column, GOOD, HEADING, type Sheet } from "../../platform/pdf/sheet.ts";
import type { Severity } from "../check.ts";
import type { Violation } from "../violations.ts";

/** Parts that the PDF reports about compliance share. */

export const TEXT_SIZE = 9;
const ROW_SIZE = 7.5;

/** `2026-11-21 10:00:00` */
export const instant = (date: Date | string): string => new Date(date).toISOString().slice(0, 19).replace("T", " ");

export function section(sheet: Sheet, title: string): void {
  sheet.y -= 8;
  // Keeps a heading together with the text that follows.
  if (sheet.y < CONTENT_BOTTOM + 60) sheet.nextPage();
  sheet.text(title, { size: 12, style: "bold", color: HEADING });
  sheet.y -= 2;
}

/** Adds a table with its heading on each page. */
export function table(sheet: Sheet, columns: readonly Column[], rows: readonly Cell[][]): void {
  const needed = (cells: readonly Cell[]) => sheet.rowHeight(columns, cells, ROW_SIZE);
  if (rows.length === 0 || sheet.y - 17 - needed(rows[0]!) < CONTENT_BOTTOM) sheet.nextPage();
  sheet.heading(columns);
  for (const [index, cells] of rows.entries()) {
    if (sheet.y - needed(cells) < CONTENT_BOTTOM) {
      sheet.nextPage();
      sheet.heading(columns);
    }
    sheet.row(columns, cells, { size: ROW_SIZE, striped: index % 2 === 1 });
  }
  sheet.y -= 4;
}

export const cell = (...paragraphs: string[]): Cell => ({ paragraphs });
export const number = (value: number, color?: Cell["color"]): Cell => ({
  paragraphs: [String(value)],
  ...(color && { color }),
});

export const severityCell = (severity: Severity): Cell =>
  severity === "critical" ? { paragraphs: [severity], color: ALARM } : cell(severity);

export const statusCell = (status: string, words: string): Cell => {
  const color = status === "fail" ? ALARM : status === "pass" ? GOOD : undefined;
  return { paragraphs: [words], ...(color && { color }) };
};

const EVIDENCE: Column[] = [
  { title: "Resource", width: 245 },
  { title: "Owner", width: 110 },
  { title: "Evidence", width: 275 },
  { title: "Since (UTC)", width: 85 },
  { title: "Exempted", width: 54.89 },
];

/** Adds a line for each violation: resource, owner, evidence, time. */
export function evidenceTable(sheet: Sheet, violations: readonly Violation[]): void {
  table(
    sheet,
    EVIDENCE,
    violations.map(({ resourceId, subscriptionId, owner, evidence, firstSeenAt, exempted }) => [
      cell(resourceId, ...(subscriptionId === null ? [] : [`subscription ${subscriptionId}`])),
      cell(owner ?? "none named"),
      cell(evidence),
      cell(instant(firstSeenAt)),
      cell(exempted ? "yes" : "no"),
    ]),
  );
}
