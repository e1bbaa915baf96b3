import { PRODUCT } from "../../platform/product.ts";
import type { Severity } from "../check.ts";
import { CHECKS, checkOfId } from "../checks/all.ts";
import type { Violation } from "../violations.ts";

/**
 * Violations as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html), for code scanning and other
 * programs that read the results of analyses. Each part is a log with one run.
 */

/** SARIF has three levels. */
const LEVELS: Record<Severity, "error" | "warning" | "note"> = {
  critical: "error",
  high: "error",
  medium: "warning",
  low: "note",
};
/** GitHub shows a severity by this number, from 0 to 10. */
const SECURITY_SEVERITIES: Record<Severity, string> = { critical: "9.5", high: "8.0", medium: "5.0", low: "2.0" };

/** Returns text of a message: braces and brackets mean placeholders and links there (SARIF, sections 3.11.5 and 3.11.6). */
const messageText = (text: string): string =>
  text
    .replaceAll(/[\\[\]]/g, "\\$&")
    .replaceAll("{", "{{")
    .replaceAll("}", "}}");

/** Returns a segment of an address. `encodeURIComponent` rejects half of a surrogate pair. */
const pathSegment = (name: string): string => encodeURIComponent(name.toWellFormed());

/** Returns a log with these violations. `rules` has only their checks. */
export function violationsSarif(violations: readonly Violation[], version: string): string {
  const ids = new Set(violations.map(({ checkId }) => checkId));
  const rules = CHECKS.filter(({ id }) => ids.has(id));
  const indexes = new Map(rules.map(({ id }, index) => [id, index]));
  const driver = {
    name: PRODUCT,
    version,
    rules: rules.map(({ id, title, rationale, severity }) => ({
      id,
      shortDescription: { text: title },
      fullDescription: { text: rationale },
      help: { text: rationale },
      defaultConfiguration: { level: LEVELS[severity] },
      properties: { "security-severity": SECURITY_SEVERITIES[severity], tags: ["security"] },
    })),
  };
  const log = {
    $schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
    version: "2.1.0",
    runs: [
      {
        tool: { driver },
        automationDetails: { id: "compliance/" },
        results: violations.map((violation) => resultOf(violation, indexes.get(violation.checkId)!)),
      },
    ],
  };
  return JSON.stringify(log);
}

function resultOf(violation: Violation, ruleIndex: number) {
  const { id, checkId, resourceId, resourceType, resourceName, vaultName, owner, severity, title, evidence } =
    violation;
  const name = violation.credentialTitle ?? resourceName;
  const isVault = resourceType === "vault";
  // A resource has no file. Code scanning needs an address, so it gets a relative one that names the resource.
  const uri = [...(vaultName === null || isVault ? [] : [vaultName]), ...(isVault ? [] : [resourceType]), name]
    .map(pathSegment)
    .join("/");
  return {
    ruleId: checkId,
    ruleIndex,
    level: LEVELS[checkOfId.get(checkId)!.severity],
    message: {
      text: messageText(`${title}: ${isVault || vaultName === null ? name : `${vaultName}/${name}`}. ${evidence}`),
    },
    locations: [
      {
        physicalLocation: { artifactLocation: { uri } },
        logicalLocations: [{ name, fullyQualifiedName: resourceId, kind: "resource" }],
      },
    ],
    partialFingerprints: { "violation/v1": id },
    // Absent without an exemption: an empty list says that suppressions were looked for.
    ...(violation.exempted && {
      suppressions: [{ kind: "external", status: "accepted", justification: `Exemption ${violation.exemptionId}` }],
    }),
    properties: {
      severity,
      owner,
      vault: vaultName,
      subscription: violation.subscriptionId,
      firstSeenAt: violation.firstSeenAt,
      lastSeenAt: violation.lastSeenAt,
      remediation: violation.remediation.portal,
    },
  };
}

/** An empty log, for the API description. */
export const VIOLATIONS_SARIF_EXAMPLE = violationsSarif([], "1.0.0");
