// Formats the results of preflight for people and for programs.

import type { NamedResult } from "./checks.ts";
import type { Context } from "./context.ts";
import type { Finding } from "./finding.ts";
import type { Value } from "./values.ts";

/** Findings of the same kind that the report for people shows. Programs get all. */
const MAX_OF_A_KIND = 10;

const HEADINGS = {
  stops: "Stops the deployment",
  degrades: "Degrades the service",
  notChecked: "Not checked",
} as const;

/** Exit codes: a finding of the severity `stops` exits with 1. */
export const exitCodeOf = (results: readonly NamedResult[]): number =>
  results.some(({ findings }) => findings.some(({ severity }) => severity === "stops")) ? 1 : 0;

/** The report for programs. */
export function jsonReport(
  context: Context,
  results: readonly NamedResult[],
  parameters: Record<string, Value>,
): object {
  const { subscription, signedIn, plan, language } = context;
  const findings = results.flatMap(({ name, findings: found }) => found.map((one) => ({ check: name, ...one })));
  const count = (severity: Finding["severity"]) => findings.filter((one) => one.severity === severity).length;
  return {
    subscription: { id: subscription.id, name: subscription.name, tenantId: subscription.tenantId },
    signedInAs: {
      objectId: signedIn.objectId ?? null,
      name: signedIn.name ?? null,
      tenantId: signedIn.tenantId ?? null,
    },
    language,
    counts: { stops: count("stops"), degrades: count("degrades"), notChecked: count("notChecked") },
    checks: results.map(({ name, summary, findings: found }) => ({ name, summary, findings: found.length })),
    findings,
    resources: plan.resources.map(({ type, name, scope }) => ({ type, name: name ?? null, scope })),
    parameters,
  };
}

/** The report for people, as lines. */
export function textReport({ subscription, signedIn, plan }: Context, results: readonly NamedResult[]): string[] {
  const width = Math.max(...results.map(({ name }) => name.length));
  const lines = [
    `Signed in as ${signedIn.name ?? signedIn.objectId ?? "unknown"}. Subscription ${subscription.name} (${subscription.id}).`,
    `The deployment would write ${plan.resources.length} resources. Nothing was changed.`,
    "",
    "Checked",
    ...results.map(({ name, summary, findings }) => `  ${mark(findings)} ${name.padEnd(width)}  ${summary}`),
  ];
  for (const severity of ["stops", "degrades", "notChecked"] as const) {
    const findings = results.flatMap((result) => result.findings.filter((one) => one.severity === severity));
    if (findings.length === 0) continue;
    lines.push("", `${HEADINGS[severity]} (${findings.length})`);
    for (const kind of new Set(findings.map(({ code }) => code))) {
      const ofKind = findings.filter(({ code }) => code === kind);
      lines.push(...ofKind.slice(0, MAX_OF_A_KIND).flatMap(linesOf));
      const rest = ofKind.length - MAX_OF_A_KIND;
      if (rest > 0) lines.push(`  … and ${rest} more ${kind} (--json lists all).`);
    }
  }
  const isReady = exitCodeOf(results) === 0;
  const openCount = results.flatMap(({ findings }) =>
    findings.filter(({ severity }) => severity === "notChecked"),
  ).length;
  const ready = `Nothing found that stops the deployment${openCount > 0 ? `, but not everything could be checked (${openCount})` : ""}.`;
  lines.push("", isReady ? ready : "The deployment would fail. Fix the findings above.");
  // Names come from the cloud. A line break in one would look like another line, such as a command.
  return lines.map((line) => line.replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, " "));
}

function mark(findings: readonly Finding[]): string {
  if (findings.some(({ severity }) => severity === "stops")) return "✗";
  return findings.length > 0 ? "!" : "✓";
}

const linesOf = ({ code, subject, message, remedy, command }: Finding): string[] => [
  `  ${subject}  [${code}]`,
  `    ${message}`,
  `    ${remedy}`,
  `      ${command}`,
];
