/**
 * Which control of which framework each check speaks to: the one table, as its sources write it. A check that no source
 * maps has no control.
 *
 * Sources: the CIS columns follow the published benchmarks as Prowler (prowler/compliance/azure/cis_*_azure.json) and
 * Powerpipe (turbot/steampipe-mod-azure-compliance) map them; the others are the control groups of Microsoft's own policy
 * sets (Azure/azure-policy, built-in-policies/policySetDefinitions), each column naming its file, but for the rows of
 * applications.
 */

interface FrameworkFacts {
  name: string;
  version: string;
  source: string;
}

const CIS = "CIS Microsoft Azure Foundations Benchmark";
const cisSource = (file: string) => `https://github.com/prowler-cloud/prowler prowler/compliance/azure/${file}`;
const policySet = (file: string) =>
  `https://github.com/Azure/azure-policy built-in-policies/policySetDefinitions/${file}`;

export const FRAMEWORKS = {
  "cis-azure-2.1.0": { name: CIS, version: "2.1.0", source: cisSource("cis_2.1_azure.json") },
  "cis-azure-3.0.0": { name: CIS, version: "3.0.0", source: cisSource("cis_3.0_azure.json") },
  "cis-azure-4.0.0": { name: CIS, version: "4.0.0", source: cisSource("cis_4.0_azure.json") },
  "cis-azure-5.0.0": { name: CIS, version: "5.0.0", source: cisSource("cis_5.0_azure.json") },
  "cis-azure-6.0.0": { name: CIS, version: "6.0.0", source: cisSource("cis_6.0_azure.json") },
  "iso-27001-2022": {
    name: "ISO/IEC 27001 Annex A",
    version: "2022",
    source: policySet("Regulatory Compliance/ISO_IEC_27002_2022.json (1.7.0), whose numbers are those of Annex A"),
  },
  "mcsb-v3": {
    name: "Microsoft Cloud Security Benchmark",
    version: "3",
    source: policySet("Security Center/AzureSecurityCenter.json (57.56.0)"),
  },
  "nist-800-53-r5": {
    name: "NIST SP 800-53",
    version: "R5.1.1",
    source: policySet("Regulatory Compliance/NIST_SP_800-53_R5.1.1.json (1.7.0)"),
  },
  "pci-dss-4.0.1": {
    name: "PCI DSS",
    version: "4.0.1",
    source: policySet("Regulatory Compliance/PCI_DSS_v4.0.1.json (1.6.0)"),
  },
  "soc-2": {
    name: "SOC 2",
    version: "Type 2",
    source: policySet("Regulatory Compliance/SOC_2.json (1.12.0)"),
  },
} as const satisfies Record<string, FrameworkFacts>;

export type FrameworkId = keyof typeof FRAMEWORKS;
export const FRAMEWORK_IDS = Object.keys(FRAMEWORKS) as FrameworkId[];

/** One id per version of the benchmark; "-" where a version has no such control. */
const CIS_VERSIONS = ["2.1.0", "3.0.0", "4.0.0", "5.0.0", "6.0.0"] as const;

interface CisRow {
  title: string;
  ids: readonly [string, string, string, string, string];
  /** Absent where only a person can tell. */
  check?: string;
}

const CIS_CONTROLS: readonly CisRow[] = [
  {
    title: "Expiry on keys, RBAC vault",
    ids: ["8.1", "3.3.1", "9.3.1", "8.3.1", "8.3.1"],
    check: "key-expiry-set-rbac",
  },
  {
    title: "Expiry on keys, access-policy vault",
    ids: ["8.2", "3.3.2", "9.3.2", "8.3.2", "8.3.2"],
    check: "key-expiry-set-access-policy",
  },
  {
    title: "Expiry on secrets, RBAC vault",
    ids: ["8.3", "3.3.3", "9.3.3", "8.3.3", "8.3.3"],
    check: "secret-expiry-set-rbac",
  },
  {
    title: "Expiry on secrets, access-policy vault",
    ids: ["8.4", "3.3.4", "9.3.4", "8.3.4", "8.3.4"],
    check: "secret-expiry-set-access-policy",
  },
  { title: "Key vault is recoverable", ids: ["8.5", "3.3.5", "9.3.5", "8.3.5", "8.3.5"], check: "vault-recoverable" },
  {
    title: "Role-based access control is enabled",
    ids: ["8.6", "3.3.6", "9.3.6", "8.3.6", "8.3.6"],
    check: "vault-rbac",
  },
  {
    title: "Public network access is disabled",
    ids: ["-", "-", "9.3.7", "8.3.7", "8.3.7"],
    check: "vault-public-access",
  },
  {
    title: "Private endpoints are used",
    ids: ["8.7", "3.3.7", "9.3.8", "8.3.8", "8.3.8"],
    check: "vault-private-endpoint",
  },
  {
    title: "Automatic key rotation is enabled",
    ids: ["8.8", "3.3.8", "9.3.9", "8.3.9", "8.3.9"],
    check: "key-rotation-policy",
  },
  { title: "Managed HSM is used when required", ids: ["-", "-", "9.3.10", "8.3.10", "8.3.10"] },
  {
    title: "Certificate validity is at most 12 months",
    ids: ["-", "-", "-", "8.3.11", "8.3.11"],
    check: "certificate-validity-period",
  },
  {
    title: "Key vault audit logging is enabled",
    ids: ["5.1.4", "6.1.4", "7.1.1.4", "6.1.1.4", "6.1.1.4"],
    check: "vault-audit-logging",
  },
  { title: "Defender for Key Vault is on", ids: ["2.1.9", "3.1.8.1", "9.1.8.1", "8.1.8.1", "8.1.8.1"] },
  { title: "App Service keeps its secrets in key vaults", ids: ["9.10", "9.11", "-", "-", "-"] },
  { title: "Users cannot register applications", ids: ["1.13", "2.14", "6.14", "5.14", "-"] },
  { title: "Web apps are registered with Entra ID", ids: ["9.4", "9.5", "-", "-", "-"] },
];

const EXPIRY_PCI = "3.6.1, 3.6.1.1, 3.7.1-3.7.3, 3.7.5-3.7.8";
const ACCESS_PCI = "7.2.1-7.2.6, 7.2.5.1";
const KEY_TYPE_PCI = "3.5.1.1, 3.6.1, 3.7.1, 3.7.2, 3.7.6, 4.2.1";

type MicrosoftColumn = Exclude<FrameworkId, `cis-${string}`>;

type MicrosoftRow = { checks: readonly string[] } & { [F in MicrosoftColumn]?: string };

/**
 * Credentials of applications, which no policy looks at: these follow the texts of the controls. NIST IA-5 (authenticators
 * are changed after a time), PCI 8.6.3 (passwords of applications are changed periodically), ISO 5.17 (authentication
 * information); MCSB IM-3 (certificates for service principals, secrets only where those can't be) and DP-7 (the life of
 * certificates); NIST AC-2 (each account has a manager) and ISO 5.9 (each asset has an owner). That secrets have expired, are
 * near it or live side by side is asked for by none.
 */
const APPLICATION_ROWS: readonly MicrosoftRow[] = [
  {
    checks: ["client-secret-validity-period", "client-secret-validity-period-b2c"],
    "nist-800-53-r5": "IA-5",
    "pci-dss-4.0.1": "8.6.3",
    "iso-27001-2022": "5.17",
  },
  { checks: ["client-secret-beside-certificate", "client-secret-beside-federation"], "mcsb-v3": "IM-3" },
  {
    checks: ["application-certificate-validity-period", "application-certificate-validity-period-b2c"],
    "nist-800-53-r5": "IA-5",
    "mcsb-v3": "DP-7",
  },
  {
    checks: ["client-secret-owner", "application-certificate-owner"],
    "nist-800-53-r5": "AC-2",
    "iso-27001-2022": "5.9",
  },
];

/** Microsoft's policies, each with the checks that ask the same. A range of ids stands for each of them. */
const MICROSOFT_POLICIES: readonly MicrosoftRow[] = [
  {
    checks: ["secret-expiry-set-rbac", "secret-expiry-set-access-policy"],
    "nist-800-53-r5": "CM-3(6), IA-2, SC-12",
    "pci-dss-4.0.1": EXPIRY_PCI,
    "iso-27001-2022": "8.24",
    "soc-2": "CC6.1",
    "mcsb-v3": "DP-6",
  },
  {
    checks: ["key-expiry-set-rbac", "key-expiry-set-access-policy"],
    "nist-800-53-r5": "AC-2, CM-3(6), SC-12",
    "pci-dss-4.0.1": `${EXPIRY_PCI}, ${ACCESS_PCI}`,
    "iso-27001-2022": "5.18, 8.24",
    "soc-2": "CC6.1",
    "mcsb-v3": "DP-6",
  },
  {
    checks: ["certificate-validity-period"],
    "nist-800-53-r5": "AC-2",
    "pci-dss-4.0.1": ACCESS_PCI,
    "iso-27001-2022": "5.18",
    "soc-2": "CC6.1",
    "mcsb-v3": "DP-7",
  },
  {
    checks: ["vault-purge-protection"],
    "nist-800-53-r5": "CP-9, MP-6, SI-7(5)",
    "iso-27001-2022": "7.14",
    "soc-2": "CC6.1",
    "mcsb-v3": "DP-8",
  },
  { checks: ["vault-soft-delete"], "soc-2": "CC6.1", "mcsb-v3": "DP-8" },
  {
    checks: ["vault-audit-logging"],
    "nist-800-53-r5": "AU-2",
    "pci-dss-4.0.1": "10.4.2.1",
    "iso-27001-2022": "8.15",
    "mcsb-v3": "DP-8, LT-3",
  },
  {
    checks: ["vault-firewall"],
    "nist-800-53-r5": "AC-4, SC-7",
    "pci-dss-4.0.1": "1.4.4",
    "iso-27001-2022": "5.14",
    "mcsb-v3": "NS-2, DP-8",
  },
  { checks: ["vault-private-endpoint"], "mcsb-v3": "NS-2, DP-8" },
  {
    checks: ["vault-rbac"],
    "nist-800-53-r5": "AC-2(1), AC-3(7)",
    "pci-dss-4.0.1": "7.2.4, 7.2.5.1",
    "iso-27001-2022": "5.15, 5.18, 8.2, 8.3",
    "mcsb-v3": "PA-7",
  },
  {
    checks: ["key-rotation-policy"],
    "nist-800-53-r5": "CM-3(6), SC-12, SC-12(2), SC-28(3)",
    "pci-dss-4.0.1": "3.6.1, 3.6.1.1, 3.6.1.2, 3.6.1.4, 3.7.1-3.7.3, 3.7.5-3.7.8",
    "iso-27001-2022": "8.24",
  },
  { checks: ["key-type"], "nist-800-53-r5": "SC-13, SI-7(5), SC-12(3)", "pci-dss-4.0.1": KEY_TYPE_PCI },
  { checks: ["key-curve"], "nist-800-53-r5": "IA-7, SC-13, SI-7(5), SC-12(3)", "pci-dss-4.0.1": KEY_TYPE_PCI },
  { checks: ["key-rsa-size"], "nist-800-53-r5": "IA-7" },
  ...APPLICATION_ROWS,
];

/** `3.7.5-3.7.8, 4.1` as five ids: a range counts up the last number. */
export function expandIds(text: string): string[] {
  return text.split(", ").flatMap((part) => {
    const range = /^((?:\d+\.)+)(\d+)-\1(\d+)$/.exec(part);
    if (!range) return [part];
    const [, stem, first, last] = range;
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, at) => `${stem}${Number(first) + at}`);
  });
}

export interface Control {
  id: string;
  /** As the source's table words it; null where the source gives no more than the number. */
  title: string | null;
  /** Ids of checks; none where only a person can tell. */
  checks: string[];
}

/** Every framework's controls that this service can say something of, in the order of their numbers. */
export const CONTROLS: Readonly<Record<FrameworkId, readonly Control[]>> = Object.fromEntries(
  FRAMEWORK_IDS.map((id) => [id, [...controlsOf(id)].sort((a, b) => byNumber(a.id, b.id))]),
) as Record<FrameworkId, Control[]>;

function controlsOf(framework: FrameworkId): Iterable<Control> {
  const controls = new Map<string, Control>();
  const add = (id: string, title: string | null, check: string | undefined) => {
    const control = controls.get(id) ?? { id, title, checks: [] };
    if (check !== undefined) control.checks.push(check);
    controls.set(id, control);
  };
  const version = CIS_VERSIONS.findIndex((one) => framework === `cis-azure-${one}`);
  if (version >= 0) {
    for (const { title, ids, check } of CIS_CONTROLS) if (ids[version] !== "-") add(ids[version]!, title, check);
  } else {
    for (const { checks, ...columns } of MICROSOFT_POLICIES) {
      const ids = columns[framework as MicrosoftColumn];
      if (ids) for (const id of expandIds(ids)) for (const check of checks) add(id, null, check);
    }
  }
  return controls.values();
}

function byNumber(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}

/** The controls one check speaks to, over all frameworks. */
export const controlsOfCheck = (checkId: string): readonly { framework: FrameworkId; control: string }[] =>
  BY_CHECK.get(checkId) ?? [];

const BY_CHECK = new Map<string, { framework: FrameworkId; control: string }[]>();
for (const framework of FRAMEWORK_IDS) {
  for (const { id, checks } of CONTROLS[framework]) {
    for (const check of checks) BY_CHECK.set(check, [...(BY_CHECK.get(check) ?? []), { framework, control: id }]);
  }
}

const CHECKS_OF = new Map(
  FRAMEWORK_IDS.map((id) => [id, new Set(CONTROLS[id].flatMap((control) => control.checks))] as const),
);
export const isOfFramework = (checkId: string, framework: FrameworkId): boolean =>
  CHECKS_OF.get(framework)!.has(checkId);
