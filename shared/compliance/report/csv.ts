/** The CSV files of violations and of a framework's results. */
import { type Column, createCsv } from "../../platform/csv.ts";
import { FRAMEWORKS } from "../controls.ts";
import type { CheckResult, ControlResult, FrameworkResult } from "../frameworks.ts";
import type { Violation } from "../violations.ts";

type Plain = Exclude<keyof Violation, "frameworks" | "controls" | "remediation">;
/** A column named like the member it shows. */
const member = (name: Plain): Column<Violation> => ({ label: name, value: (violation) => violation[name] });

/**
 * The columns of violations. Add new columns at the end, because users read columns by position. The column `controls` contains
 * `<framework> <control>`, separated by `; `.
 */
const violations = createCsv<Violation>([
  member("id"),
  member("severity"),
  member("checkId"),
  member("title"),
  member("resourceType"),
  member("resourceId"),
  member("resourceName"),
  member("vaultName"),
  member("subscriptionId"),
  member("owner"),
  member("evidence"),
  member("firstSeenAt"),
  member("lastSeenAt"),
  member("exempted"),
  member("exemptionId"),
  {
    label: "controls",
    value: ({ controls }) => controls.map(({ framework, control }) => `${framework} ${control}`).join("; "),
  },
  { label: "remedyPortal", value: ({ remediation }) => remediation.portal },
  { label: "remedyCli", value: ({ remediation }) => remediation.cli },
  member("credentialTitle"),
]);

export const violationsCsv = (rows: readonly Violation[]): string =>
  `${violations.header()}${violations.rows(rows)}\r\n`;

interface ControlLine {
  framework: FrameworkResult;
  control: ControlResult;
  /** Undefined if the control must be assessed manually. */
  check: CheckResult | undefined;
}

const controls = createCsv<ControlLine>([
  { label: "framework", value: ({ framework }) => framework.id },
  { label: "control", value: ({ control }) => control.id },
  { label: "title", value: ({ control }) => control.title },
  { label: "status", value: ({ control }) => control.status },
  { label: "checkId", value: ({ check }) => check?.id },
  { label: "checkTitle", value: ({ check }) => check?.title },
  { label: "severity", value: ({ check }) => check?.severity },
  { label: "resourceType", value: ({ check }) => check?.resourceType },
  { label: "passed", value: ({ check }) => check?.passed },
  { label: "failed", value: ({ check }) => check?.failed },
  { label: "exempted", value: ({ check }) => check?.exempted },
  { label: "basis", value: ({ check }) => check?.basis },
  { label: "notAssessed", value: ({ control }) => control.notAssessed },
]);

/** Returns a line for each control and check, and one for a control without checks. */
export function frameworkCsv(framework: FrameworkResult): string {
  const lines = framework.controls.flatMap((control): ControlLine[] =>
    control.checks.length === 0
      ? [{ framework, control, check: undefined }]
      : control.checks.map((check) => ({ framework, control, check })),
  );
  return `${controls.header()}${controls.rows(lines)}\r\n`;
}

/** The files' header lines, for the API description. */
export const VIOLATIONS_CSV_EXAMPLE = violations.header();
export const FRAMEWORK_CSV_EXAMPLE = controls.header();
export const frameworkName = ({ id }: Pick<FrameworkResult, "id">): string =>
  `${FRAMEWORKS[id].name} ${FRAMEWORKS[id].version}`;
