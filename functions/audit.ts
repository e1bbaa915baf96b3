import type * as z from "zod";
import {
  AuditEntryList,
  AuditExport,
  auditQuery,
  ExportQuery,
  FileQuery,
  ListQuery,
  ReportQuery,
  Verification,
  VerifyQuery,
} from "../shared/audit/api.ts";
import { auditCsv } from "../shared/audit/export/csv.ts";
import { type ExportPart, MAX_PDF_ENTRIES } from "../shared/audit/export/export.ts";
import { acceptsGzip, contentCodingHeaders } from "../shared/platform/http/compression.ts";
import type { RequestContext } from "../shared/platform/http/endpoint.ts";
import { pageRequest } from "../shared/platform/http/paging.ts";
import { content, ok, type Reply } from "../shared/platform/http/reply.ts";
import { endpoint, timer } from "./declare.ts";
import type { Services } from "./services.ts";

/*
 * Endpoints and the timer of the audit log. Every ten minutes, the timer seals new entries: it signs a digest of them, so that
 * later changes can be detected.
 */

const tag = "Audit";

const EXPORT_PARTS =
  'The number of entries is not limited. An export with more than 25,000 entries or 4 MiB is returned in parts, each a valid file; the header `Link: <…>; rel="next"` leads to the next part. Responses are compressed if `Accept-Encoding` contains gzip.';

const listAuditEntries = endpoint({
  name: "listAuditEntries",
  method: "GET",
  route: "audit/entries",
  summary: "List audit entries, newest first",
  description:
    "Returns every change, sign-in and rejected request. Reading the log is also recorded. All filters can be combined. Entries come from the audit log itself; the index only locates them, and index rows without a matching entry are reported in `findings`. GET /audit/verify checks that the list is complete and that no entry was changed.",
  tag,
  access: "auditor",
  tier: "core",
  query: ListQuery,
  example: { query: { event_type: "user.signedIn", limit: "10" } },
  responds: { 200: AuditEntryList },
  handle: async ({ query, caller, services }) =>
    ok(await services.audit.list(auditQuery(query), pageRequest(query), caller)),
});

const exportAudit = endpoint({
  name: "exportAudit",
  method: "GET",
  route: "audit/export",
  summary: "Export audit entries, oldest first",
  description: `${EXPORT_PARTS} In JSON, \`nextCursor\` also leads to the next part. The command \`verify-audit\` verifies JSON exports without access to the service. With \`format\`, returns the files of GET /audit/export/csv and GET /audit/export/pdf.`,
  tag,
  access: "auditor",
  tier: "core",
  query: ExportQuery,
  responds: { 200: { json: AuditExport, or: ["text/csv", "application/pdf"] } },
  handle: async (context) => await exportReply(context, context.query.format ?? "json", context.query),
});

const exportAuditCsv = endpoint({
  name: "exportAuditCsv",
  method: "GET",
  route: "audit/export/csv",
  summary: "Export audit entries as CSV, oldest first",
  description: EXPORT_PARTS,
  tag,
  access: "auditor",
  tier: "core",
  query: FileQuery,
  example: { query: { event_type: "user.signedIn" } },
  responds: {
    200: {
      description: "The export, or one part of a longer export.",
      mediaType: "text/csv",
      example: auditCsv.header(),
    },
  },
  handle: async (context) => await exportReply(context, "csv", context.query),
});

const exportAuditPdf = endpoint({
  name: "exportAuditPdf",
  method: "GET",
  route: "audit/export/pdf",
  summary: "Export audit entries as PDF, oldest first",
  description: `Up to ${MAX_PDF_ENTRIES.toLocaleString("en")} entries. For more, returns 400: choose a shorter period, add filters, or export CSV or JSON.`,
  tag,
  access: "auditor",
  tier: "core",
  query: ReportQuery,
  example: { query: { event_type: "user.signedIn" } },
  responds: { 200: { description: "The document.", mediaType: "application/pdf" } },
  handle: async (context) => await exportReply(context, "pdf", context.query),
});

/** The parts of a request that the export endpoints use. */
type ExportContext = Pick<
  RequestContext<Services, unknown, unknown, unknown>,
  "headers" | "url" | "caller" | "services"
>;

/** Returns one part of an export as a file. */
async function exportReply(
  { headers, url, caller, services }: ExportContext,
  format: "json" | "csv" | "pdf",
  { cursor, ...query }: z.output<typeof FileQuery>,
): Promise<Reply<never>> {
  const gzip = acceptsGzip(headers);
  const part = await services.audit.export({ format, query: auditQuery(query), cursor, gzip }, caller);
  return content(part.mediaType, part.data, exportHeaders(part, url));
}

function exportHeaders(part: ExportPart, url: URL): Record<string, string> {
  const headers: Record<string, string> = {
    "Content-Disposition": `attachment; filename="${part.fileName}"`,
    ...contentCodingHeaders(part.gzipped ? "gzip" : undefined),
  };
  if (part.nextCursor !== null) {
    const next = new URLSearchParams(url.searchParams);
    next.set("cursor", part.nextCursor);
    headers.Link = `<${url.pathname}?${next}>; rel="next"`;
  }
  return headers;
}

const verifyAudit = endpoint({
  name: "verifyAudit",
  method: "GET",
  route: "audit/verify",
  summary: "Verify the integrity of the audit log",
  description:
    "Entries are sealed every ten minutes. The verification compares every sealed entry of the period with its signed digest, and the index with the entries, and lists all differences. It does not trust storage alone: signatures and an anchor in the service's key vault determine where the log begins and ends and which keys signed it. A long period is verified in parts: continue with `nextCursor`.",
  tag,
  access: "auditor",
  tier: "core",
  query: VerifyQuery,
  responds: { 200: Verification },
  handle: async ({ query, caller, services }) => {
    const { start, end } = auditQuery(query);
    return ok(await services.audit.verify({ start, end, cursor: query.cursor }, caller));
  },
});

export const endpoints = [listAuditEntries, exportAudit, exportAuditCsv, exportAuditPdf, verifyAudit];

/** An interval can be sealed one minute after its end. The timer runs 30 seconds later. */
export const timers = [
  timer({
    name: "sealAudit",
    schedule: "30 1,11,21,31,41,51 * * * *",
    handle: async ({ services, log }) => {
      const { configured, sealed, more, lost } = await services.audit.seal();
      if (!configured) log.warn("The audit log is not sealed: AUDIT_SIGNING_KEYS is not set");
      if (lost) log.error("The audit log's newest digests were cut off; GET /audit/verify says where", { ...lost });
      if (configured) log.info("The audit log is sealed", { sealed, more });
    },
  }),
];
