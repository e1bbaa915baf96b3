/** The frameworks for which results are shown. */

interface FrameworkFacts {
  name: string;
  version: string;
  /** Source of the framework's controls. */
  source: string;
}

const CIS = "CIS Microsoft Azure Foundations Benchmark";
const cisSource = (file: string) => `https://github.com/prowler-cloud/prowler prowler/compliance/azure/${file}`;
const policySet = (file: string) =>
  `https://github.com/Azure/azure-policy built-in-policies/policySetDefinitions/${file}`;

/**
 * The frameworks with the sources of their controls: a file of Microsoft's policy sets or of Prowler, and the framework's own
 * text.
 */
export const FRAMEWORKS = {
  "cis-azure-2.1.0": { name: CIS, version: "2.1.0", source: cisSource("cis_2.1_azure.json") },
  "cis-azure-3.0.0": { name: CIS, version: "3.0.0", source: cisSource("cis_3.0_azure.json") },
  "cis-azure-4.0.0": { name: CIS, version: "4.0.0", source: cisSource("cis_4.0_azure.json") },
  "cis-azure-5.0.0": { name: CIS, version: "5.0.0", source: cisSource("cis_5.0_azure.json") },
  "cis-azure-6.0.0": { name: CIS, version: "6.0.0", source: cisSource("cis_6.0_azure.json") },
  "iso-27001-2022": {
    name: "ISO/IEC 27001 Annex A",
    version: "2022",
    source: `${policySet("Regulatory Compliance/ISO_IEC_27002_2022.json")} (1.7.0), whose numbers are those of Annex A; ISO/IEC 27002:2022`,
  },
  "mcsb-v3": {
    name: "Microsoft Cloud Security Benchmark",
    version: "3",
    source: `${policySet("Security Center/AzureSecurityCenter.json")} (57.56.0); https://learn.microsoft.com/security/benchmark/azure/mcsb-data-protection`,
  },
  "nist-800-53-r5": {
    name: "NIST SP 800-53",
    version: "R5.1.1",
    source: `${policySet("Regulatory Compliance/NIST_SP_800-53_R5.1.1.json")} (1.7.0); https://csrc.nist.gov/pubs/sp/800/53/r5/upd1/final`,
  },
  "pci-dss-4.0.1": {
    name: "PCI DSS",
    version: "4.0.1",
    source: `${policySet("Regulatory Compliance/PCI_DSS_v4.0.1.json")} (1.6.0); https://www.pcisecuritystandards.org/document_library/`,
  },
  "soc-2": {
    name: "SOC 2",
    version: "Type 2",
    source: `${policySet("Regulatory Compliance/SOC_2.json")} (1.12.0); AICPA TSC section 100 (2017, points of focus of 2022)`,
  },
  "owasp-nhi-2025": {
    name: "OWASP Non-Human Identities Top 10",
    version: "2025",
    source: "https://owasp.org/www-project-non-human-identities-top-10/2025/",
  },
  nis2: {
    name: "NIS2",
    version: "2022/2555",
    source:
      "Directive (EU) 2022/2555, Article 21: https://eur-lex.europa.eu/eli/dir/2022/2555/oj; Annex of Implementing Regulation (EU) 2024/2690: https://eur-lex.europa.eu/eli/reg_impl/2024/2690/oj",
  },
  dora: {
    name: "DORA",
    version: "2022/2554",
    source:
      "Regulation (EU) 2022/2554, Article 9: https://eur-lex.europa.eu/eli/reg/2022/2554/oj; RTS: Delegated Regulation (EU) 2024/1774: https://eur-lex.europa.eu/eli/reg_del/2024/1774/oj",
  },
  "bsi-c5-2020": {
    name: "BSI C5",
    version: "2020",
    source:
      "https://www.bsi.bund.de/EN/Themen/Unternehmen-und-Organisationen/Informationen-und-Empfehlungen/Empfehlungen-nach-Angriffszielen/Cloud-Computing/Kriterienkatalog-C5/kriterienkatalog-c5_node.html",
  },
  "hipaa-security-rule": {
    name: "HIPAA Security Rule",
    version: "45 CFR 164 Subpart C",
    source: "https://www.ecfr.gov/current/title-45/subtitle-A/subchapter-C/part-164/subpart-C",
  },
} as const satisfies Record<string, FrameworkFacts>;

export type FrameworkId = keyof typeof FRAMEWORKS;
export const FRAMEWORK_IDS = Object.keys(FRAMEWORKS) as FrameworkId[];

/**
 * Checks and the controls that require them: for each framework a list of control IDs such as `3.7.5-3.7.8, 4.1`, where a range
 * counts up the last number.
 */
export interface Mapping {
  checks: readonly string[];
  controls: { readonly [F in FrameworkId]?: string };
  /** The source, or what the text requires, in a sentence for an assessor. */
  basis: string;
}
