import { counted } from "../../platform/counted.ts";
import { createDocument } from "../../platform/pdf/document.ts";
import { HEADING_COLOR, MARGIN, MUTED_COLOR, type Sheet } from "../../platform/pdf/sheet.ts";
import { PRODUCT } from "../../platform/product.ts";
import { SEVERITIES } from "../check.ts";
import type { Violation, ViolationFilter } from "../violations.ts";
import { addEvidenceTable, addSection, instantText, TEXT_SIZE } from "./tables.ts";

/** The PDF export of violations: their evidence, grouped by check, with one remediation per check. */

/** Facts about the report that its pages show, and its font. */
interface ReportContext {
  filter: ViolationFilter;
  createdAt: Date;
  /** Path of the font file for characters outside Latin. Undefined: that of the installed package. */
  unicodeFont: string | undefined;
}

/** Writes violations as a PDF, grouped by check. Each group has the remediation of its first violation. */
export async function violationsDocument(
  violations: readonly Violation[],
  { filter, createdAt, unicodeFont }: ReportContext,
): Promise<Uint8Array> {
  const facts = { title: "Violations", createdAt, unicodeFont };
  return await createDocument(facts, `Violations, ${instantText(createdAt)} UTC`, (sheet) => {
    sheet.text("Violations", { size: 18, style: "bold", color: HEADING_COLOR });
    sheet.text(`${totalsText(violations)}.`, { size: 11, style: "bold" });
    sheet.y -= 2;
    sheet.fact("Service", PRODUCT);
    sheet.fact("Filters", filterText(filter));
    sheet.fact("Created", `${instantText(createdAt)} UTC`);
    for (const group of groupsOf(violations)) writeCheck(sheet, group, violations.length);
  });
}

function filterText(filter: ViolationFilter): string {
  const parts = Object.entries(filter).filter(([, value]) => value !== undefined);
  return parts.map(([name, value]) => `${name} ${value}`).join(", ") || "none";
}

function totalsText(violations: readonly Violation[]): string {
  const open = violations.filter(({ exempted }) => !exempted);
  const bySeverity = SEVERITIES.flatMap((severity) => {
    const count = open.filter((violation) => violation.severity === severity).length;
    return count > 0 ? [`${count} ${severity}`] : [];
  });
  const severities = bySeverity.length > 0 ? ` (${bySeverity.join(", ")})` : "";
  return `${counted(violations.length, "violation")}: ${open.length} open${severities}, ${violations.length - open.length} exempted`;
}

/** Groups violations by check, in the order of the list. */
function groupsOf(violations: readonly Violation[]): Violation[][] {
  const groups = new Map<string, Violation[]>();
  for (const violation of violations) {
    const group = groups.get(violation.checkId);
    if (group) group.push(violation);
    else groups.set(violation.checkId, [violation]);
  }
  return [...groups.values()];
}

function writeCheck(sheet: Sheet, group: readonly Violation[], total: number): void {
  const { title, severity, checkId, rationale, frameworks, resourceId, remediation } = group[0]!;
  addSection(sheet, `${title} (${severity}, ${group.length} of ${counted(total, "violation")})`);
  const frameworksText = frameworks.length > 0 ? `required by ${frameworks.join(", ")}` : "required by no framework";
  sheet.text(`${checkId}; ${frameworksText}. ${rationale}`, { size: TEXT_SIZE, color: MUTED_COLOR });
  const others = group.length > 1 ? ", as an example for the others" : "";
  sheet.text(`Fix for ${resourceId}${others}: ${remediation.portal}`, { size: TEXT_SIZE });
  for (const line of remediation.cli.split("\n")) sheet.text(line, { size: 8, color: MUTED_COLOR, x: MARGIN + 12 });
  sheet.y -= 3;
  addEvidenceTable(sheet, title, group);
}
