/**
 * `npm run compliance-page`: writes docs/compliance.md and docs/compliance-controls.md from shared/compliance. A check tests
 * one property of a vault or of its contents. A control is one numbered requirement of a framework, such as PCI DSS.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { CIS_RECOMMENDATIONS, CIS_VERSIONS } from "../../shared/compliance/controls/cis.ts";
import { POLICIES } from "../../shared/compliance/controls/policies.ts";
import { TEXT_MAPPINGS } from "../../shared/compliance/controls/text-mappings.ts";
import { SILENT_FRAMEWORKS, UNMAPPED } from "../../shared/compliance/controls/unmapped.ts";
import { controlsOf, FRAMEWORK_IDS, FRAMEWORKS, type FrameworkId } from "../../shared/compliance/controls.ts";
import { commandLine } from "./command-line.ts";
import { code, table } from "./markdown.ts";

const HELP = `npm run compliance-page

Writes docs/compliance.md, which explains why a framework asks for a check, and docs/compliance-controls.md, which lists the
controls, from shared/compliance.`;

const FOLDER = path.resolve(import.meta.dirname, "../../docs");
const NON_CIS_FRAMEWORK_IDS = FRAMEWORK_IDS.filter((id) => !(CIS_VERSIONS as readonly FrameworkId[]).includes(id));

const nameOf = (id: FrameworkId): string => `${FRAMEWORKS[id].name} ${FRAMEWORKS[id].version}`;
const joinNames = (checks: Iterable<string>): string => [...checks].map(code).join(", ");
/** Returns the name of the Azure policy, which is in quotes in the `basis` text of each entry of policies.ts. */
const policyIn = (basis: string): string => /"(.+)"/.exec(basis)![1]!;

/** Returns the contents of the two pages, by file name. */
export function compliancePages(): Record<string, string> {
  return { "compliance.md": reasonsPage(), "compliance-controls.md": controlsPage() };
}

function reasonsPage(): string {
  const cis = CIS_RECOMMENDATIONS.map(({ title, ids, checks }) => [title, ...ids, joinNames(checks) || "a person"]);
  const policies = POLICIES.map(({ basis, checks, controls: byFramework }) => [
    policyIn(basis),
    ...NON_CIS_FRAMEWORK_IDS.map((id) => byFramework[id] ?? "–"),
    joinNames(checks),
  ]);
  const texts = NON_CIS_FRAMEWORK_IDS.map((id) => {
    // A text that applies to two frameworks is listed under the first.
    const rows = TEXT_MAPPINGS.filter(
      ({ controls: by }) => by[id] && NON_CIS_FRAMEWORK_IDS.find((one) => by[one]) === id,
    );
    const cells = rows.map(({ basis, checks, controls: by }) => {
      const more = NON_CIS_FRAMEWORK_IDS.filter((one) => one !== id && by[one]).map((one) => `; ${one}: ${by[one]}`);
      return [`${by[id]}${more.join("")}`, basis, joinNames(checks)];
    });
    return `### ${nameOf(id)}\n\n${table(["control", "requirement", "checks"], cells)}`;
  });
  const unmapped = Map.groupBy(Object.keys(UNMAPPED), (check) => UNMAPPED[check]!);
  return `# Compliance checks and frameworks

Generated from \`shared/compliance/\` by \`npm run compliance-page\`. Don't edit this page. It lists every check and explains why a
framework asks for it. [compliance-controls.md](compliance-controls.md) lists the controls with their checks.

A check is mapped to a control for one of three reasons: a benchmark recommends it, Microsoft's policy sets map an Azure policy that
asks for the same, or the framework's text asks for it. The Compliance view (\`#/compliance\`) shows the score of each framework.

## Checks

${table(
  ["check", "severity", "applies to", "passes if"],
  CHECKS.map(({ id, severity, resourceType, title }) => [code(id), severity, resourceType, title]),
)}
## CIS Azure Foundations

The columns have the number of the recommendation in each version of the benchmark. "a person" means that no check can decide it.

${table(["recommendation", ...CIS_VERSIONS.map((id) => FRAMEWORKS[id].version), "checks"], cis)}
## Microsoft's policy sets

Microsoft maps each of these Azure policies to the controls in the row. The checks ask for the same as the policy.

${table(["Azure policy", ...NON_CIS_FRAMEWORK_IDS, "checks"], policies)}
## The frameworks' own texts

The second column summarizes the text in our words.

${texts.join("\n")}
## Checks without a control

${table(
  ["reason", "checks"],
  [...unmapped].map(([reason, checks]) => [reason, joinNames(checks)]),
)}
## What frameworks don't ask for

${table(
  ["framework", "about", "why there is no control"],
  SILENT_FRAMEWORKS.map(({ framework, about, reason }) => [framework, about, reason]),
)}
## Sources

${table(
  ["framework", "name", "source"],
  FRAMEWORK_IDS.map((id) => [code(id), nameOf(id), FRAMEWORKS[id].source]),
)}`;
}

function controlsPage(): string {
  const sections = NON_CIS_FRAMEWORK_IDS.map((id) => {
    const rows = controlsOf(id).map(({ id: control, title, checks }) => [
      control,
      title,
      joinNames(checks.keys()) || "a person",
    ]);
    return `## ${nameOf(id)}\n\n${table(["control", "title", "checks"], rows)}`;
  });
  return `# Controls and their checks

Generated from \`shared/compliance/\` by \`npm run compliance-page\`. Don't edit this page. [compliance.md](compliance.md) gives the reasons,
and has the recommendations of the CIS benchmark. "a person" means that no check can decide the control.

${sections.join("\n")}`;
}

if (import.meta.main) {
  commandLine(HELP, {});
  for (const [name, text] of Object.entries(compliancePages())) {
    const file = path.join(FOLDER, name);
    const isCurrent = existsSync(file) && readFileSync(file, "utf8") === text;
    writeFileSync(file, text);
    console.log(isCurrent ? `docs/${name} is up to date.` : `docs/${name} was written.`);
  }
}
