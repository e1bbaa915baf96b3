import { publicLimitAt } from "../compliance/limits.ts";
import { addSection, addTable, cell, instantText, number, TEXT_SIZE } from "../compliance/report/tables.ts";
import { assetId } from "../inventory/asset.ts";
import { RENEWER_NAMES } from "../inventory/renewal.ts";
import { createDocument } from "../platform/pdf/document.ts";
import { ALARM_COLOR, type Column, HEADING_COLOR, MUTED_COLOR, type Sheet } from "../platform/pdf/sheet.ts";
import { PRODUCT } from "../platform/product.ts";
import type { Readiness, ReadinessFilter, ReadinessSummary } from "./readiness.ts";

/** The PDF of the readiness report: the sums, who renews, why renewals would fail, and a line for each certificate. */

/** The filter and the sums of the report. */
interface ReportContext {
  filter: ReadinessFilter;
  summary: ReadinessSummary;
  createdAt: Date;
  unicodeFont: string | undefined;
}

const TITLE = "Certificate readiness";

const PROBLEMS: Record<Readiness["problems"][number]["code"], string> = {
  importedByHand: "Imported by hand, and no renewer is known",
  noRenewer: "No renewer is known",
  renewerStopped: "The renewal is late",
  pinnedConsumer: "A consumer names a version",
  keyNotExportable: "A consumer needs the private key, which can't be exported",
  noOwner: "No owner is named",
  triggerTooEarly: "The policy renews earlier than 47 days allow",
  orderNotMet: "The authority issued another validity than ordered",
};

/** Returns the PDF of the readiness report. */
export async function readinessDocument(items: readonly Readiness[], context: ReportContext): Promise<Uint8Array> {
  const { createdAt, unicodeFont } = context;
  const facts = { title: TITLE, createdAt, unicodeFont };
  return await createDocument(facts, `${TITLE}, ${instantText(createdAt)} UTC`, (sheet) => {
    sheet.text(TITLE, { size: 18, style: "bold", color: HEADING_COLOR });
    sheet.y -= 2;
    writeSummary(sheet, context);
    writeRenewers(sheet, context);
    writeProblems(sheet, context);
    writeCertificates(sheet, items);
  });
}

function writeSummary(sheet: Sheet, { filter, summary, createdAt }: ReportContext): void {
  const { certificates, ready, failing, unknown, renewalsPerYear, withoutRenewals, consumersKnown } = summary;
  const limit = publicLimitAt(createdAt.getTime());
  const filters = Object.entries(filter).filter(([, value]) => value !== undefined);
  sheet.fact("Service", PRODUCT);
  sheet.fact("Filters", filters.map(([name, value]) => `${name} ${value}`).join(", ") || "none");
  sheet.fact("Certificates", `${certificates}: ${ready} ready, ${failing} failing, ${unknown} unknown`);
  sheet.fact(
    "Renewals a year",
    `${renewalsPerYear.today} under the limit of today (${limit.days} days), ${renewalsPerYear.at100Days} under 100 days, ${renewalsPerYear.at47Days} under 47 days`,
  );
  if (withoutRenewals > 0)
    sheet.fact("Left out", `${withoutRenewals} certificates whose details a scan must read again`, ALARM_COLOR);
  if (!consumersKnown)
    sheet.fact(
      "Not known",
      "Consumers, because dependencies were not discovered. Pinned versions are missing.",
      ALARM_COLOR,
    );
  const text =
    "A number of renewals is 365 days divided by the shorter of the certificate's validity and the limit, rounded up. The limits of the CA/Browser Forum (ballot SC-081v3) apply to publicly trusted certificates only.";
  sheet.text(text, { size: TEXT_SIZE, color: MUTED_COLOR });
}

/** Widths are in points. In each table they add up to 769.89, the width of a landscape A4 page without its margins. */
const RENEWER_COLUMNS: Column[] = [
  { title: "Renewed by", width: 409.89 },
  { title: "Certificates", width: 90, right: true },
  { title: "A year, today", width: 90, right: true },
  { title: "At 100 days", width: 90, right: true },
  { title: "At 47 days", width: 90, right: true },
];

function writeRenewers(sheet: Sheet, { summary: { byRenewer } }: ReportContext): void {
  if (byRenewer.length === 0) return;
  addSection(sheet, "Who renews");
  addTable(
    sheet,
    "Who renews",
    RENEWER_COLUMNS,
    byRenewer.map(({ renewedBy, certificates, renewalsPerYear: { today, at100Days, at47Days } }) => [
      cell(RENEWER_NAMES[renewedBy].label),
      number(certificates, renewedBy === "none" ? ALARM_COLOR : undefined),
      number(today),
      number(at100Days),
      number(at47Days),
    ]),
  );
}

const PROBLEM_COLUMNS: Column[] = [
  { title: "Problem", width: 679.89 },
  { title: "Certificates", width: 90, right: true },
];

function writeProblems(sheet: Sheet, { summary: { byProblem } }: ReportContext): void {
  if (byProblem.length === 0) return;
  addSection(sheet, "Why renewals would fail");
  addTable(
    sheet,
    "Why renewals would fail",
    PROBLEM_COLUMNS,
    byProblem.map(({ code, certificates }) => [cell(PROBLEMS[code]), number(certificates)]),
  );
}

const CERTIFICATE_COLUMNS: Column[] = [
  { title: "Certificate", width: 200 },
  { title: "Owner", width: 105 },
  { title: "Renewed by", width: 80 },
  { title: "Validity in days", width: 55, right: true },
  { title: "Today", width: 40, right: true },
  { title: "100", width: 35, right: true },
  { title: "47", width: 35, right: true },
  { title: "Problems", width: 219.89 },
];

/** Lists the failing certificates first. */
function writeCertificates(sheet: Sheet, items: readonly Readiness[]): void {
  if (items.length === 0) return;
  addSection(sheet, "Certificates with their renewals a year");
  const sorted = [...items].sort((a, b) => Number(b.state === "failing") - Number(a.state === "failing"));
  const text = (value: number | undefined) => cell(value === undefined ? "unknown" : String(value));
  addTable(
    sheet,
    "Certificates with their renewals a year",
    CERTIFICATE_COLUMNS,
    sorted.map(({ asset, owner, renewal, validityDays, renewalsPerYear, problems }) => [
      cell(assetId(asset)),
      cell(owner ?? "none named"),
      cell(RENEWER_NAMES[renewal.renewedBy].label),
      text(validityDays),
      text(renewalsPerYear?.today),
      text(renewalsPerYear?.at100Days),
      text(renewalsPerYear?.at47Days),
      cell(...(problems.length > 0 ? problems.map(({ detail }) => detail) : ["none"])),
    ]),
  );
}
