import * as z from "zod";
import { decodeCursor, encodeCursor } from "../http/paging.ts";
import { Problem } from "../http/problem.ts";
import { chainEnd } from "./chain.ts";
import type { AuditEntry } from "./entry.ts";
import { csvHeader, csvRows } from "./export-csv.ts";
import { createJsonPart } from "./export-json.ts";
import type { ExportDependencies, PartWriter } from "./export-part.ts";
import { type Position, passes, walkEntries } from "./export-walk.ts";
import { INTERVAL_MS, intervalFrom, intervalOf } from "./interval.ts";
import { type AuditQuery, queryName, refuseOtherQuery } from "./list.ts";
import { purgedTo, readPurges } from "./purge-record.ts";
import { FIRST_PARTITION, FirstRow } from "./rows.ts";
import { createSink } from "./sink.ts";

/**
 * What one answer holds at most; the platform collects an answer in memory before it sends it. Under these an export of
 * 250,000 entries stays below 300 MB resident (BENCHMARKS.md).
 */
export const PART_LIMITS = { entries: 25_000, bytes: 4 * 1024 * 1024 };
/** A longer PDF is nothing anyone reads. */
export const MAX_PDF_ENTRIES = 5_000;

export type ExportFormat = "json" | "csv" | "pdf";

export interface ExportRequest {
  format: ExportFormat;
  query: AuditQuery;
  cursor: string | undefined;
  /** Whether the caller takes gzip. */
  gzip: boolean;
}

export interface ExportPart {
  mediaType: string;
  data: Uint8Array;
  gzipped: boolean;
  fileName: string;
  /** Send it as cursor for the next part. */
  nextCursor: string | null;
}

const Cursor = z.object({
  query: z.string(),
  part: z.int().min(2),
  end: z.int(),
  interval: z.int(),
  rowKey: z.string(),
});

/**
 * One part of an export, oldest entry first, from the primary rows alone. Every part is a valid file by itself; walking
 * them by `nextCursor` yields every entry of the period once. Memory is bounded by the part, not by the log.
 */
export async function exportPart(
  deps: ExportDependencies & { unicodeFont(): string },
  request: ExportRequest,
  limits: { entries: number; bytes: number } = PART_LIMITS,
): Promise<ExportPart> {
  const { tables, clock, trust, unicodeFont } = deps;
  const { format, query } = request;
  const cursor = request.cursor === undefined ? undefined : decodeCursor(Cursor, request.cursor);
  if (cursor) refuseOtherQuery(cursor.query, query);
  if (cursor && format === "pdf") throw new Problem("invalidCursor", "A PDF comes in one part. Send no cursor.");

  const purges = await readPurges(tables, await trust.keys());
  const first = await tables.get(FirstRow, FIRST_PARTITION, FIRST_PARTITION);
  const sealedFrom = purgedTo(purges) ?? (first && intervalFrom(first.interval));
  // An export without an end ends now; its later parts end with the first one.
  const end = Math.min(cursor?.end ?? query.end?.getTime() ?? Number.POSITIVE_INFINITY, await horizon());
  const start = Math.min(end, Math.max(query.start?.getTime() ?? 0, sealedFrom ?? end));
  if (cursor && !(cursor.interval >= intervalOf(start) && cursor.interval < end)) {
    throw new Problem("invalidCursor", "The cursor leads out of the export's period. Start the export again.");
  }
  const part = cursor?.part ?? 1;
  const fileName = `audit-${day(start)}-${day(Math.max(start, end - 1))}${part === 1 ? "" : `-part${part}`}.${format}`;
  const walk = () => walkEntries(tables, { start, end }, cursor);
  const nextCursor = (last: Position) =>
    encodeCursor({ query: queryName(query), part: part + 1, end, ...last } satisfies z.infer<typeof Cursor>);

  if (format === "pdf")
    return { mediaType: "application/pdf", data: await pdf(), gzipped: false, fileName, nextCursor: null };

  const sink = createSink(request.gzip);
  const writer =
    format === "csv"
      ? createCsvPart(sink.write)
      : createJsonPart(deps, { query, start, end, sealedFrom, purges, after: cursor, write: sink.write });
  await writer.begin();
  let walked = 0;
  let last: Position | undefined;
  let more = false;
  for await (const page of walk()) {
    const room = sink.bytes < limits.bytes ? limits.entries - walked : 0;
    const taken = page.slice(0, room);
    walked += taken.length;
    const end = taken.at(-1);
    if (end) last = { interval: end.row.interval, rowKey: end.row.rowKey };
    await writer.write(taken.filter(({ entry }) => entry && passes(entry, query)));
    if (taken.length < page.length) {
      more = true;
      break;
    }
  }
  const next = more && last ? nextCursor(last) : null;
  await writer.end(next === null ? undefined : last, next);
  return {
    mediaType: format === "csv" ? "text/csv; charset=utf-8; header=present" : "application/json",
    data: await sink.end(),
    gzipped: request.gzip,
    fileName,
    nextCursor: next,
  };

  /** The end of the newest interval there can be entries in: now, or the end of the chain if a clock was ahead. */
  async function horizon(): Promise<number> {
    const newest = await chainEnd(tables, await trust.keys(), clock);
    return Math.max(clock.now().getTime() + 1, newest ? newest.interval + INTERVAL_MS : 0);
  }

  async function pdf(): Promise<Uint8Array> {
    const entries: AuditEntry[] = [];
    for await (const page of walk()) {
      for (const { entry } of page) if (entry && passes(entry, query)) entries.push(entry);
      if (entries.length > MAX_PDF_ENTRIES) {
        const detail = `A PDF holds at most ${MAX_PDF_ENTRIES} entries and this period has more. Choose a shorter period or more filters, or format=csv or format=json, which have no limit.`;
        throw new Problem("invalidRequest", detail, { errors: [{ path: "query.format", message: detail }] });
      }
    }
    const { createPdf } = await import("./export-pdf.ts");
    const period = { start: query.start ?? new Date(start), end: query.end ?? new Date(end) };
    return await createPdf(
      entries,
      { ...period, actor: query.actor, eventType: query.eventType, createdAt: clock.now() },
      unicodeFont(),
    );
  }
}

const day = (at: number): string => new Date(at).toISOString().slice(0, 10);

function createCsvPart(write: (text: string) => Promise<void>): PartWriter {
  return {
    begin: () => write(csvHeader()),
    write: (rows) => write(csvRows(rows.flatMap(({ entry }) => entry ?? []))),
    end: () => write("\r\n"),
  };
}
