import { fail, notApplicable, pass, type VaultCheck } from "../check.ts";
import { vaultReferenceCheck } from "./references.ts";

const SOFT_DELETE = {
  portal: "Key vault {vault} > Properties > Soft-delete: enable recovery of this vault and its objects.",
  cli: "az keyvault update --name {vault} --enable-soft-delete true",
  bicep:
    "resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {\n  name: '{vault}'\n  properties: { enableSoftDelete: true }\n}",
};
const PURGE_PROTECTION = {
  portal: "Key vault {vault} > Properties > Purge protection: enable. It can't be switched off again.",
  cli: "az keyvault update --name {vault} --enable-purge-protection true",
  bicep:
    "resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {\n  name: '{vault}'\n  properties: { enableSoftDelete: true, enablePurgeProtection: true }\n}",
};

const isDisabled = (publicNetworkAccess: string): boolean => publicNetworkAccess.toLowerCase() === "disabled";

export const vaultChecks: VaultCheck[] = [
  {
    id: "vault-soft-delete",
    code: 1,
    title: "Key vault keeps deleted objects for a while",
    severity: "high",
    resourceType: "vault",
    rationale:
      "Without soft delete a deleted vault, secret, key or certificate is gone at once, and so is what it opens.",
    remediation: SOFT_DELETE,
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
    remediation: PURGE_PROTECTION,
    evaluate: ({ purgeProtection }) =>
      purgeProtection ? pass("Purge protection is on.") : fail("Purge protection is off."),
  },
  {
    id: "vault-recoverable",
    code: 3,
    title: "Key vault is recoverable: soft delete and purge protection",
    severity: "high",
    resourceType: "vault",
    rationale: "Only both together guarantee that what was deleted, by mistake or in malice, can be brought back.",
    remediation: PURGE_PROTECTION,
    evaluate: ({ softDelete, purgeProtection }) => {
      const evidence = `Soft delete is ${softDelete ? "on" : "off"}, purge protection is ${purgeProtection ? "on" : "off"}.`;
      return softDelete && purgeProtection ? pass(evidence) : fail(evidence);
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
    remediation: {
      portal:
        "Grant the roles that replace the access policies first, then key vault {vault} > Access configuration > Azure role-based access control.",
      cli: "az keyvault update --name {vault} --enable-rbac-authorization true",
      bicep:
        "resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {\n  name: '{vault}'\n  properties: { enableRbacAuthorization: true }\n}",
    },
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
    remediation: {
      portal: "Key vault {vault} > Networking > Firewalls and virtual networks > Disable public access.",
      cli: "az keyvault update --name {vault} --public-network-access Disabled",
      bicep:
        "resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {\n  name: '{vault}'\n  properties: { publicNetworkAccess: 'Disabled' }\n}",
    },
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
    remediation: {
      portal: "Key vault {vault} > Networking > Allow public access from specific virtual networks and IP addresses.",
      cli: "az keyvault update --name {vault} --default-action Deny --bypass AzureServices",
      bicep:
        "resource vault 'Microsoft.KeyVault/vaults@2024-11-01' = {\n  name: '{vault}'\n  properties: { networkAcls: { defaultAction: 'Deny', bypass: 'AzureServices' } }\n}",
    },
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
    remediation: {
      portal: "Key vault {vault} > Networking > Private endpoint connections > Create.",
      cli: "az network private-endpoint create --name pe-{vault} --resource-group <group> --vnet-name <vnet> --subnet <subnet> --private-connection-resource-id $(az keyvault show --name {vault} --query id -o tsv) --group-id vault --connection-name pe-{vault}",
      bicep:
        "resource endpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = {\n  name: 'pe-{vault}'\n  location: location\n  properties: {\n    subnet: { id: subnetId }\n    privateLinkServiceConnections: [ { name: 'pe-{vault}', properties: { privateLinkServiceId: vault.id, groupIds: [ 'vault' ] } } ]\n  }\n}",
    },
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
    remediation: {
      portal: "Key vault {vault} > Diagnostic settings > Add: category group audit, to a workspace or storage account.",
      cli: 'az monitor diagnostic-settings create --name audit --resource $(az keyvault show --name {vault} --query id -o tsv) --workspace <workspace-id> --logs \'[{"categoryGroup":"audit","enabled":true}]\'',
      bicep:
        "resource audit 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {\n  name: 'audit'\n  scope: vault\n  properties: { workspaceId: workspaceId, logs: [ { categoryGroup: 'audit', enabled: true } ] }\n}",
    },
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
