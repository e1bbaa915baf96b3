/**
 * `npm run compliance-page`: writes docs/compliance.md and docs/compliance-controls.md from shared/compliance, and
 * docs/post-quantum.md from shared/cryptography. A check tests
 * one property of a vault or of its contents. A control is one numbered requirement of a framework, such as PCI DSS.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { SEVERITIES, SEVERITY_WEIGHTS } from "../../shared/compliance/check.ts";
import { CHECKS } from "../../shared/compliance/checks/all.ts";
import { APPROVED_CURVES, APPROVED_KEY_TYPES, MIN_RSA_BITS } from "../../shared/compliance/checks/cryptography.ts";
import { CIS_RECOMMENDATIONS, CIS_VERSIONS } from "../../shared/compliance/controls/cis.ts";
import { MORE_TEXT_MAPPINGS } from "../../shared/compliance/controls/more-text-mappings.ts";
import { NOT_ASSESSED } from "../../shared/compliance/controls/not-assessed.ts";
import { POLICIES } from "../../shared/compliance/controls/policies.ts";
import { TEXT_MAPPINGS } from "../../shared/compliance/controls/text-mappings.ts";
import { SILENT_FRAMEWORKS, UNMAPPED } from "../../shared/compliance/controls/unmapped.ts";
import { controlsOf, FRAMEWORK_IDS, FRAMEWORKS, type FrameworkId } from "../../shared/compliance/controls.ts";
import * as limits from "../../shared/compliance/limits.ts";
import { INTEGRATED_AUTHORITIES } from "../../shared/compliance/public-certificates.ts";
import { RULES, STANDARDS } from "../../shared/cryptography/rules.ts";
import { UNSEEN_AFTER_MS } from "../../shared/inventory/holder.ts";
import { DAY_MS } from "../../shared/platform/time.ts";
import { DEFINITIONS } from "../../shared/settings/definitions.ts";
import { commandLine } from "./command-line.ts";
import { code, table } from "./markdown.ts";

const HELP = `npm run compliance-page

Writes docs/compliance.md, which explains why a framework asks for a check, and docs/compliance-controls.md, which lists the
controls, from shared/compliance. Writes docs/post-quantum.md, the dates of algorithms, from shared/cryptography.`;

const FOLDER = path.resolve(import.meta.dirname, "../../docs");
const NON_CIS_FRAMEWORK_IDS = FRAMEWORK_IDS.filter((id) => !(CIS_VERSIONS as readonly FrameworkId[]).includes(id));

/** Frameworks to which Microsoft's policy sets map policies. */
const POLICY_FRAMEWORK_IDS = NON_CIS_FRAMEWORK_IDS.filter((id) => POLICIES.some(({ controls }) => controls[id]));
const ALL_TEXT_MAPPINGS = [...TEXT_MAPPINGS, ...MORE_TEXT_MAPPINGS];

const nameOf = (id: FrameworkId): string => `${FRAMEWORKS[id].name} ${FRAMEWORKS[id].version}`;
const joinNames = (checks: Iterable<string>): string => [...checks].map(code).join(", ");
/** Returns the name of the Azure policy, which is in quotes in the `basis` text of each entry of policies.ts. */
const policyIn = (basis: string): string => /"(.+)"/.exec(basis)![1]!;

/** The numbers that checks compare with: name, value, and the checks. */
const LIMITS: [string, string, string][] = [
  [
    "critical threshold",
    `${DEFINITIONS.criticalExpiryDays.default} days (\`criticalExpiryDays\`)`,
    "`…-near-expiry-critical`",
  ],
  [
    "warning threshold",
    `${DEFINITIONS.warningExpiryDays.default} days (\`warningExpiryDays\`)`,
    "`…-near-expiry-warning`",
  ],
  [
    "longest validity of a vault's secret or key",
    `${limits.MAX_VALIDITY_DAYS} days`,
    "`secret-validity-period`, `key-validity-period`",
  ],
  [
    "longest use of a vault's secret or key",
    `${limits.MAX_ACTIVE_DAYS} days`,
    "`secret-active-period`, `key-active-period`",
  ],
  [
    "longest validity of a vault's private certificate",
    `${limits.MAX_CERTIFICATE_MONTHS} months`,
    "`certificate-validity-period`",
  ],
  [
    "longest validity of a vault's publicly trusted certificate, by its first day",
    limits.PUBLIC_CERTIFICATE_LIMITS.map(({ from, days }) => `${days} days from ${from}`).join(", "),
    "`certificate-validity-period`",
  ],
  [
    "longest validity of a client secret",
    `${limits.MAX_CLIENT_SECRET_DAYS} days`,
    "`client-secret-validity-period`, `client-secret-validity-period-b2c`",
  ],
  [
    "longest validity of an application's certificate",
    `${limits.MAX_APPLICATION_CERTIFICATE_DAYS} days`,
    "`application-certificate-validity-period`, `application-certificate-validity-period-b2c`",
  ],
  ["smallest RSA key", `${MIN_RSA_BITS} bits`, "`key-rsa-size`, `certificate-rsa-size`"],
  ["key types", APPROVED_KEY_TYPES.join(", "), "`key-type`"],
  ["curves", APPROVED_CURVES.join(", "), "`key-curve`, `certificate-curve`"],
  [
    "words in the issuer of an integrated authority",
    INTEGRATED_AUTHORITIES.source.replace(/\\b|[()]/g, "").replaceAll("|", ", "),
    "`certificate-issuer`",
  ],
  ["unseen credentials count for", `${UNSEEN_AFTER_MS / DAY_MS} days`, "all checks of credentials outside key vaults"],
];

/** Returns the contents of the pages, by file name. */
export function compliancePages(): Record<string, string> {
  return {
    "compliance.md": reasonsPage(),
    "compliance-controls.md": controlsPage(),
    "post-quantum.md": postQuantumPage(),
  };
}

function reasonsPage(): string {
  const cis = CIS_RECOMMENDATIONS.map(({ title, ids, checks }) => [title, ...ids, joinNames(checks) || "a person"]);
  const policies = POLICIES.map(({ basis, checks, controls: byFramework }) => [
    policyIn(basis),
    ...POLICY_FRAMEWORK_IDS.map((id) => byFramework[id] ?? "–"),
    joinNames(checks),
  ]);
  const texts = NON_CIS_FRAMEWORK_IDS.map((id) => {
    // A text that applies to two frameworks is listed under the first.
    const rows = ALL_TEXT_MAPPINGS.filter(
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

## How the score is computed

A check and a resource that it judges are a pair, which passes or fails. The score is 100 × the weight of the passed pairs ÷ the weight of
all pairs, rounded to one decimal, and 100 without pairs. A framework's score counts the pairs of its checks, each once. Failures with an
active exemption are counted as \`exempted\` and are no pairs.

${table(
  ["severity", "weight"],
  SEVERITIES.map((severity) => [severity, String(SEVERITY_WEIGHTS[severity])]),
)}
A control fails if a pair of its checks fails, passes if none fails and one passes, and is not applicable without pairs. Its counts are the
sums over its checks.

**What is evaluated.** Key vaults in watched subscriptions with their secrets, keys and certificates; with PRO also client secrets and
certificates of applications and service principals, and credentials of B2C tenants. The secret and the key that belong to a certificate
are no assets, nor is the password of a certificate's private key, which Entra lists under the certificate's key ID. The two entries of a token-signing certificate, one to sign and one to verify with the same thumbprint and dates, are one. Disabled
assets are not evaluated by any check. An asset whose details could not be read is evaluated by what is known of it. IDs of assets are in
lower case.

**Times.** All dates are compared to the second. An asset expires after its expiration date, so at that second it is still valid. The
validity starts at the activation date, or else at the creation date; that of an application's credential at its start date. A client
secret fails \`client-secret-alone\` if another client secret of its application has no expiration date or, unless this one has none, one
that is not earlier.

**Public certificates.** A certificate is publicly trusted if signed certificate timestamps are embedded in it or its authority is
integrated with Key Vault. [certificates.md](certificates.md) describes renewals and the dated limits.

**Vaults.** \`vault-firewall\` passes if public network access is disabled or the firewall's default action is Deny, \`vault-private-endpoint\`
with an approved connection, \`vault-audit-logging\` if a diagnostic setting collects the category AuditEvent or a group that includes it.
A vault without soft delete fails \`vault-purge-protection\` too.

## Limits

A value that equals a limit passes, except at the two thresholds: an asset that expires in exactly so many days fails.
A certificate with a [renewer](glossary.md) passes the checks of near expiry until its renewal is late
([decision 27](decisions/0027-certificates-by-renewal.md)).

${table(["limit", "value", "checks"], LIMITS)}
## Checks

"Only for" says which enabled assets, or which vaults, a check evaluates; all if it is empty. For the others the check is not applicable.

${table(
  ["check", "severity", "applies to", "only for", "passes if"],
  CHECKS.map(({ id, severity, resourceType, onlyFor, title }) => [code(id), severity, resourceType, onlyFor, title]),
)}
## CIS Azure Foundations

The columns have the number of the recommendation in each version of the benchmark. "a person" means that no check can decide it.

${table(["recommendation", ...CIS_VERSIONS.map((id) => FRAMEWORKS[id].version), "checks"], cis)}
## Microsoft's policy sets

Microsoft maps each of these Azure policies to the controls in the row. The checks ask for the same as the policy.

${table(["Azure policy", ...POLICY_FRAMEWORK_IDS, "checks"], policies)}
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
## Not assessed

These controls ask for something that the service can't see. A person must review it, also if all checks of the control pass.

${table(
  ["framework", "control", "not assessed"],
  NOT_ASSESSED.map(({ framework, control, reason }) => [nameOf(framework), control, reason]),
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

function postQuantumPage(): string {
  const rules = RULES.map(({ standard, about, deprecatedAfter, disallowedAfter, neverAllowed, text }) => [
    `[${STANDARDS[standard].name}](${STANDARDS[standard].source})`,
    about,
    deprecatedAfter ?? "–",
    neverAllowed ? "never allowed" : (disallowedAfter ?? "–"),
    text,
  ]);
  return `# Algorithms, and when they end

Generated from \`shared/cryptography/rules.ts\` by \`npm run compliance-page\`. Don't edit this page. It shows how to list which
algorithms protect what until when, and the dates of each standard.

## Find what must change first

Open \`#/compliance/post-quantum\`, or call:

\`\`\`sh
curl -H "Authorization: Bearer $TOKEN" "$SERVICE/compliance/post-quantum?limit=10"
\`\`\`

Any signed-in user can read the list. It has the enabled keys and certificates that count for the score, also those of applications. The first
assets are those that a quantum computer breaks (RSA and elliptic curves), then those of unknown algorithms. Among them, the order is:

1. \`protectUntil\`, the latest first: the last day on which what the asset protects must stay protected. Data that is recorded today can be
   decrypted later.
2. \`consumers\`, the most first: the resources that use the asset. They need PRO and a [discovery of dependencies](dependencies.md).

The first of these that exists decides \`protectUntil\`:

| source | value |
| --- | --- |
| \`tag\` | The tag that [\`PROTECT_UNTIL_TAG\`](settings.md) names, \`protectUntil\` by default: a date (\`2040-06-30\`), or a year, which means its last day. |
| \`expiry\` | For certificates: the expiration date. Their signatures prove who answers now, not later. |
| \`setting\` | [\`PROTECTION_YEARS\`](settings.md) from today, 10 by default. |

\`exposedDays\` are the days from the earliest \`disallowedAfter\` to \`protectUntil\`. Each request reads all keys and certificates that match
the filters, one request to the tables for each 1,000, so follow \`nextCursor\` only as far as you need.

## Export the algorithms

\`GET /compliance/cbom\` returns a cryptographic bill of materials in [CycloneDX 1.7](https://cyclonedx.org/docs/1.7/json/), also of disabled
assets. Each part is a valid document with up to 5,000 assets, and the header \`Link\` leads to the next part.

- A key has its size, dates, state, and whether hardware protects it. A certificate has its names, validity and thumbprint. Its public key is a
  component of its own. Algorithms are components that keys, certificates and signatures refer to.
- \`dependencies\` has the resources that use an asset, and the application of a credential.
- The serial number is a hash of the contents, and the references are the asset IDs, so two exports can be compared.
- The operations of keys are not read, so an RSA algorithm has the primitive \`other\`. Scans by earlier versions did not store the algorithm of
  signatures. Scheduled full scans read it again within [\`DETAIL_REFRESH_DAYS\`](settings.md).

## Dates of the standards

A date is the last day of a use. A year in a standard means its last day. The first row of a standard that matches an asset applies. Keys can
sign or encrypt, and the service does not know which, so the earlier date of encryption applies to keys. CNSA 2.0 binds only national security
systems of the United States.

${table(["standard", "algorithm", "deprecated after", "disallowed after", "text"], rules)}`;
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
