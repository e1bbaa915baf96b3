import { createDocument } from "../../platform/pdf/document.ts";
import {
  ALARM_COLOR,
  type Cell,
  CONTENT_BOTTOM,
  type Column,
  MARGIN,
  MUTED_COLOR,
  type Sheet,
} from "../../platform/pdf/sheet.ts";
import type { Verification } from "../api.ts";
import type { ReadingDependencies } from "../chain/chain-state.ts";
import type { AuditEntry } from "../entry.ts";
import type { AuditQuery } from "../list.ts";
import { verifyLog } from "../verify/verify.ts";
import { eventsOf, type PdfEvent } from "./pdf-events.ts";
import { instant, type PdfAbout, periodText, writeSummary } from "./pdf-summary.ts";

/**
 * Maximum number of verification responses for one document. Each covers up to 20,000 intervals, so together more than a year.
 */
const MAX_VERIFICATIONS = 3;
/** Font size of the table of events, in points. */
const TABLE_FONT_SIZE = 7;

/** Creates the PDF document of an export, including a new verification of its period. */
export async function pdfOf(
  deps: ReadingDependencies,
  entries: AuditEntry[],
  { query, start, end }: { query: AuditQuery; start: Date; end: Date },
  unicodeFont: string | undefined,
): Promise<Uint8Array> {
  const verified: Verification[] = [];
  let cursor: string | undefined;
  do {
    const part = await verifyLog(deps, { start, end, cursor });
    verified.push(part);
    cursor = part.nextCursor ?? undefined;
  } while (cursor !== undefined && verified.length < MAX_VERIFICATIONS);
  const { actor, eventType } = query;
  return await createPdf(entries, { start, end, actor, eventType, createdAt: deps.clock.now(), verified }, unicodeFont);
}

/** Creates a PDF document: a summary with the verification, then a line for each event. */
export async function createPdf(
  entries: AuditEntry[],
  about: PdfAbout,
  unicodeFont: string | undefined,
): Promise<Uint8Array> {
  const documentInfo = { title: "Audit log", createdAt: about.createdAt, unicodeFont };
  return await createDocument(documentInfo, `Audit log, ${periodText(about)}`, (sheet) => {
    const events = eventsOf(entries);
    writeSummary(sheet, entries.length, events, about);
    if (events.length > 0) writeEvents(sheet, events);
  });
}

/** The columns of the table of events. Their widths, in points, add up to that of a landscape A4 page without its margins. */
const COLUMNS: Column[] = [
  { title: "Time (UTC)", width: 80 },
  { title: "Actor, address", width: 122 },
  { title: "Event", width: 88 },
  { title: "Target", width: 146 },
  { title: "Change and details", width: 280 },
  { title: "Outcome", width: 53.89 },
];

function writeEvents(sheet: Sheet, events: readonly PdfEvent[]): void {
  sheet.nextPage();
  sheet.heading(COLUMNS);
  for (const [index, event] of events.entries()) {
    const cells = cellsOf(event);
    if (sheet.y - sheet.rowHeight(COLUMNS, cells, TABLE_FONT_SIZE) < CONTENT_BOTTOM) {
      sheet.nextPage();
      sheet.heading(COLUMNS);
    }
    sheet.row(COLUMNS, cells, { size: TABLE_FONT_SIZE, striped: index % 2 === 1 });
  }
  sheet.y -= 6;
  sheet.text("Intent and outcome of one request are shown in one row, with the time of the outcome.", {
    size: TABLE_FONT_SIZE,
    color: MUTED_COLOR,
    x: MARGIN,
  });
}

function cellsOf({
  listedAt,
  happenedAt,
  startedAt,
  eventType,
  actor,
  address,
  target,
  outcome,
  count,
  changes,
}: PdfEvent): Cell[] {
  const startedText =
    startedAt !== undefined && instant(startedAt) !== instant(listedAt)
      ? [`started ${instant(startedAt).slice(11)}`]
      : [];
  const happened = happenedAt === undefined ? [] : [`happened ${instant(happenedAt)}`];
  const isSuccess = outcome === "success";
  return [
    { paragraphs: [instant(listedAt), ...happened, ...startedText] },
    { paragraphs: [address === undefined ? actor : `${actor}, ${address}`] },
    { paragraphs: [eventType] },
    { paragraphs: [target] },
    { paragraphs: [changes] },
    { paragraphs: [count > 1 ? `${outcome} ×${count}` : outcome], ...(!isSuccess && { color: ALARM_COLOR }) },
  ];
}
