import { createDocument } from "../../platform/pdf/document.ts";
import { ALARM, CONTENT_BOTTOM, type Column, GOOD, HEADING, MUTED, type Sheet } from "../../platform/pdf/sheet.ts";
import { DAY_MS } from "../../platform/time.ts";
import { WEIGHTS } from "../check.ts";
import type { Assessment } from "../compliance.ts";
import type { CheckResult, ControlResult } from "../frameworks.ts";
import { frameworkName } from "./csv.ts";
import { cell, evidenceTable, instant, number, section, severityCell, statusCell, TEXT_SIZE, table } from "./tables.ts";
import { drawTrend } from "./trend.ts";

/** Scopes that the last scans did not read. Their vaults are unknown. */
export interface UnreadSubscriptions {
  names: readonly string[];
  /** Whether the last scan of all subscriptions read the complete list of them. */
  isListRead: boolean;
}

interface About {
  /** Length of the period in days. */
  days: number;
  unread: UnreadSubscriptions;
  /** Key vaults none of whose lists the last scan could read. */
  unreadableVaults: number;
  unicodeFont: string | undefined;
}

/** Maximum number of subscriptions listed by name. */
const MAX_SUBSCRIPTIONS = 12;

/** Writes a framework's results as a PDF for assessors: scope, period, method, a result for each control, and the evidence. */
export async function assessmentDocument(assessment: Assessment, about: About): Promise<Uint8Array> {
  const { framework, createdAt } = assessment;
  const title = `Assessment: ${frameworkName(framework)}`;
  const facts = { title, createdAt, unicodeFont: about.unicodeFont };
  return await createDocument(facts, `${title}, ${instant(createdAt)} UTC`, (sheet) => {
    sheet.text(title, { size: 18, style: "bold", color: HEADING });
    sheet.y -= 2;
    writeSummary(sheet, assessment, about);
    writeMethod(sheet);
    writeTrend(sheet, assessment);
    writeControls(sheet, framework.controls);
    writeEvidence(sheet, assessment);
    writeExemptions(sheet, assessment);
  });
}

const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

function writeSummary(sheet: Sheet, { framework, scope, createdAt }: Assessment, about: About): void {
  const { pass, fail, notApplicable, manual } = framework.controlsByStatus;
  const { failed, passed, score, controls } = framework;
  const exempted = distinctChecks(controls).reduce((sum, check) => sum + check.exempted, 0);
  const from = new Date(createdAt.getTime() - about.days * DAY_MS);
  sheet.fact("Service", "Credential and Secret Lifecycle Service");
  sheet.fact("Framework", `${frameworkName(framework)}; controls from ${framework.source}`);
  sheet.fact("Period", `${instant(from)} to ${instant(createdAt)} UTC; the results are those at its end`);
  sheet.fact("Scope", scopeText(scope));
  const { names, isListRead } = about.unread;
  const missing = "Vaults may be missing from this report";
  if (!isListRead) sheet.fact("Not read", `The last scan could not read the list of subscriptions. ${missing}.`, ALARM);
  if (names.length > 0) {
    const which = `${plural(names.length, "subscription")}: ${namesOf(names)}`;
    sheet.fact("Not read", `The last scan did not read ${which}. ${missing}.`, ALARM);
  }
  if (about.unreadableVaults > 0) {
    const which = about.unreadableVaults === 1 ? "1 key vault" : `${about.unreadableVaults} key vaults`;
    sheet.fact("Not read", `The last scan could not read ${which}. Their results are older.`, ALARM);
  }
  const evaluated = scope.evaluatedFrom && scope.evaluatedTo;
  const when = evaluated
    ? `Each vault's results changed last between ${instant(scope.evaluatedFrom!)} and ${instant(scope.evaluatedTo!)} UTC.`
    : "No evaluation has been made yet.";
  sheet.fact("Evaluated", when);
  const controlsText = `${pass} pass, ${fail} fail, ${notApplicable} apply to nothing, ${manual} need a person`;
  sheet.fact("Controls", `${framework.controlsTotal}: ${controlsText}`, fail > 0 ? ALARM : GOOD);
  sheet.fact("Checks", `${passed} passed, ${failed} failed, ${exempted} exempted (pairs of check and resource)`);
  sheet.fact("Score", `${score.toFixed(1)} of 100`);
}

function namesOf(subscriptions: readonly string[]): string {
  const more = subscriptions.length > MAX_SUBSCRIPTIONS ? ` and ${subscriptions.length - MAX_SUBSCRIPTIONS} more` : "";
  return `${subscriptions.slice(0, MAX_SUBSCRIPTIONS).join(", ")}${more}`;
}

function scopeText({ vaults, directories, subscriptions }: Assessment["scope"]): string {
  const where = subscriptions.length === 0 ? "" : `: ${namesOf(subscriptions)}`;
  const applications = directories > 0 ? "; credentials of applications in directories" : "";
  return `${plural(vaults, "key vault")} with what they hold, of ${plural(subscriptions.length, "subscription")}${where}${applications}`;
}

const METHOD = [
  "Data: names, dates, attributes, policies and settings of key vaults and of their secrets, keys and certificates, and of application credentials, read through Azure's APIs with a read-only identity. Secret values are not read.",
  "Time: a scan evaluates changed resources. Results that change with time are evaluated once a day.",
  "Method: each control is assessed by the checks that are mapped to it, and each check lists the reason for the mapping. A control passes if every applicable resource passes its checks, fails if one fails, is not applicable without such a resource, and must be assessed manually if no check covers it.",
  `Score: 100 × the weight of passed pairs ÷ the whole weight. The weight of a pair of check and resource is ${Object.entries(
    WEIGHTS,
  )
    .map(([severity, weight]) => `${weight} (${severity})`)
    .join(", ")}. Pairs that are not applicable, manual or exempted are left out.`,
  "Exemptions: a user accepted a failing pair, with a reason and an expiry date. It counts neither as passed nor as failed, and is listed with the evidence.",
  "Limits: checks inspect configurations, not whether people follow a process. A passed control is evidence, but not a complete assessment.",
];

function writeMethod(sheet: Sheet): void {
  section(sheet, "Method");
  for (const paragraph of METHOD) {
    sheet.text(paragraph, { size: TEXT_SIZE });
    sheet.y -= 2;
  }
}

function writeTrend(sheet: Sheet, { framework: { history } }: Assessment): void {
  section(sheet, "Score over the period");
  drawTrend(sheet, history);
  const editions = new Set(history.map(({ edition }) => edition));
  if (editions.size > 1) {
    const text = "The checks themselves changed within the period, and with them the score may have.";
    sheet.text(text, { size: TEXT_SIZE, color: MUTED });
  }
}

const CONTROLS: Column[] = [
  { title: "Control", width: 62 },
  { title: "Title", width: 235 },
  { title: "Result", width: 82 },
  { title: "Checks", width: 243.89 },
  { title: "Passed", width: 45, right: true },
  { title: "Failed", width: 45, right: true },
  { title: "Exempted", width: 57, right: true },
];

const WORDS: Record<ControlResult["status"], string> = {
  pass: "passes",
  fail: "fails",
  notApplicable: "applies to nothing",
  manual: "needs a person",
};

function writeControls(sheet: Sheet, controls: readonly ControlResult[]): void {
  section(sheet, "Result of each control");
  table(
    sheet,
    CONTROLS,
    controls.map(({ id, title, status, passed, failed, exempted, checks }) => [
      cell(id),
      cell(title),
      statusCell(status, WORDS[status]),
      cell(checks.map((check) => check.id).join(", ") || "none: a person has to look"),
      number(passed),
      number(failed, failed > 0 ? ALARM : undefined),
      number(exempted),
    ]),
  );
}

const distinctChecks = (controls: readonly ControlResult[]): CheckResult[] => [
  ...new Map(controls.flatMap(({ checks }) => checks.map((check) => [check.id, check] as const))).values(),
];

const CHECKS: Column[] = [
  { title: "Check", width: 235 },
  { title: "Severity", width: 50 },
  { title: "Controls, and why it speaks to them", width: 337.89 },
  { title: "Passed", width: 45, right: true },
  { title: "Failed", width: 45, right: true },
  { title: "Exempted", width: 57, right: true },
];

function writeEvidence(sheet: Sheet, { framework: { controls }, violations }: Assessment): void {
  const checks = distinctChecks(controls);
  section(sheet, "Checks");
  table(
    sheet,
    CHECKS,
    checks.map((check) => [
      cell(check.title, check.id),
      severityCell(check.severity),
      cell(...reasonsOf(check, controls)),
      number(check.passed),
      number(check.failed, check.failed > 0 ? ALARM : undefined),
      number(check.exempted),
    ]),
  );
  for (const { id, title } of checks) {
    const page = violations.get(id);
    if (!page) continue;
    section(sheet, `Evidence: ${title}`);
    evidenceTable(sheet, page.items);
    const left = (page.total ?? 0) - page.items.length;
    if (left > 0) {
      const text = `and ${left} more: GET /compliance/violations/csv?check=${id} has all of them.`;
      sheet.text(text, { size: TEXT_SIZE, color: MUTED });
    }
  }
}

/** Adds a line for each reason, with its controls. */
function reasonsOf({ id }: CheckResult, controls: readonly ControlResult[]): string[] {
  const byBasis = new Map<string, string[]>();
  for (const control of controls) {
    const basis = control.checks.find((check) => check.id === id)?.basis;
    if (basis !== undefined) byBasis.set(basis, [...(byBasis.get(basis) ?? []), control.id]);
  }
  return [...byBasis].map(([basis, ids]) => (basis.startsWith(ids.join(", ")) ? basis : `${ids.join(", ")}: ${basis}`));
}

const EXEMPTIONS: Column[] = [
  { title: "Exemption", width: 215 },
  { title: "Category", width: 60 },
  { title: "Reason", width: 270 },
  { title: "Made by, at (UTC)", width: 130 },
  { title: "Until (UTC)", width: 94.89 },
];

function writeExemptions(sheet: Sheet, { exemptions }: Assessment): void {
  section(sheet, "Exemptions in force");
  if (exemptions.length === 0) {
    sheet.text("There is none for a check of this framework.", { size: TEXT_SIZE, color: MUTED });
    return;
  }
  if (sheet.y < CONTENT_BOTTOM + 40) sheet.nextPage();
  table(
    sheet,
    EXEMPTIONS,
    exemptions.map(({ id, category, reason, ticket, createdBy, createdAt, until }) => [
      cell(id),
      cell(category),
      cell(reason, ...(ticket === undefined ? [] : [`ticket ${ticket}`])),
      cell(createdBy, instant(createdAt)),
      cell(instant(until)),
    ]),
  );
}
