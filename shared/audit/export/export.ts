import { Problem } from "../../platform/http/problem.ts";
import { chainState, type ReadingDependencies } from "../chain/chain-state.ts";
import type { AuditEntry } from "../entry.ts";
import { INTERVAL_MS, intervalOf } from "../interval.ts";
import { type AuditQuery, queryName, rejectOtherQuery } from "../list.ts";
import { firstInterval } from "../seal/first-interval.ts";
import { auditCsv } from "./csv.ts";
import { type Cursor, readCursor, signCursor } from "./cursor.ts";
import { matchesFilter, type Position, readEntryPages } from "./entry-pages.ts";
import { createJsonPart } from "./json.ts";
import type { PartWriter } from "./part.ts";
import { createSink } from "./sink.ts";

/**
 * Maximum size of one response, because the platform collects a response in memory. With these limits an export of 250,000
 * entries stays below 300 MB resident (BENCHMARKS.md).
 */
export const PART_LIMITS = { entries: 25_000, bytes: 4 * 1024 * 1024 };
/** Maximum number of entries of a PDF. A longer document would not be readable. */
export const MAX_PDF_ENTRIES = 5_000;

export type ExportFormat = "json" | "csv" | "pdf";

/** A request for one part of an export. */
export interface ExportRequest {
  format: ExportFormat;
  query: AuditQuery;
  cursor: string | undefined;
  /** True if the client accepts gzip. */
  gzip: boolean;
}

/** One part of an export as a file. */
export interface ExportPart {
  mediaType: string;
  data: Uint8Array;
  gzipped: boolean;
  fileName: string;
  /** The `cursor` parameter of the next part. */
  nextCursor: string | null;
}

/** A part of an export with the numbers that the audit log records about it. */
export interface CreatedPart extends ExportPart {
  /** 1 for the first part. */
  part: number;
  /** Number of entries in this and all earlier parts. Undefined if the cursor was not signed by this service. */
  entries: number | undefined;
  /** The export id of the first part. */
  exportId: string;
}

/**
 * Returns one part of an export, oldest entry first. The content comes from the rows of the entries, not from the index. Every
 * part is a valid file. Following `nextCursor` returns every entry of the period once. Memory is limited by the part's size.
 *
 * @param exportId - Id of the export, if this is its first part.
 * @throws {Problem} invalidCursor; invalidRequest for a PDF over its limit.
 */
export async function exportPart(
  deps: ReadingDependencies & { unicodeFont?: string | undefined },
  request: ExportRequest,
  exportId: string,
  limits: { entries: number; bytes: number } = PART_LIMITS,
): Promise<CreatedPart> {
  const { tables, clock, trust, unicodeFont } = deps;
  const { format, query } = request;
  const state = await chainState(deps);
  const cursor = request.cursor === undefined ? undefined : readCursor(request.cursor, state.keys);
  if (cursor) rejectOtherQuery(cursor.query, query);
  if (cursor && format === "pdf") throw new Problem("invalidCursor", "A PDF has only one part. Send no cursor.");

  const keptFrom = state.keptFrom ?? (await firstInterval(tables, clock));
  // Without `end_date`, an export ends at the time of its first part, also in later parts.
  const end = Math.min(cursor?.end ?? query.end?.getTime() ?? Number.POSITIVE_INFINITY, horizon());
  // Without any entry, `keptFrom` is undefined, and the period is empty.
  const start = Math.min(end, Math.max(query.start?.getTime() ?? 0, keptFrom ?? end));
  if (cursor && !(cursor.interval >= intervalOf(start) && cursor.interval < end)) {
    throw new Problem(
      "invalidCursor",
      "The cursor is outside the export's period. Start the export again without a cursor.",
    );
  }
  const part = cursor?.part ?? 1;
  const partDetails = { part, exportId: cursor?.exportId ?? exportId };
  const fileName = `audit-${day(start)}-${day(Math.max(start, end - 1))}${part === 1 ? "" : `-part${part}`}.${format}`;
  const readPages = () => readEntryPages(tables, { start, end }, cursor);

  if (format === "pdf") {
    const entries = await pdfEntries(readPages(), query);
    const { pdfOf } = await import("./pdf.ts");
    const period = { start: query.start ?? new Date(start), end: query.end ?? new Date(end) };
    const data = await pdfOf(deps, entries, { query, ...period }, unicodeFont);
    return {
      ...partDetails,
      entries: entries.length,
      mediaType: "application/pdf",
      data,
      gzipped: false,
      fileName,
      nextCursor: null,
    };
  }

  const sink = createSink(request.gzip);
  const writer =
    format === "csv"
      ? createCsvPart(sink.write)
      : createJsonPart(deps, { query, start, end, state, after: cursor, write: sink.write });
  await writer.begin();
  /** Number of rows read, including those that the filters exclude, because reading takes most of the time. */
  let rowsRead = 0;
  let entries = 0;
  /** Position of the last row of this part. */
  let last: Position | undefined;
  let more = false;
  for await (const page of readPages()) {
    const remaining = sink.bytes < limits.bytes ? limits.entries - rowsRead : 0;
    const rows = page.slice(0, remaining);
    rowsRead += rows.length;
    const lastTaken = rows.at(-1);
    if (lastTaken) last = { interval: lastTaken.row.interval, rowKey: lastTaken.row.rowKey };
    const matching = rows.filter(({ entry }) => entry === undefined || matchesFilter(entry, query));
    entries += matching.filter(({ entry }) => entry !== undefined).length;
    await writer.write(matching);
    if (rows.length < page.length) {
      more = true;
      break;
    }
  }
  const entriesBefore = cursor ? cursor.entries : 0;
  const total = entriesBefore === undefined ? undefined : entriesBefore + entries;
  const next = more && last ? signCursor(nextCursor(last, total), trust.signer) : null;
  await writer.end(next === null ? undefined : last, next);
  return {
    ...partDetails,
    entries: total,
    mediaType: format === "csv" ? "text/csv; charset=utf-8; header=present" : "application/json",
    data: await sink.end(),
    gzipped: request.gzip,
    fileName,
    nextCursor: next,
  };

  function nextCursor(last: Position, entries: number | undefined): Cursor {
    return { query: queryName(query), part: part + 1, end, exportId: partDetails.exportId, entries, ...last };
  }

  /** Returns the time before which all entries are: now, or the end of the last sealed interval if a clock was ahead. */
  function horizon(): number {
    return Math.max(clock.now().getTime() + 1, state.end ? state.end.interval + INTERVAL_MS : 0);
  }
}

/** Returns the matching entries. @throws {Problem} invalidRequest if they are more than a PDF may contain. */
async function pdfEntries(pages: ReturnType<typeof readEntryPages>, query: AuditQuery): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = [];
  for await (const page of pages) {
    for (const { entry } of page) if (entry && matchesFilter(entry, query)) entries.push(entry);
    if (entries.length > MAX_PDF_ENTRIES) {
      const detail = `A PDF contains at most ${MAX_PDF_ENTRIES} entries, and this period has more. Choose a shorter period or more filters, or format=csv or format=json, which have no limit.`;
      throw new Problem("invalidRequest", detail, { errors: [{ path: "query.format", message: detail }] });
    }
  }
  return entries;
}

const day = (timeMs: number): string => new Date(timeMs).toISOString().slice(0, 10);

function createCsvPart(write: (text: string) => Promise<void>): PartWriter {
  return {
    begin: () => write(auditCsv.header()),
    write: (rows) => write(auditCsv.rows(rows.flatMap(({ entry }) => entry ?? []))),
    // Each line starts with the line break that ends the previous one, so the last line still lacks its own.
    end: () => write("\r\n"),
  };
}
