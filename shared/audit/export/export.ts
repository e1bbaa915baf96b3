import { Problem } from "../../platform/http/problem.ts";
import { chainState, type ReadingDependencies } from "../chain/chain-state.ts";
import type { AuditEntry } from "../entry.ts";
import { INTERVAL_MS, intervalOf } from "../interval.ts";
import { type AuditQuery, queryName, refuseOtherQuery } from "../list.ts";
import { firstInterval } from "../seal/first-interval.ts";
import { auditCsv } from "./csv.ts";
import { type Cursor, readCursor, signCursor } from "./cursor.ts";
import { matchesFilter, type Position, walkEntries } from "./entry-pages.ts";
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

/** Details of a part beside its file. */
export interface MadePart extends ExportPart {
  /** 1 for the first part. */
  part: number;
  /** Number of entries in this and all earlier parts. Undefined if the cursor was not signed by this service. */
  entries: number | undefined;
  /** The export id of the first part. */
  exportId: string;
}

/**
 * Returns one part of an export, oldest entry first, from the primary rows only. Every part is a valid file. Following
 * `nextCursor` yields every entry of the period once. Memory is limited by the part's size, not by the log.
 *
 * @param exportId - Id of the export, if this is its first part.
 * @throws {Problem} invalidCursor; invalidRequest for a PDF over its limit.
 */
export async function exportPart(
  deps: ReadingDependencies & { unicodeFont?: string | undefined },
  request: ExportRequest,
  exportId: string,
  limits: { entries: number; bytes: number } = PART_LIMITS,
): Promise<MadePart> {
  const { tables, clock, trust, unicodeFont } = deps;
  const { format, query } = request;
  const state = await chainState(deps);
  const cursor = request.cursor === undefined ? undefined : readCursor(request.cursor, state.keys);
  if (cursor) refuseOtherQuery(cursor.query, query);
  if (cursor && format === "pdf") throw new Problem("invalidCursor", "A PDF comes in one part. Send no cursor.");

  const keptFrom = state.keptFrom ?? (await firstInterval(tables, clock));
  // Without `end_date`, an export ends at the time of its first part, also in later parts.
  const end = Math.min(cursor?.end ?? query.end?.getTime() ?? Number.POSITIVE_INFINITY, horizon());
  const start = Math.min(end, Math.max(query.start?.getTime() ?? 0, keptFrom ?? end));
  if (cursor && !(cursor.interval >= intervalOf(start) && cursor.interval < end)) {
    throw new Problem("invalidCursor", "The cursor leads out of the export's period. Start the export again.");
  }
  const part = cursor?.part ?? 1;
  const known = { part, exportId: cursor?.exportId ?? exportId };
  const fileName = `audit-${day(start)}-${day(Math.max(start, end - 1))}${part === 1 ? "" : `-part${part}`}.${format}`;
  const walk = () => walkEntries(tables, { start, end }, cursor);

  if (format === "pdf") {
    const entries = await pdfEntries(walk(), query);
    const { pdfOf } = await import("./pdf.ts");
    const period = { start: query.start ?? new Date(start), end: query.end ?? new Date(end) };
    const data = await pdfOf(deps, entries, { query, ...period }, unicodeFont);
    return {
      ...known,
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
  let walked = 0;
  let entries = 0;
  let last: Position | undefined;
  let more = false;
  for await (const page of walk()) {
    const remaining = sink.bytes < limits.bytes ? limits.entries - walked : 0;
    const taken = page.slice(0, remaining);
    walked += taken.length;
    const end = taken.at(-1);
    if (end) last = { interval: end.row.interval, rowKey: end.row.rowKey };
    const passing = taken.filter(({ entry }) => entry === undefined || matchesFilter(entry, query));
    entries += passing.filter(({ entry }) => entry !== undefined).length;
    await writer.write(passing);
    if (taken.length < page.length) {
      more = true;
      break;
    }
  }
  const before = cursor ? cursor.entries : 0;
  const total = before === undefined ? undefined : before + entries;
  const next = more && last ? signCursor(nextCursor(last, total), trust.signer) : null;
  await writer.end(next === null ? undefined : last, next);
  return {
    ...known,
    entries: total,
    mediaType: format === "csv" ? "text/csv; charset=utf-8; header=present" : "application/json",
    data: await sink.end(),
    gzipped: request.gzip,
    fileName,
    nextCursor: next,
  };

  function nextCursor(last: Position, entries: number | undefined): Cursor {
    return { query: queryName(query), part: part + 1, end, exportId: known.exportId, entries, ...last };
  }

  /** Returns the end of the newest interval that can contain entries: now, or the end of the chain if a clock was ahead. */
  function horizon(): number {
    return Math.max(clock.now().getTime() + 1, state.end ? state.end.interval + INTERVAL_MS : 0);
  }
}

/** @throws {Problem} invalidRequest for more entries than a PDF can hold. */
async function pdfEntries(pages: ReturnType<typeof walkEntries>, query: AuditQuery): Promise<AuditEntry[]> {
  const entries: AuditEntry[] = [];
  for await (const page of pages) {
    for (const { entry } of page) if (entry && matchesFilter(entry, query)) entries.push(entry);
    if (entries.length > MAX_PDF_ENTRIES) {
      const detail = `A PDF holds at most ${MAX_PDF_ENTRIES} entries and this period has more. Choose a shorter period or more filters, or format=csv or format=json, which have no limit.`;
      throw new Problem("invalidRequest", detail, { errors: [{ path: "query.format", message: detail }] });
    }
  }
  return entries;
}

const day = (at: number): string => new Date(at).toISOString().slice(0, 10);

function createCsvPart(write: (text: string) => Promise<void>): PartWriter {
  return {
    begin: () => write(auditCsv.header()),
    write: (rows) => write(auditCsv.rows(rows.flatMap(({ entry }) => entry ?? []))),
    end: () => write("\r\n"),
  };
}
