import { readFile } from "node:fs/promises";
import { PDFDocument, type PDFPage, rgb } from "pdf-lib";
import { canonicalJson } from "./canonical.ts";
import type { AuditEntry } from "./entry.ts";
import { INK, Typesetter } from "./pdf/typesetter.ts";
import { openTypeFromWoff } from "./pdf/woff.ts";

/** A4 landscape, in points. */
const PAGE = { width: 841.89, height: 595.28 };
const MARGIN = 36;
const TABLE_BOTTOM = MARGIN + 18;
const SIZE = 7.5;
const LINE = 9.4;
const PADDING = 4;

/** Longest text of the last column, in characters: the other formats have it in full. */
const MAX_CHANGE_CHARACTERS = 500;

const MUTED = rgb(0.4, 0.43, 0.47);
const RULE = rgb(0.8, 0.82, 0.85);
const HEADING = rgb(0.16, 0.24, 0.36);
const STRIPE = rgb(0.962, 0.968, 0.976);
const WHITE = rgb(1, 1, 1);
const ALARM = rgb(0.7, 0.12, 0.1);

interface Column {
  title: string;
  width: number;
  /** Each begins on a line of its own. */
  paragraphs(entry: AuditEntry): string[];
}

const COLUMNS: Column[] = [
  { title: "Time (UTC)", width: 98, paragraphs: ({ occurredAt }) => [occurredAt.replace("T", " ").replace("Z", "")] },
  { title: "Event", width: 84, paragraphs: ({ eventType }) => [eventType] },
  {
    title: "Outcome",
    width: 48,
    paragraphs: ({ outcome, count }) => [outcome, ...(count > 1 ? [`${count} times`] : [])],
  },
  { title: "Actor", width: 86, paragraphs: ({ actor }) => [actor] },
  { title: "Address", width: 68, paragraphs: ({ address }) => [address ?? ""] },
  { title: "Target", width: 130, paragraphs: ({ target }) => (target ? [`${target.type} ${target.id}`] : []) },
  { title: "What changed, and details", width: 170, paragraphs: changes },
  { title: "Request id", width: 85.89, paragraphs: ({ requestId }) => [requestId] },
];

export interface PdfAbout {
  start: Date;
  /** Exclusive. */
  end: Date;
  actor: string | undefined;
  eventType: string | undefined;
  createdAt: Date;
}

/** Where a page's table ends, and the page. */
interface Cursor {
  page: PDFPage;
  y: number;
}

/** The entries as a document to file: title, period, filters, a table with its heading on every page, page numbers. */
export async function createPdf(entries: AuditEntry[], about: PdfAbout, fontFile: string): Promise<Uint8Array> {
  const document = await PDFDocument.create();
  const set = await Typesetter.create(document, openTypeFromWoff(await readFile(fontFile)));
  document.setTitle("Audit log", { showInWindowTitleBar: true });
  document.setLanguage("en");
  document.setCreator("Credential and Secret Lifecycle Service");
  document.setCreationDate(about.createdAt);
  document.setModificationDate(about.createdAt);

  let cursor = tableHeading(set, title(document, set, about, entries.length));
  for (const [index, entry] of entries.entries()) {
    const cells = COLUMNS.map(({ paragraphs, width }) =>
      paragraphs(entry).flatMap((text) => set.lines(text, "regular", SIZE, width - 2 * PADDING)),
    );
    const height = Math.max(...cells.map((lines) => lines.length)) * LINE + 2 * PADDING - 2;
    if (cursor.y - height < TABLE_BOTTOM) {
      cursor = tableHeading(set, { page: newPage(document), y: PAGE.height - MARGIN });
    }
    if (index % 2 === 1) fill(cursor.page, cursor.y - height, height, STRIPE);
    let x = MARGIN;
    for (const [column, lines] of cells.entries()) {
      const color = COLUMNS[column]!.title === "Outcome" && isAlarming(entry) ? ALARM : INK;
      for (const [line, text] of lines.entries()) {
        set.draw(cursor.page, text, {
          x: x + PADDING,
          y: cursor.y - PADDING - SIZE * 0.8 - line * LINE,
          size: SIZE,
          color,
        });
      }
      x += COLUMNS[column]!.width;
    }
    cursor.y -= height;
    rule(cursor.page, cursor.y);
  }
  if (entries.length === 0) {
    set.draw(cursor.page, "There are no entries in this period.", {
      x: MARGIN + PADDING,
      y: cursor.y - 16,
      size: 9,
      color: MUTED,
    });
  }
  numberPages(document, set, about);
  return await document.save();
}

const isAlarming = ({ outcome }: AuditEntry): boolean => outcome === "failure" || outcome === "refused";

function changes({ before, after, details }: AuditEntry): string[] {
  const parts = [
    ["before", before],
    ["after", after],
    ["details", details],
  ].flatMap(([name, value]) => (value === undefined ? [] : `${name}: ${readable(value)}`));
  const text = parts.join("\n"); // JSON has none
  const shown =
    text.length <= MAX_CHANGE_CHARACTERS
      ? text
      : `${text.slice(0, MAX_CHANGE_CHARACTERS)}… (shortened; in full in the JSON export)`;
  return shown.split("\n");
}

/** JSON with room to break lines. */
const readable = (value: unknown): string => canonicalJson(value).replaceAll(',"', ', "').replaceAll('":', '": ');

function title(document: PDFDocument, set: Typesetter, about: PdfAbout, count: number): Cursor {
  const page = newPage(document);
  let y = PAGE.height - MARGIN - 14;
  set.draw(page, "Audit log", { x: MARGIN, y, size: 18, style: "bold", color: HEADING });
  y -= 20;
  const lines: [string, string][] = [
    ["Service", "Credential and Secret Lifecycle Service"],
    ["Period", period(about)],
    ["Filters", filters(about)],
    ["Entries", `${count}, oldest first`],
    ["Created", instant(about.createdAt)],
  ];
  for (const [name, value] of lines) {
    set.draw(page, name, { x: MARGIN, y, size: 9, style: "bold", color: MUTED });
    for (const line of set.lines(value, "regular", 9, PAGE.width - 2 * MARGIN - 60)) {
      set.draw(page, line, { x: MARGIN + 60, y, size: 9 });
      y -= 12.5;
    }
  }
  return { page, y: y - 4 };
}

function tableHeading(set: Typesetter, { page, y }: Cursor): Cursor {
  const height = 17;
  fill(page, y - height, height, HEADING);
  let x = MARGIN;
  for (const { title, width } of COLUMNS) {
    set.draw(page, title, { x: x + PADDING, y: y - 11.5, size: 8, style: "bold", color: WHITE });
    x += width;
  }
  return { page, y: y - height };
}

function numberPages(document: PDFDocument, set: Typesetter, about: PdfAbout): void {
  const pages = document.getPages();
  for (const [index, page] of pages.entries()) {
    const y = MARGIN - 6;
    rule(page, MARGIN + 8);
    set.draw(page, `Audit log, ${period(about)}`, { x: MARGIN, y, size: 8, color: MUTED });
    const number = `Page ${index + 1} of ${pages.length}`;
    set.draw(page, number, { x: PAGE.width - MARGIN - set.width(number, "regular", 8), y, size: 8, color: MUTED });
  }
}

const newPage = (document: PDFDocument): PDFPage => document.addPage([PAGE.width, PAGE.height]);

const fill = (page: PDFPage, y: number, height: number, color: ReturnType<typeof rgb>): void =>
  page.drawRectangle({ x: MARGIN, y, width: PAGE.width - 2 * MARGIN, height, color });

const rule = (page: PDFPage, y: number): void =>
  page.drawLine({
    start: { x: MARGIN, y },
    end: { x: PAGE.width - MARGIN, y },
    thickness: 0.4,
    color: RULE,
  });

const instant = (date: Date): string => `${date.toISOString().slice(0, 19).replace("T", " ")} UTC`;

const period = ({ start, end }: PdfAbout): string => `${instant(start)} to ${instant(end)} (exclusive)`;

function filters({ actor, eventType }: PdfAbout): string {
  const parts = [actor === undefined ? [] : `actor ${actor}`, eventType === undefined ? [] : `event type ${eventType}`];
  return parts.flat().join(", ") || "none";
}
