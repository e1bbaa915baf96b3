import { fail, notApplicable, pass, type VaultCheck } from "../check.ts";
import * as remedies from "../remedies/vaults.ts";
import { vaultReferenceCheck } from "./references.ts";

const isDisabled = (publicNetworkAccess: string): boolean => publicNetworkAccess.toLowerCase() === "disabled";

/** The code 3 was that of `vault-recoverable`, which said once more what the first two say. */
export const vaultChecks: VaultCheck[] = [
  {
    id: "vault-soft-delete",
    code: 1,
    title: "Key vault keeps deleted objects for a while",
    severity: "high",
    resourceType: "vault",
    rationale:
      "Without soft delete a deleted vault, secret, key or certificate is gone at once, and so is what it opens.",
    remedy: remedies.softDelete,
    evaluate: ({ softDelete, softDeleteRetentionDays }) =>
      softDelete
        ? pass(`Soft delete is on${softDeleteRetentionDays ? `, for ${softDeleteRetentionDays} days` : ""}.`)
        : fail("Soft delete is off."),
  },
  {
    id: "vault-purge-protection",
    code: 2,
    title: "Key vault refuses purging before the retention ends",
    severity: "high",
    resourceType: "vault",
    rationale: "Without purge protection whoever may purge, or has stolen such rights, can destroy keys for good.",
    remedy: remedies.purgeProtection,
    successors: ["vault-soft-delete"],
    evaluate: ({ softDelete, purgeProtection }) => {
      // Purge protection is of what soft delete keeps: without that there is one thing to mend, and it is named there.
      if (!softDelete) return notApplicable("Soft delete is off, so there is nothing to protect.");
      return purgeProtection ? pass("Purge protection is on.") : fail("Purge protection is off.");
    },
  },
  {
    id: "vault-rbac",
    code: 4,
    title: "Key vault uses role-based access control",
    severity: "medium",
    resourceType: "vault",
    rationale:
      "Access policies grant per vault only and can be changed by any contributor of it; roles are granted per object, centrally, and for a limited time.",
    remedy: remedies.roles,
    evaluate: ({ rbacAuthorization }) =>
      rbacAuthorization ? pass("It uses role-based access control.") : fail("It uses access policies."),
  },
  {
    id: "vault-public-access",
    code: 5,
    title: "Key vault is not reachable from public networks",
    severity: "medium",
    resourceType: "vault",
    rationale: "A vault that answers on the internet can be tried with stolen credentials from anywhere.",
    remedy: remedies.noPublicAccess,
    evaluate: ({ publicNetworkAccess }) =>
      isDisabled(publicNetworkAccess)
        ? pass("Public network access is disabled.")
        : fail("Public network access is enabled."),
  },
  {
    id: "vault-firewall",
    code: 6,
    title: "Key vault has its firewall on, or no public access at all",
    severity: "high",
    resourceType: "vault",
    rationale: "With the default action Allow every network may call the vault, and only credentials stand in the way.",
    remedy: remedies.firewall,
    evaluate: ({ publicNetworkAccess, networkDefaultAction }) => {
      if (isDisabled(publicNetworkAccess)) return pass("Public network access is disabled.");
      return networkDefaultAction.toLowerCase() === "deny"
        ? pass("The firewall denies what it does not list.")
        : fail("Public network access is enabled and the firewall's default action is Allow.");
    },
  },
  {
    id: "vault-private-endpoint",
    code: 7,
    title: "Key vault is reached through a private endpoint",
    severity: "medium",
    resourceType: "vault",
    rationale: "A private endpoint keeps the traffic to the vault inside the virtual network.",
    remedy: remedies.privateEndpoint,
    evaluate: ({ privateEndpoints }) =>
      privateEndpoints > 0
        ? pass(`It has ${privateEndpoints} approved private endpoint connection${privateEndpoints === 1 ? "" : "s"}.`)
        : fail("It has no approved private endpoint connection."),
  },
  {
    id: "vault-audit-logging",
    code: 8,
    title: "Key vault keeps an audit log",
    severity: "medium",
    resourceType: "vault",
    rationale: "Without the AuditEvent log nobody can tell afterwards who read or changed what.",
    remedy: remedies.auditLog,
    evaluate: ({ diagnostics }) => {
      if (!diagnostics) return notApplicable("Its diagnostic settings could not be read yet; full scans read them.");
      const settings = diagnostics.filter((setting) => setting.auditEvents).map((setting) => setting.name);
      return settings.length > 0
        ? pass(`AuditEvent is kept by the diagnostic setting ${settings.join(", ")}.`)
        : fail("No diagnostic setting keeps AuditEvent.");
    },
  },
  vaultReferenceCheck,
];
