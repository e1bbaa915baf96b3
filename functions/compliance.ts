import * as z from "zod";
import {
  Breakdown,
  DeletedExemption,
  EvaluationResult,
  ExemptionView,
  exemptionView,
  Framework,
  FrameworkDetails,
  frameworkView,
  HistoryQuery,
  NewExemption,
  ReportQuery,
  Score,
  ViolationFileQuery,
  ViolationList,
  ViolationOwners,
  ViolationQuery,
  ViolationReportQuery,
  violationFilter,
} from "../shared/compliance/api.ts";
import { EvaluateMessage, QUEUE } from "../shared/compliance/compliance-rows.ts";
import { FRAMEWORK_IDS } from "../shared/compliance/controls.ts";
import { OPERATOR_EXEMPTION_DAYS } from "../shared/compliance/exemptions.ts";
import { FRAMEWORK_CSV_EXAMPLE, VIOLATIONS_CSV_EXAMPLE } from "../shared/compliance/report/csv.ts";
import { MAX_PDF_VIOLATIONS } from "../shared/compliance/report/reports.ts";
import { VIOLATIONS_SARIF_EXAMPLE } from "../shared/compliance/report/sarif.ts";
import { PageQuery, pageOf, pageRequest, pageView } from "../shared/platform/http/paging.ts";
import { content, created, deleted, ok, resource } from "../shared/platform/http/reply.ts";
import { builtVersion } from "./built-version.ts";
import { endpoint, exampleDay, poison, queue, timer } from "./declare.ts";

/*
 * Endpoints, timers and queue handlers of compliance. Checks judge resources (assets and vaults). A failed check is a
 * violation. An exemption excludes a violation from the score. Frameworks, such as PCI DSS, map their controls to checks.
 */

const tag = "Compliance";

const getComplianceScore = endpoint({
  name: "getComplianceScore",
  method: "GET",
  route: "compliance/score",
  summary: "Get the compliance score",
  description:
    "The score is computed over pairs of check and resource. Pairs that do not apply, need a manual review or are exempted are excluded.",
  tag,
  access: "user",
  tier: "core",
  query: HistoryQuery,
  example: { query: { history: "30" } },
  responds: { 200: Score },
  handle: async ({ query, services }) => ok(await services.compliance.score(query.history)),
});

const getComplianceBreakdown = endpoint({
  name: "getComplianceBreakdown",
  method: "GET",
  route: "compliance/breakdown",
  summary: "Get the failing checks and the score of each subscription",
  description: "Exempted violations are excluded from the score and counted apart, as in GET /compliance/score.",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: Breakdown },
  handle: async ({ services }) => ok(await services.compliance.breakdown()),
});

const listComplianceOwners = endpoint({
  name: "listComplianceOwners",
  method: "GET",
  route: "compliance/owners",
  summary: "Count violations by owner",
  description:
    "Counts violations without an exemption for each of the first three owners of their resource. Each call examines up to 10,000 violations, the most severe first, as with the filter owner of GET /compliance/violations.",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: ViolationOwners },
  handle: async ({ services }) => ok(await services.compliance.violationsByOwner()),
});

const listViolations = endpoint({
  name: "listViolations",
  method: "GET",
  route: "compliance/violations",
  summary: "List violations by severity, check and resource",
  description:
    "Exempted violations are listed and marked: `open` equals `failed` in the score, `exempted` equals `exempted` in the score. The violations of a vault include those of its assets. Remediations are written for the resource of the violation.",
  tag,
  access: "user",
  tier: "core",
  query: ViolationQuery,
  example: { query: { severity: "critical", limit: "10" } },
  responds: { 200: ViolationList },
  handle: async ({ query, services }) =>
    ok(await services.compliance.violations(violationFilter(query), pageRequest(query))),
});

const exportViolations = endpoint({
  name: "exportViolations",
  method: "GET",
  route: "compliance/violations/csv",
  summary: "Export violations as CSV",
  description: 'Each part contains up to 5,000 violations; the header `Link: <…>; rel="next"` leads to the next part.',
  tag,
  access: "user",
  tier: "core",
  query: ViolationFileQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: { 200: { description: "A part of the list.", mediaType: "text/csv", example: VIOLATIONS_CSV_EXAMPLE } },
  handle: async ({ query, url, services }) => {
    const { csv, nextCursor } = await services.complianceReports.violationsCsv(violationFilter(query), query.cursor);
    return content("text/csv; charset=utf-8; header=present", csv, {
      "Content-Disposition": 'attachment; filename="violations.csv"',
      ...nextPart(url, nextCursor),
    });
  },
});

const exportViolationsSarif = endpoint({
  name: "exportViolationsSarif",
  method: "GET",
  route: "compliance/violations/sarif",
  summary: "Export violations as SARIF",
  description:
    'SARIF 2.1.0, for code scanning and pipelines. An exempted violation has a suppression. Each part is a log with up to 5,000 violations; the header `Link: <…>; rel="next"` leads to the next part.',
  tag,
  access: "user",
  tier: "core",
  query: ViolationFileQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: {
    200: { description: "A part of the list.", mediaType: "application/sarif+json", example: VIOLATIONS_SARIF_EXAMPLE },
  },
  handle: async ({ query, url, services }) => {
    const { sarif, nextCursor } = await services.complianceReports.violationsSarif(
      violationFilter(query),
      query.cursor,
      builtVersion().version,
    );
    return content("application/sarif+json; charset=utf-8", sarif, {
      "Content-Disposition": 'attachment; filename="violations.sarif"',
      ...nextPart(url, nextCursor),
    });
  },
});

/** Returns the header that leads to the next part of a file. None for the last part. */
function nextPart(url: URL, cursor: string | null): { Link?: string } {
  if (cursor === null) return {};
  const next = new URLSearchParams(url.searchParams);
  next.set("cursor", cursor);
  return { Link: `<${url.pathname}?${next}>; rel="next"` };
}

const reportViolations = endpoint({
  name: "reportViolations",
  method: "GET",
  route: "compliance/violations/pdf",
  summary: "Export violations as PDF",
  description: `Up to ${MAX_PDF_VIOLATIONS.toLocaleString("en")} violations. For more, returns 400: add filters, or export CSV.`,
  tag,
  access: "user",
  tier: "core",
  query: ViolationReportQuery,
  example: { query: { vault: "kv-payments-prod" } },
  responds: { 200: { description: "The document.", mediaType: "application/pdf" } },
  handle: async ({ query, services }) =>
    pdf("violations.pdf", await services.complianceReports.violationsPdf(violationFilter(query))),
});

const pdf = (fileName: string, data: Uint8Array) =>
  content("application/pdf", data, { "Content-Disposition": `attachment; filename="${fileName}"` });

const evaluateCompliance = endpoint({
  name: "evaluateCompliance",
  method: "POST",
  route: "compliance/evaluate",
  summary: "Evaluate compliance of all resources now",
  description:
    "Up to 20 vaults with 2,000 assets are evaluated before the response, which then contains the score. Larger evaluations are `queued`; GET /compliance/evaluations/{evaluation_id} returns their progress. Returns 409 while enableComplianceScanning is false.",
  tag,
  access: "admin",
  tier: "core",
  // A repeated request evaluates the same resources again, so it may be sent with any `Idempotency-Key`.
  harmlessRepeat: true,
  responds: { 200: EvaluationResult },
  handle: async ({ caller, services }) => ok(await services.compliance.evaluate(caller)),
});

const getEvaluation = endpoint({
  name: "getEvaluation",
  method: "GET",
  route: "compliance/evaluations/{evaluation_id}",
  summary: "Get the progress of an evaluation",
  description:
    "Returns a requested evaluation of all resources. Vaults that a later evaluation covered count as done. Evaluations are kept for `scanRetentionDays`.",
  tag,
  access: "user",
  tier: "core",
  params: z.object({
    evaluation_id: z.string().meta({ description: "ID of the evaluation, as returned by POST /compliance/evaluate." }),
  }),
  responds: { 200: EvaluationResult },
  handle: async ({ params, services }) => ok(await services.compliance.evaluation(params.evaluation_id)),
});

const listFrameworks = endpoint({
  name: "listFrameworks",
  method: "GET",
  route: "compliance/frameworks",
  summary: "List compliance frameworks by ID",
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: pageOf(Framework, "FrameworkList") },
  handle: async ({ query, services }) => {
    const page = await services.compliance.frameworks(pageRequest(query));
    return ok(pageView(page, frameworkView));
  },
});

const frameworkParams = z.object({ framework_id: z.string().meta({ enum: FRAMEWORK_IDS }) });

const getFramework = endpoint({
  name: "getFramework",
  method: "GET",
  route: "compliance/frameworks/{framework_id}",
  summary: "Get a framework with its controls",
  tag,
  access: "user",
  tier: "core",
  params: frameworkParams,
  query: HistoryQuery,
  responds: { 200: FrameworkDetails },
  handle: async ({ params, query, services }) =>
    ok(await services.compliance.framework(params.framework_id, query.history)),
});

const exportFramework = endpoint({
  name: "exportFramework",
  method: "GET",
  route: "compliance/frameworks/{framework_id}/csv",
  summary: "Export a framework as CSV, one line for each control and check",
  tag,
  access: "user",
  tier: "core",
  params: frameworkParams,
  responds: { 200: { description: "The controls.", mediaType: "text/csv", example: FRAMEWORK_CSV_EXAMPLE } },
  handle: async ({ params, services }) => {
    const { id, csv } = await services.complianceReports.frameworkCsv(params.framework_id);
    return content("text/csv; charset=utf-8; header=present", csv, {
      "Content-Disposition": `attachment; filename="${id}.csv"`,
    });
  },
});

const reportFramework = endpoint({
  name: "reportFramework",
  method: "GET",
  route: "compliance/frameworks/{framework_id}/pdf",
  summary: "Export a framework as a PDF report for assessors",
  description:
    "Contains scope, period, method, the result of each control with its checks, and evidence: the first 20 violations of each failed check, and the exemptions.",
  tag,
  access: "user",
  tier: "core",
  params: frameworkParams,
  query: ReportQuery,
  example: { query: { days: "90" } },
  responds: { 200: { description: "The document.", mediaType: "application/pdf" } },
  handle: async ({ params, query, services }) => {
    const { id, data } = await services.complianceReports.frameworkPdf(params.framework_id, query.days);
    return pdf(`${id}.pdf`, data);
  },
});

const exemptionParams = z.object({
  exemption_id: z.string().meta({ example: "secret-expired.asset.kv-pay.secret.db" }),
});

const listExemptions = endpoint({
  name: "listExemptions",
  method: "GET",
  route: "compliance/exemptions",
  summary: "List exemptions by ID, including expired ones",
  tag,
  access: "user",
  tier: "core",
  query: PageQuery,
  responds: { 200: pageOf(ExemptionView, "ExemptionList") },
  handle: async ({ query, services }) => {
    const page = await services.compliance.exemptions.list(pageRequest(query));
    return ok(pageView(page, exemptionView));
  },
});

const getExemption = endpoint({
  name: "getExemption",
  method: "GET",
  route: "compliance/exemptions/{exemption_id}",
  summary: "Get an exemption",
  tag,
  access: "user",
  tier: "core",
  params: exemptionParams,
  responds: { 200: ExemptionView },
  handle: async ({ params, services }) =>
    resource(exemptionView(await services.compliance.exemptions.get(params.exemption_id))),
});

const createExemption = endpoint({
  name: "createExemption",
  method: "POST",
  route: "compliance/exemptions",
  summary: "Exempt resources from a check",
  description: `Takes effect with the next response and expires automatically. Each check can have one active exemption per scope; otherwise returns 409. Exemptions by operators can last up to ${OPERATOR_EXEMPTION_DAYS} days; longer ones require an administrator (403).`,
  tag,
  access: "operator",
  tier: "core",
  body: NewExemption,
  example: {
    body: {
      checkId: "secret-expired",
      scope: { type: "asset", id: "kv-payments-prod.secret.payments-api-client-secret" },
      category: "waiver",
      reason: "Accepted until the migration is over.",
      ticket: "SEC-1042",
      get until() {
        return exampleDay(30);
      },
    },
  },
  responds: { 201: ExemptionView },
  // A request that is repeated with its `Idempotency-Key` gets the exemption that the first one created.
  repeat: {
    idOf: ({ id }) => id,
    answer: async ({ id, services }) => exemptionView(await services.compliance.exemptions.get(id)),
  },
  handle: async ({ body, caller, services }) => {
    const exemption = await services.compliance.exemptions.create(body, caller);
    return created(exemptionView(exemption), `/compliance/exemptions/${exemption.id}`);
  },
});

const removeExemption = endpoint({
  name: "removeExemption",
  method: "DELETE",
  route: "compliance/exemptions/{exemption_id}",
  summary: "Remove an exemption",
  description: `Only administrators can remove an exemption that expires more than ${OPERATOR_EXEMPTION_DAYS} days from now (403).`,
  tag,
  access: "operator",
  tier: "core",
  conditional: true,
  params: exemptionParams,
  responds: { 200: DeletedExemption },
  handle: async ({ params, caller, ifMatch, services }) => {
    await services.compliance.exemptions.remove(params.exemption_id, caller, ifMatch);
    return deleted();
  },
});

export const endpoints = [
  getComplianceScore,
  getComplianceBreakdown,
  listComplianceOwners,
  listViolations,
  exportViolations,
  exportViolationsSarif,
  reportViolations,
  evaluateCompliance,
  getEvaluation,
  listFrameworks,
  getFramework,
  exportFramework,
  reportFramework,
  listExemptions,
  getExemption,
  createExemption,
  removeExemption,
];

export const timers = [
  timer({
    name: "evaluateDueCompliance",
    schedule: "0 10 0 * * *",
    handle: ({ services }) => services.compliance.runDue(),
  }),
  timer({
    name: "recordComplianceScore",
    schedule: "0 50 * * * *",
    handle: ({ services }) => services.compliance.recordScore(),
  }),
];

export const queues = [
  queue({
    name: "evaluateVaultCompliance",
    queue: QUEUE,
    message: EvaluateMessage,
    handle: (message, { services }) => services.compliance.handle(message),
  }),
  // Messages whose handler failed five times.
  poison({
    name: "evaluateVaultComplianceFailed",
    of: QUEUE,
    message: EvaluateMessage,
    handle: (message, { services, requestId }) => services.compliance.failed(message, requestId),
  }),
];
