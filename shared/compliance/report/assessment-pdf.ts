import { counted } from "../../platform/counted.ts";
import { createDocument } from "../../platform/pdf/document.ts";
import {
  ALARM_COLOR,
  type Column,
  GOOD_COLOR,
  HEADING_COLOR,
  MUTED_COLOR,
  type Sheet,
} from "../../platform/pdf/sheet.ts";
import { PRODUCT } from "../../platform/product.ts";
import { DAY_MS } from "../../platform/time.ts";
import { SEVERITY_WEIGHTS } from "../check.ts";
import type { Assessment } from "../compliance.ts";
import type { CheckResult, ControlResult } from "../frameworks.ts";
import { frameworkName } from "./csv.ts";
import {
  addEvidenceTable,
  addSection,
  addTable,
  cell,
  instantText,
  number,
  severityCell,
  statusCell,
  TEXT_SIZE,
} from "./tables.ts";
import { drawTrend } from "./trend.ts";

/**
 * The assessor's report: a PDF with a framework's results. reports.ts reads the data and calls `assessmentDocument`.
 */

/** Subscriptions that the last scan did not read. Vaults in them may be missing from the report. */
export interface UnreadSubscriptions {
  names: readonly string[];
  /** Whether the last scan of all subscriptions read the complete list of them. */
  isListRead: boolean;
}

/** The data of the report besides the assessment. */
interface ReportContext {
  /** Length of the period in days. */
  days: number;
  unread: UnreadSubscriptions;
  /** Number of key vaults of which the last scan could read no list of assets. */
  unreadableVaults: number;
  unicodeFont: string | undefined;
}

/** Maximum number of subscriptions listed by name. */
const MAX_SUBSCRIPTIONS = 12;

/** Writes a framework's results as a PDF for assessors: scope, period, method, a result for each control, and the evidence. */
export async function assessmentDocument(assessment: Assessment, reportContext: ReportContext): Promise<Uint8Array> {
  const { framework, createdAt } = assessment;
  const title = `Assessment: ${frameworkName(framework)}`;
  const facts = { title, createdAt, unicodeFont: reportContext.unicodeFont };
  return await createDocument(facts, `${title}, ${instantText(createdAt)} UTC`, (sheet) => {
    sheet.text(title, { size: 18, style: "bold", color: HEADING_COLOR });
    sheet.text(stateText(assessment, reportContext), { size: 11, style: "bold" });
    sheet.y -= 2;
    writeSummary(sheet, assessment, reportContext);
    writeMethod(sheet);
    writeTrend(sheet, assessment);
    writeControls(sheet, framework.controls);
    writeEvidence(sheet, assessment);
    writeExemptions(sheet, assessment);
  });
}

/** Returns the state and what changed: the score, its change in the period, and the failing controls. */
function stateText({ framework }: Assessment, { days }: ReportContext): string {
  const { score, controlsByStatus, controlsTotal, history, failed, passed } = framework;
  const [first] = history;
  const change = first === undefined ? 0 : score - first.score;
  const rounded = Math.abs(change).toFixed(1);
  const changeText =
    first === undefined || history.length < 2
      ? "no earlier score"
      : rounded === "0.0"
        ? `unchanged since ${first.date}`
        : `${change > 0 ? "up" : "down"} ${rounded} since ${first.date}`;
  const period = history.length < 2 ? ` in the last ${days} days` : "";
  return `Score ${score.toFixed(1)} of 100, ${changeText}${period}. ${controlsByStatus.fail} of ${controlsTotal} controls fail, because ${failed} of ${failed + passed} checks of resources failed.`;
}

function writeSummary(sheet: Sheet, { framework, scope, createdAt }: Assessment, reportContext: ReportContext): void {
  const { pass, fail, notApplicable, manual } = framework.controlsByStatus;
  const { failed, passed, score, controls } = framework;
  const exempted = distinctChecks(controls).reduce((sum, check) => sum + check.exempted, 0);
  const from = new Date(createdAt.getTime() - reportContext.days * DAY_MS);
  sheet.fact("Service", PRODUCT);
  sheet.fact("Framework", `${frameworkName(framework)}; controls from ${framework.source}`);
  sheet.fact("Period", `${instantText(from)} to ${instantText(createdAt)} UTC; the results are those at its end`);
  sheet.fact("Scope", scopeText(scope));
  const { names, isListRead } = reportContext.unread;
  const missing = "Vaults may be missing from this report";
  if (!isListRead)
    sheet.fact("Not read", `The last scan could not read the list of subscriptions. ${missing}.`, ALARM_COLOR);
  if (names.length > 0) {
    const which = `${counted(names.length, "subscription")}: ${namesOf(names)}`;
    sheet.fact("Not read", `The last scan did not read ${which}. ${missing}.`, ALARM_COLOR);
  }
  if (reportContext.unreadableVaults > 0) {
    const which = counted(reportContext.unreadableVaults, "key vault");
    sheet.fact("Not read", `The last scan could not read ${which}. Their results are older.`, ALARM_COLOR);
  }
  const evaluated = scope.evaluatedFrom && scope.evaluatedTo;
  const when = evaluated
    ? `Each vault's results changed last between ${instantText(scope.evaluatedFrom!)} and ${instantText(scope.evaluatedTo!)} UTC.`
    : "No vault has been evaluated yet.";
  sheet.fact("Evaluated", when);
  const controlsText = `${pass} pass, ${fail} fail, ${notApplicable} not applicable, ${manual} need a manual assessment`;
  sheet.fact("Controls", `${framework.controlsTotal}: ${controlsText}`, fail > 0 ? ALARM_COLOR : GOOD_COLOR);
  sheet.fact(
    "Checks",
    `${passed + failed + exempted}: ${passed} passed, ${failed} failed, ${exempted} exempted (pairs of check and resource)`,
  );
  sheet.fact("Score", `${score.toFixed(1)} of 100`);
}

function namesOf(subscriptions: readonly string[]): string {
  const unlistedText =
    subscriptions.length > MAX_SUBSCRIPTIONS ? ` and ${subscriptions.length - MAX_SUBSCRIPTIONS} more` : "";
  return `${subscriptions.slice(0, MAX_SUBSCRIPTIONS).join(", ")}${unlistedText}`;
}

function scopeText({ vaults, directories, subscriptions }: Assessment["scope"]): string {
  const where = subscriptions.length === 0 ? "" : `: ${namesOf(subscriptions)}`;
  const applications = directories > 0 ? "; credentials of applications in directories" : "";
  return `${counted(vaults, "key vault")} with what they hold, of ${counted(subscriptions.length, "subscription")}${where}${applications}`;
}

const METHOD = [
  "Data: names, dates, attributes, policies and settings of key vaults and of their secrets, keys and certificates, and of application credentials, read through Azure's APIs with a read-only identity. Secret values are not read.",
  "Time: a scan evaluates changed resources. Results that change with time are evaluated once a day.",
  "Method: each control is assessed by the checks that are mapped to it, and each check lists the reason for the mapping. A control passes if every applicable resource passes its checks, fails if one fails, is not applicable without such a resource, and must be assessed manually if no check covers it.",
  `Score: 100 × the weight of passed pairs ÷ the whole weight. The weight of a pair of check and resource is ${Object.entries(
    SEVERITY_WEIGHTS,
  )
    .map(([severity, weight]) => `${weight} (${severity})`)
    .join(", ")}. Pairs that are not applicable, manual or exempted are left out.`,
  "Exemptions: a user accepted a failing pair, with a reason and an expiry date. It counts neither as passed nor as failed, and is listed with the evidence.",
  "Limits: checks inspect configurations, not whether people follow a process. A passed control is evidence, but not a complete assessment.",
];

function writeMethod(sheet: Sheet): void {
  addSection(sheet, "Method");
  for (const paragraph of METHOD) {
    sheet.text(paragraph, { size: TEXT_SIZE });
    sheet.y -= 2;
  }
}

function writeTrend(sheet: Sheet, { framework: { history } }: Assessment): void {
  addSection(sheet, "Score over the period");
  drawTrend(sheet, history);
  const editions = new Set(history.map(({ edition }) => edition));
  if (editions.size > 1) {
    const text = "The checks changed within the period. This may have changed the score.";
    sheet.text(text, { size: TEXT_SIZE, color: MUTED_COLOR });
  }
}

/** Widths are in points. In each table they add up to 769.89, the width of a landscape A4 page without its margins. */
const CONTROL_COLUMNS: Column[] = [
  { title: "Control", width: 62 },
  { title: "Title", width: 235 },
  { title: "Result", width: 82 },
  { title: "Checks", width: 243.89 },
  { title: "Passed", width: 45, right: true },
  { title: "Failed", width: 45, right: true },
  { title: "Exempted", width: 57, right: true },
];

const STATUS_TEXTS: Record<ControlResult["status"], string> = {
  pass: "passes",
  fail: "fails",
  notApplicable: "not applicable",
  manual: "needs manual assessment",
};

function writeControls(sheet: Sheet, controls: readonly ControlResult[]): void {
  addSection(sheet, "Result of each control");
  addTable(
    sheet,
    "Result of each control",
    CONTROL_COLUMNS,
    controls.map(({ id, title, status, passed, failed, exempted, checks, notAssessed }) => [
      cell(id),
      cell(title),
      statusCell(status, STATUS_TEXTS[status]),
      cell(
        checks.map((check) => check.id).join(", ") || "none: needs manual assessment",
        ...(notAssessed === null ? [] : [`Not assessed: ${notAssessed}`]),
      ),
      number(passed),
      number(failed, failed > 0 ? ALARM_COLOR : undefined),
      number(exempted),
    ]),
  );
}

const distinctChecks = (controls: readonly ControlResult[]): CheckResult[] => [
  ...new Map(controls.flatMap(({ checks }) => checks.map((check) => [check.id, check] as const))).values(),
];

const CHECK_COLUMNS: Column[] = [
  { title: "Check", width: 235 },
  { title: "Severity", width: 50 },
  { title: "Controls, and reason for the mapping", width: 337.89 },
  { title: "Passed", width: 45, right: true },
  { title: "Failed", width: 45, right: true },
  { title: "Exempted", width: 57, right: true },
];

function writeEvidence(sheet: Sheet, { framework: { controls }, violations }: Assessment): void {
  const checks = distinctChecks(controls);
  addSection(sheet, "Checks");
  addTable(
    sheet,
    "Checks",
    CHECK_COLUMNS,
    checks.map((check) => [
      cell(check.title, check.id),
      severityCell(check.severity),
      cell(...reasonsOf(check, controls)),
      number(check.passed),
      number(check.failed, check.failed > 0 ? ALARM_COLOR : undefined),
      number(check.exempted),
    ]),
  );
  for (const { id, title } of checks) {
    const page = violations.get(id);
    if (!page) continue;
    const heading = `Failures of the check “${title}”`;
    addSection(sheet, heading);
    addEvidenceTable(sheet, heading, page.items);
    const unlistedCount = (page.total ?? 0) - page.items.length;
    if (unlistedCount > 0) {
      const text = `and ${unlistedCount} more: GET /compliance/violations/csv?check=${id} returns all of them.`;
      sheet.text(text, { size: TEXT_SIZE, color: MUTED_COLOR });
    }
  }
}

/**
 * Returns a line for each reason (`basis`) why the check is mapped, preceded by the IDs of the controls with that reason,
 * unless the reason's own text begins with them.
 */
function reasonsOf({ id }: CheckResult, controls: readonly ControlResult[]): string[] {
  const byBasis = new Map<string, string[]>();
  for (const control of controls) {
    const basis = control.checks.find((check) => check.id === id)?.basis;
    if (basis !== undefined) byBasis.set(basis, [...(byBasis.get(basis) ?? []), control.id]);
  }
  return [...byBasis].map(([basis, ids]) => (basis.startsWith(ids.join(", ")) ? basis : `${ids.join(", ")}: ${basis}`));
}

const EXEMPTION_COLUMNS: Column[] = [
  { title: "Exemption", width: 215 },
  { title: "Category", width: 60 },
  { title: "Reason", width: 270 },
  { title: "Created by, at (UTC)", width: 130 },
  { title: "Until (UTC)", width: 94.89 },
];

function writeExemptions(sheet: Sheet, { exemptions }: Assessment): void {
  addSection(sheet, "Active exemptions");
  if (exemptions.length === 0) {
    sheet.text("No check of this framework has an active exemption.", { size: TEXT_SIZE, color: MUTED_COLOR });
    return;
  }
  const note =
    "The numbers of exempted pairs count only pairs of check and resource that fail now. An exemption of a pair that passes stays active until its expiry date.";
  sheet.text(note, { size: TEXT_SIZE, color: MUTED_COLOR });
  sheet.y -= 2;
  addTable(
    sheet,
    "Active exemptions",
    EXEMPTION_COLUMNS,
    exemptions.map(({ id, category, reason, ticket, createdBy, createdAt, until }) => [
      cell(id),
      cell(category),
      cell(reason, ...(ticket === undefined ? [] : [`ticket ${ticket}`])),
      cell(createdBy, instantText(createdAt)),
      cell(instantText(until)),
    ]),
  );
}
