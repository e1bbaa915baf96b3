import * as z from "zod";
import { AuditEntry, EVENT_TYPE } from "../shared/audit/entry.ts";
import type { ExportPart } from "../shared/audit/export.ts";
import { Verification } from "../shared/audit/verify.ts";
import { pageOf, pageParameters, pageRequest, queryInstant } from "../shared/http/paging.ts";
import { Problem } from "../shared/http/problem.ts";
import { content, ok } from "../shared/http/reply.ts";
import { endpoint, timer } from "./kit.ts";

const tag = "Audit";

const period = { start_date: queryInstant("start").optional(), end_date: queryInstant("end").optional() };
const filters = {
  ...period,
  event_type: z
    .string()
    .regex(EVENT_TYPE, "must be an event type such as user.signedIn")
    .optional()
    .meta({ description: "Only events of this type.", example: "user.signedIn" }),
  actor: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "Only what this username did, in any case; `anonymous` and `system` too.", example: "admin" }),
};

type Filters = { start_date?: Date | undefined; end_date?: Date | undefined; event_type?: string; actor?: string };

/** @throws {Problem} invalidRequest when the period ends before it begins. */
function queryOf({ start_date: start, end_date: end, event_type: eventType, actor }: Filters) {
  if (start && end && start > end) {
    throw new Problem("invalidRequest", "The period ends before it begins. Swap start_date and end_date.", {
      errors: [{ path: "query.end_date", message: "is before start_date" }],
    });
  }
  return { start, end, eventType, actor };
}

const listAuditEntries = endpoint({
  name: "listAuditEntries",
  method: "GET",
  route: "audit/entries",
  summary: "List what happened, newest first",
  description: "Everything that changed something, every sign-in and every refusal. All filters can stand together.",
  tag,
  access: "auditor",
  tier: "core",
  query: z.strictObject({ ...filters, ...pageParameters }),
  responds: { 200: pageOf(AuditEntry, "AuditEntryList") },
  handle: async ({ query, services }) => ok(await services.audit.list(queryOf(query), pageRequest(query))),
});

const exportAudit = endpoint({
  name: "exportAudit",
  method: "GET",
  route: "audit/export",
  summary: "Export what happened, oldest first, as JSON, CSV or PDF",
  description:
    'JSON and CSV have no limit: what is longer than one answer (25,000 entries, or 4 MiB as sent) comes in parts, each a valid file; the header `Link: <…>; rel="next"` leads to the next one, in JSON `nextCursor` too. Answers are compressed when `Accept-Encoding` has gzip. The JSON export carries what the command `verify-audit` needs to verify it elsewhere. A PDF holds at most 5,000 entries.',
  tag,
  access: "auditor",
  tier: "core",
  query: z.strictObject({
    format: z.enum(["json", "csv", "pdf"]).optional().meta({ description: "json when left out." }),
    ...filters,
    cursor: pageParameters.cursor,
  }),
  responds: {
    200: {
      description: "The export, or the part of it that the cursor asks for",
      mediaTypes: ["text/csv", "application/pdf"],
      json: z
        .looseObject({
          format: z.string(),
          start: z.iso.datetime(),
          end: z.iso.datetime(),
          entries: z.array(AuditEntry),
          nextCursor: z.string().nullable(),
        })
        .meta({ id: "AuditExport", description: "With what the offline command needs to verify the entries." }),
    },
  },
  async handle({ query, headers, url, services }) {
    const { format = "json", cursor } = query;
    const gzip = /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(headers.get("accept-encoding") ?? "");
    const part = await services.audit.export({ format, query: queryOf(query), cursor, gzip });
    return content(part.mediaType, part.data, exportHeaders(part, url));
  },
});

function exportHeaders(part: ExportPart, url: URL): Record<string, string> {
  const headers: Record<string, string> = {
    "Content-Disposition": `attachment; filename="${part.fileName}"`,
    Vary: "Accept-Encoding",
  };
  if (part.gzipped) headers["Content-Encoding"] = "gzip";
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
  summary: "Verify that nothing sealed was changed, removed or inserted",
  description:
    "Entries are sealed every ten minutes. Compares every sealed entry of the period with its signed digest and says what differs and where. A long period comes in parts: go on with `nextCursor`.",
  tag,
  access: "auditor",
  tier: "core",
  query: z.strictObject({ ...period, cursor: pageParameters.cursor }),
  responds: { 200: Verification },
  handle: async ({ query, services }) => {
    const { start, end } = queryOf(query);
    return ok(await services.audit.verify({ start, end, cursor: query.cursor }));
  },
});

export const endpoints = [listAuditEntries, exportAudit, verifyAudit];

/** Half a minute after an interval may be closed. */
export const timers = [
  timer({
    name: "sealAudit",
    schedule: () => "30 1,11,21,31,41,51 * * * *",
    handle: async ({ services, log }) => {
      const { configured, sealed, more, lost } = await services.audit.seal();
      if (!configured) log.warn("The audit log is not sealed: AUDIT_SIGNING_KEYS is not set");
      if (lost) log.error("The audit log's newest digests were cut off; GET /audit/verify says where", { ...lost });
      if (configured) log.info("The audit log is sealed", { sealed, more });
    },
  }),
];
