/** Checks of the settings of key vaults. */
import { fail, notApplicable, pass, type VaultCheck } from "../check.ts";
import * as remedies from "../remedies/vaults.ts";
import { vaultReferenceCheck } from "./references.ts";

const isDisabled = (publicNetworkAccess: string): boolean => publicNetworkAccess.toLowerCase() === "disabled";

/** Code 3 must not be reused: it was `vault-recoverable`, a removed check that repeated the first two. */
export const vaultChecks: VaultCheck[] = [
  {
    id: "vault-soft-delete",
    code: 1,
    title: "Soft delete is enabled for the key vault",
    failureTitle: "Soft delete is disabled",
    severity: "high",
    resourceType: "vault",
    onlyFor: "",
    rationale: "Without soft delete, a deleted vault, secret, key or certificate can't be recovered.",
    remedy: remedies.enableSoftDelete,
    evaluate: ({ softDelete, softDeleteRetentionDays }) =>
      softDelete
        ? pass(`Soft delete is on${softDeleteRetentionDays ? `, for ${softDeleteRetentionDays} days` : ""}.`)
        : fail("Soft delete is off."),
  },
  {
    id: "vault-purge-protection",
    code: 2,
    title: "Purge protection is enabled for the key vault",
    failureTitle: "Purge protection is disabled",
    severity: "high",
    resourceType: "vault",
    onlyFor: "",
    rationale:
      "Without purge protection, anyone with the purge permission can permanently delete keys during the retention period.",
    remedy: remedies.enablePurgeProtection,
    // Fails without soft delete too, like Azure Policy 0b60c0b2-2dc2-4e1c-b5c9-abbed971de53 (2.1.0). Some controls have no other
    // check for this policy.
    evaluate: ({ softDelete, purgeProtection }) => {
      if (!softDelete) return fail("Soft delete is off, and purge protection needs it.");
      return purgeProtection ? pass("Purge protection is on.") : fail("Purge protection is off.");
    },
  },
  {
    id: "vault-rbac",
    code: 4,
    title: "Key vault uses role-based access control",
    failureTitle: "Key vault uses access policies",
    severity: "medium",
    resourceType: "vault",
    onlyFor: "",
    rationale:
      "Access policies apply to a whole vault, and every contributor of the vault can change them. Roles can be assigned centrally, per object and for a limited time.",
    remedy: remedies.switchToRoles,
    evaluate: ({ rbacAuthorization }) =>
      rbacAuthorization ? pass("It uses role-based access control.") : fail("It uses access policies."),
  },
  {
    id: "vault-public-access",
    code: 5,
    title: "Public network access to the key vault is disabled",
    failureTitle: "Public network access is enabled",
    severity: "medium",
    resourceType: "vault",
    onlyFor: "",
    rationale: "With public network access, stolen credentials can be used from anywhere.",
    remedy: remedies.disablePublicAccess,
    evaluate: ({ publicNetworkAccess }) =>
      isDisabled(publicNetworkAccess)
        ? pass("Public network access is disabled.")
        : fail("Public network access is enabled."),
  },
  {
    id: "vault-firewall",
    code: 6,
    title: "Key vault firewall is enabled, or public network access is disabled",
    failureTitle: "Key vault firewall allows all networks",
    severity: "high",
    resourceType: "vault",
    onlyFor: "",
    rationale: "With the default action Allow, every network can reach the vault, and only credentials protect it.",
    remedy: remedies.enableFirewall,
    evaluate: ({ publicNetworkAccess, networkDefaultAction }) => {
      if (isDisabled(publicNetworkAccess)) return pass("Public network access is disabled.");
      return networkDefaultAction.toLowerCase() === "deny"
        ? pass("The firewall denies networks that are not listed.")
        : fail("Public network access is enabled and the firewall's default action is Allow.");
    },
  },
  {
    id: "vault-private-endpoint",
    code: 7,
    title: "Key vault has a private endpoint",
    failureTitle: "Key vault has no private endpoint",
    severity: "medium",
    resourceType: "vault",
    onlyFor: "",
    rationale: "A private endpoint keeps the traffic to the vault inside the virtual network.",
    remedy: remedies.createPrivateEndpoint,
    evaluate: ({ privateEndpoints }) =>
      privateEndpoints > 0
        ? pass(`It has ${privateEndpoints} approved private endpoint connection${privateEndpoints === 1 ? "" : "s"}.`)
        : fail("It has no approved private endpoint connection."),
  },
  {
    id: "vault-audit-logging",
    code: 8,
    title: "Audit logging is enabled for the key vault",
    failureTitle: "Audit logging is disabled",
    severity: "medium",
    resourceType: "vault",
    onlyFor: "whose diagnostic settings were read",
    rationale: "Without the AuditEvent log, reads and changes can't be traced.",
    remedy: remedies.enableAuditLog,
    evaluate: ({ diagnostics }) => {
      if (!diagnostics) return notApplicable("Its diagnostic settings have not been read yet. A full scan reads them.");
      const settings = diagnostics.filter((setting) => setting.auditEvents).map((setting) => setting.name);
      return settings.length > 0
        ? pass(`The diagnostic setting ${settings.join(", ")} collects AuditEvent.`)
        : fail("No diagnostic setting collects AuditEvent.");
    },
  },
  vaultReferenceCheck,
];
