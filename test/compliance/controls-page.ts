import type { Check } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { SILENT_FRAMEWORKS, UNMAPPED } from "../../shared/compliance/controls/unmapped.ts";
import { controlsOf, controlsOfCheck, FRAMEWORK_IDS, FRAMEWORKS } from "../../shared/compliance/controls.ts";

/** The page that shows people which control asks for which check, as it follows from the code. */

const row = (...cells: string[]): string => `| ${cells.join(" | ")} |`;
const table = (columns: string[], rows: string[][]): string =>
  [row(...columns), row(...columns.map(() => "---")), ...rows.map((cells) => row(...cells))].join("\n");

/** A row for each reason that a check has controls. */
function rowsOf({ id, severity, resourceType }: Check): string[][] {
  const byBasis = new Map<string, Map<string, string[]>>();
  for (const { framework, control, basis } of controlsOfCheck(id)) {
    const controls = byBasis.get(basis) ?? new Map<string, string[]>();
    controls.set(framework, [...(controls.get(framework) ?? []), control]);
    byBasis.set(basis, controls);
  }
  if (byBasis.size === 0) return [[`\`${id}\``, severity, resourceType, "none", UNMAPPED[id]!]];
  return [...byBasis].map(([basis, controls]) => [
    `\`${id}\``,
    severity,
    resourceType,
    [...controls].map(([framework, ids]) => `${framework}: ${ids.join(", ")}`).join("; "),
    basis,
  ]);
}

export const controlsPage = (): string => `# Checks and the controls they speak to

Made from \`shared/compliance/controls/\`, and held to it by a test (\`npx vitest run test/compliance/controls.test.ts --update=all\` writes it anew).
A check has a control where a benchmark recommends the same, where Microsoft's own regulatory policy sets hold an Azure policy
that asks the same against it, or where the framework's text asks for it, told here in our words. A check without one says why.

## Checks

${table(["check", "severity", "of", "controls", "text and source"], CHECKS.flatMap(rowsOf))}

## What frameworks don't ask for

${table(
  ["framework", "about", "why there is no control"],
  SILENT_FRAMEWORKS.map(({ framework, about, reason }) => [framework, about, reason]),
)}

## Sources

${table(
  ["framework", "name", "source"],
  FRAMEWORK_IDS.map((id) => [`\`${id}\``, `${FRAMEWORKS[id].name} ${FRAMEWORKS[id].version}`, FRAMEWORKS[id].source]),
)}

## Controls

A control without a check needs a person.

${table(
  ["framework", "control", "title", "checks"],
  FRAMEWORK_IDS.flatMap((framework) =>
    controlsOf(framework).map(({ id, title, checks }) => [
      framework,
      id,
      title,
      [...checks.keys()].map((check) => `\`${check}\``).join(", ") || "none",
    ]),
  ),
)}
`;
