import type { FrameworkId } from "./frameworks.ts";

/**
 * Recommendations of the CIS Microsoft Azure Foundations Benchmark about key vault objects, with the numbers used by Prowler
 * (prowler/compliance/azure/cis_*_azure.json) and Powerpipe (turbot/steampipe-mod-azure-compliance). Those about expiry require
 * only that an expiration date is set. The date may have passed.
 */
export interface CisRecommendation {
  title: string;
  /** One number per version of the benchmark, in the order of `CIS_VERSIONS`. "-" if a version has none. */
  ids: readonly [string, string, string, string, string];
  /** Checks of the recommendation. Empty if it must be assessed manually. */
  checks: readonly string[];
}

export const CIS_VERSIONS = [
  "cis-azure-2.1.0",
  "cis-azure-3.0.0",
  "cis-azure-4.0.0",
  "cis-azure-5.0.0",
  "cis-azure-6.0.0",
] as const satisfies FrameworkId[];

export const CIS_RECOMMENDATIONS: readonly CisRecommendation[] = [
  {
    title: "Expiry on keys, RBAC vault",
    ids: ["8.1", "3.3.1", "9.3.1", "8.3.1", "8.3.1"],
    checks: ["key-expiry-set-rbac"],
  },
  {
    title: "Expiry on keys, access-policy vault",
    ids: ["8.2", "3.3.2", "9.3.2", "8.3.2", "8.3.2"],
    checks: ["key-expiry-set-access-policy"],
  },
  {
    title: "Expiry on secrets, RBAC vault",
    ids: ["8.3", "3.3.3", "9.3.3", "8.3.3", "8.3.3"],
    checks: ["secret-expiry-set-rbac"],
  },
  {
    title: "Expiry on secrets, access-policy vault",
    ids: ["8.4", "3.3.4", "9.3.4", "8.3.4", "8.3.4"],
    checks: ["secret-expiry-set-access-policy"],
  },
  {
    title: "Key vault is recoverable",
    ids: ["8.5", "3.3.5", "9.3.5", "8.3.5", "8.3.5"],
    checks: ["vault-soft-delete", "vault-purge-protection"],
  },
  {
    title: "Role-based access control is enabled",
    ids: ["8.6", "3.3.6", "9.3.6", "8.3.6", "8.3.6"],
    checks: ["vault-rbac"],
  },
  {
    title: "Public network access is disabled",
    ids: ["-", "-", "9.3.7", "8.3.7", "8.3.7"],
    checks: ["vault-public-access"],
  },
  {
    title: "Private endpoints are used",
    ids: ["8.7", "3.3.7", "9.3.8", "8.3.8", "8.3.8"],
    checks: ["vault-private-endpoint"],
  },
  {
    title: "Automatic key rotation is enabled",
    ids: ["8.8", "3.3.8", "9.3.9", "8.3.9", "8.3.9"],
    checks: ["key-rotation-policy"],
  },
  { title: "Managed HSM is used when required", ids: ["-", "-", "9.3.10", "8.3.10", "8.3.10"], checks: [] },
  {
    title: "Certificate validity is at most 12 months",
    ids: ["-", "-", "-", "8.3.11", "8.3.11"],
    checks: ["certificate-validity-period"],
  },
  {
    title: "Key vault audit logging is enabled",
    ids: ["5.1.4", "6.1.4", "7.1.1.4", "6.1.1.4", "6.1.1.4"],
    checks: ["vault-audit-logging"],
  },
  { title: "Defender for Key Vault is on", ids: ["2.1.9", "3.1.8.1", "9.1.8.1", "8.1.8.1", "8.1.8.1"], checks: [] },
  { title: "App Service keeps its secrets in key vaults", ids: ["9.10", "9.11", "-", "-", "-"], checks: [] },
  { title: "Users cannot register applications", ids: ["1.13", "2.14", "6.14", "5.14", "-"], checks: [] },
  { title: "Web apps are registered with Entra ID", ids: ["9.4", "9.5", "-", "-", "-"], checks: [] },
];
