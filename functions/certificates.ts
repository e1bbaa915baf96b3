import {
  ReadinessFileQuery,
  ReadinessList,
  ReadinessQuery,
  ReadinessReportQuery,
  readinessView,
} from "../shared/certificates/api.ts";
import { READINESS_CSV_EXAMPLE, readinessCsv } from "../shared/certificates/readiness-csv.ts";
import { MAX_PDF_CERTIFICATES } from "../shared/certificates/readiness-reports.ts";
import { pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { content, ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";

/* Endpoints that report whether certificates are ready for shorter lifetimes. */

const tag = "Compliance";

const listCertificateReadiness = endpoint({
  name: "listCertificateReadiness",
  method: "GET",
  route: "compliance/certificates/readiness",
  summary: "List certificates by name with their readiness for shorter lifetimes",
  description:
    "Returns for each enabled certificate of a key vault: the renewals per year under the limits of today, of 2027 and of 2029, who renews it, and why a renewal would fail. `summary` adds up all certificates that match `vault` and `subscription`, for which each request reads all of them. With a cursor, `summary` is null.",
  tag,
  access: "user",
  tier: "core",
  query: ReadinessQuery,
  example: { query: { failing: "true", limit: "10" } },
  responds: { 200: ReadinessList },
  handle: async ({ query, services }) => {
    const { failing, vault, subscription } = query;
    const filter = { vault, subscription };
    const { page, summary } = await services.certificateReadiness.list(filter, pageRequest(query), failing);
    return ok({ ...pageView(page, readinessView), summary });
  },
});

const exportCertificateReadiness = endpoint({
  name: "exportCertificateReadiness",
  method: "GET",
  route: "compliance/certificates/readiness/csv",
  summary: "Export the readiness of certificates as CSV",
  description:
    'Each part contains up to 5,000 certificates; the header `Link: <…>; rel="next"` leads to the next part.',
  tag,
  access: "user",
  tier: "core",
  query: ReadinessFileQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: { 200: { description: "A part of the list.", mediaType: "text/csv", example: READINESS_CSV_EXAMPLE } },
  handle: async ({ query, url, services }) => {
    const { cursor, ...filter } = query;
    const { items, nextCursor } = await services.certificateReadiness.part(filter, cursor);
    const next = new URLSearchParams(url.searchParams);
    if (nextCursor !== null) next.set("cursor", nextCursor);
    return content("text/csv; charset=utf-8; header=present", readinessCsv(items.map(readinessView)), {
      "Content-Disposition": 'attachment; filename="certificate-readiness.csv"',
      ...(nextCursor !== null && { Link: `<${url.pathname}?${next}>; rel="next"` }),
    });
  },
});

const reportCertificateReadiness = endpoint({
  name: "reportCertificateReadiness",
  method: "GET",
  route: "compliance/certificates/readiness/pdf",
  summary: "Export the readiness of certificates as PDF",
  description: `Up to ${MAX_PDF_CERTIFICATES.toLocaleString("en")} certificates. For more, returns 400: filter by vault or subscription, or export CSV.`,
  tag,
  access: "user",
  tier: "core",
  query: ReadinessReportQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: { 200: { description: "The document.", mediaType: "application/pdf" } },
  handle: async ({ query, services }) =>
    content("application/pdf", await services.certificateReadiness.pdf(query), {
      "Content-Disposition": 'attachment; filename="certificate-readiness.pdf"',
    }),
});

export const endpoints = [listCertificateReadiness, exportCertificateReadiness, reportCertificateReadiness];
