import { type PDFDocument, type PDFPage, type RGB, rgb } from "pdf-lib";
import { INK, type Style, type Typesetter } from "./typesetter.ts";

/** A4 landscape, in points. */
export const PAGE = { width: 841.89, height: 595.28 };
export const MARGIN = 36;
/** Lower edge of a page's content. */
export const CONTENT_BOTTOM = MARGIN + 18;
export const PADDING = 4;
const FACT_SIZE = 9;
const FACT_INDENT = 90;
const LABEL_SIZE = 7.5;

export const MUTED_COLOR = rgb(0.4, 0.43, 0.47);
export const HEADING_COLOR = rgb(0.16, 0.24, 0.36);
export const STRIPE_COLOR = rgb(0.962, 0.968, 0.976);
export const ALARM_COLOR = rgb(0.7, 0.12, 0.1);
export const GOOD_COLOR = rgb(0.08, 0.42, 0.24);
const RULE_COLOR = rgb(0.8, 0.82, 0.85);
const WHITE = rgb(1, 1, 1);

export interface Column {
  title: string;
  width: number;
  /** Right-aligned, for numbers. */
  right?: boolean;
}

/** A cell of a table. Each paragraph starts on a new line. */
export interface Cell {
  paragraphs: string[];
  color?: RGB;
}

/** Writes content from top to bottom and continues on a new page when a page is full. */
export class Sheet {
  page: PDFPage;
  /** Upper edge of the free space, in points from the bottom of the page, as PDF counts. */
  y: number;
  private readonly document: PDFDocument;
  /** Breaks and draws text. */
  private readonly typesetter: Typesetter;

  constructor(document: PDFDocument, typesetter: Typesetter) {
    this.document = document;
    this.typesetter = typesetter;
    this.page = newPage(document);
    this.y = PAGE.height - MARGIN;
  }

  nextPage(): void {
    this.page = newPage(this.document);
    this.y = PAGE.height - MARGIN;
  }

  /** Writes lines of text from `x`, at most `width` points wide. */
  text(text: string, options: { x?: number; width?: number; size: number; style?: Style; color?: RGB }): void {
    const { x = MARGIN, width = PAGE.width - MARGIN - x, size, style = "regular", color = INK } = options;
    for (const line of this.typesetter.lines(text, style, size, width)) {
      if (this.y - size < CONTENT_BOTTOM) this.nextPage();
      this.typesetter.draw(this.page, line, { x, y: this.y - size, size, style, color });
      this.y -= size * 1.4;
    }
  }

  /** Writes a name and its value next to it. */
  fact(name: string, value: string, color?: RGB): void {
    if (this.y - FACT_SIZE < CONTENT_BOTTOM) this.nextPage();
    const y = this.y;
    this.text(name, { size: FACT_SIZE, style: "bold", color: MUTED_COLOR });
    this.y = y;
    this.text(value, { size: FACT_SIZE, x: MARGIN + FACT_INDENT, ...(color && { color }) });
  }

  /** Writes a short text anywhere on the page, such as next to a chart. */
  label(text: string, position: { x: number; y: number }): void {
    this.typesetter.draw(this.page, this.typesetter.printable(text), {
      ...position,
      size: LABEL_SIZE,
      color: MUTED_COLOR,
    });
  }

  /** Draws the header row of a table. */
  heading(columns: readonly Column[], x = MARGIN): void {
    const height = 17;
    const width = columns.reduce((sum, column) => sum + column.width, 0);
    this.page.drawRectangle({ x, y: this.y - height, width, height, color: HEADING_COLOR });
    let left = x;
    for (const { title, width, right } of columns) {
      const textX = right ? left + width - PADDING - this.typesetter.width(title, "bold", 8) : left + PADDING;
      this.typesetter.draw(this.page, title, { x: textX, y: this.y - 11.5, size: 8, style: "bold", color: WHITE });
      left += width;
    }
    this.y -= height;
  }

  /** Returns the height of a row in points. */
  rowHeight(columns: readonly Column[], cells: readonly Cell[], size: number): number {
    const lines = columns.map(({ width }, index) => this.linesOf(cells[index]!, size, width).length);
    return Math.max(...lines) * size * 1.25 + 2 * PADDING - 2;
  }

  /** Draws a row of a table, with a line below. The caller checks that the page has room for `rowHeight`. */
  row(
    columns: readonly Column[],
    cells: readonly Cell[],
    options: { size: number; x?: number; striped?: boolean },
  ): void {
    const { size, x = MARGIN, striped = false } = options;
    const height = this.rowHeight(columns, cells, size);
    const width = columns.reduce((sum, column) => sum + column.width, 0);
    if (striped) this.page.drawRectangle({ x, y: this.y - height, width, height, color: STRIPE_COLOR });
    let left = x;
    for (const [index, { width, right }] of columns.entries()) {
      const { color = INK } = cells[index]!;
      for (const [line, text] of this.linesOf(cells[index]!, size, width).entries()) {
        const textX = right ? left + width - PADDING - this.typesetter.width(text, "regular", size) : left + PADDING;
        this.typesetter.draw(this.page, text, {
          x: textX,
          y: this.y - PADDING - size * 0.8 - line * size * 1.25,
          size,
          color,
        });
      }
      left += width;
    }
    this.y -= height;
    this.rule(this.y, x, width);
  }

  /** Draws a horizontal line. */
  rule(y: number, x = MARGIN, width = PAGE.width - 2 * MARGIN): void {
    this.page.drawLine({ start: { x, y }, end: { x: x + width, y }, thickness: 0.4, color: RULE_COLOR });
  }

  private linesOf({ paragraphs }: Cell, size: number, width: number): string[] {
    return paragraphs.flatMap((text) => this.typesetter.lines(text, "regular", size, width - 2 * PADDING));
  }
}

/** Adds the footer and the page number to every page. */
export function numberPages(document: PDFDocument, typesetter: Typesetter, left: string): void {
  const pages = document.getPages();
  for (const [index, page] of pages.entries()) {
    const y = MARGIN - 6;
    const line = { start: { x: MARGIN, y: MARGIN + 8 }, end: { x: PAGE.width - MARGIN, y: MARGIN + 8 } };
    page.drawLine({ ...line, thickness: 0.4, color: RULE_COLOR });
    typesetter.draw(page, left, { x: MARGIN, y, size: 8, color: MUTED_COLOR });
    const number = `Page ${index + 1} of ${pages.length}`;
    typesetter.draw(page, number, {
      x: PAGE.width - MARGIN - typesetter.width(number, "regular", 8),
      y,
      size: 8,
      color: MUTED_COLOR,
    });
  }
}

const newPage = (document: PDFDocument): PDFPage => document.addPage([PAGE.width, PAGE.height]);
