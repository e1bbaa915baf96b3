import {
  ALARM_COLOR,
  type Cell,
  CONTENT_BOTTOM,
  type Column,
  GOOD_COLOR,
  HEADING_COLOR,
  type Sheet,
} from "../../platform/pdf/sheet.ts";
import type { Severity } from "../check.ts";
import type { Violation } from "../violations.ts";

/** Parts that the PDF reports about compliance share. */

export const TEXT_SIZE = 9;
const ROW_SIZE = 7.5;

/** Returns a time as `2026-11-21 10:00:00`, in UTC. */
export const instantText = (date: Date | string): string => new Date(date).toISOString().slice(0, 19).replace("T", " ");

/** Adds the heading of a section. */
export function addSection(sheet: Sheet, title: string): void {
  sheet.y -= 8;
  // Start a new page if the heading would be separated from what follows: a table's heading and a row of three lines.
  if (sheet.y < CONTENT_BOTTOM + 75) sheet.nextPage();
  sheet.text(title, { size: 12, style: "bold", color: HEADING_COLOR });
  sheet.y -= 2;
}

/** Height in points of a table's heading. */
const HEADING_HEIGHT = 17;

/**
 * Adds a table with its heading on each page.
 *
 * @param title - The heading of the table's section, which further pages of the table repeat.
 */
export function addTable(sheet: Sheet, title: string, columns: readonly Column[], rows: readonly Cell[][]): void {
  const heightOf = (cells: readonly Cell[]) => sheet.rowHeight(columns, cells, ROW_SIZE);
  // Start a new page if the heading and the first row don't fit.
  if (rows.length === 0 || sheet.y - HEADING_HEIGHT - heightOf(rows[0]!) < CONTENT_BOTTOM) sheet.nextPage();
  sheet.heading(columns);
  for (const [index, cells] of rows.entries()) {
    if (sheet.y - heightOf(cells) < CONTENT_BOTTOM) {
      sheet.nextPage();
      sheet.text(`${title} (continued)`, { size: TEXT_SIZE, style: "bold", color: HEADING_COLOR });
      sheet.y -= 2;
      sheet.heading(columns);
    }
    sheet.row(columns, cells, { size: ROW_SIZE, striped: index % 2 === 1 });
  }
  sheet.y -= 4;
}

/** Returns a cell with these paragraphs. */
export const cell = (...paragraphs: string[]): Cell => ({ paragraphs });
/** Returns a cell with a number. */
export const number = (value: number, color?: Cell["color"]): Cell => ({
  paragraphs: [String(value)],
  ...(color && { color }),
});

export const severityCell = (severity: Severity): Cell =>
  severity === "critical" ? { paragraphs: [severity], color: ALARM_COLOR } : cell(severity);

/** Returns a cell with the text of a control's status, in the color of the status. */
export const statusCell = (status: string, text: string): Cell => {
  const color = status === "fail" ? ALARM_COLOR : status === "pass" ? GOOD_COLOR : undefined;
  return { paragraphs: [text], ...(color && { color }) };
};

/** Widths are in points and add up to the width of a landscape A4 page without its margins. */
const EVIDENCE_COLUMNS: Column[] = [
  { title: "Resource", width: 245 },
  { title: "Owner", width: 110 },
  { title: "Evidence", width: 275 },
  { title: "Since (UTC)", width: 85 },
  { title: "Exempted", width: 54.89 },
];

/** Adds a line for each violation: resource, owner, evidence, time. */
export function addEvidenceTable(sheet: Sheet, title: string, violations: readonly Violation[]): void {
  addTable(
    sheet,
    title,
    EVIDENCE_COLUMNS,
    violations.map(({ resourceId, subscriptionId, owner, evidence, firstSeenAt, exempted }) => [
      cell(resourceId, ...(subscriptionId === null ? [] : [`subscription ${subscriptionId}`])),
      cell(owner ?? "none named"),
      cell(evidence),
      cell(instantText(firstSeenAt)),
      cell(exempted ? "yes" : "no"),
    ]),
  );
}
