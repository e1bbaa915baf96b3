import { guidFrom } from "../vaults/identifiers.ts";
import type { Vault } from "../vaults/vault.ts";

/**
 * Returns a vault as `Microsoft.KeyVault/vaults`: https://learn.microsoft.com/rest/api/keyvault/keyvault/vaults/get
 *
 * @param readers - Object IDs that have an access policy to read secrets.
 */
export function vaultResource(vault: Vault, tenantId: string, vaultUri: string, readers: readonly string[]): object {
  const { settings } = vault;
  const created = vault.createdAt.toISOString();
  const author = { createdBy: "platform@acme.example", createdByType: "User" };
  return {
    id: vault.id,
    name: vault.name,
    type: "Microsoft.KeyVault/vaults",
    location: vault.location,
    tags: settings.tags ?? {},
    systemData: {
      ...author,
      createdAt: created,
      lastModifiedBy: author.createdBy,
      lastModifiedByType: author.createdByType,
      lastModifiedAt: created,
    },
    properties: {
      sku: { family: "A", name: settings.sku ?? "standard" },
      tenantId: settings.tenantId ?? tenantId,
      ...(settings.networkDefaultAction === "Deny" || settings.ipRules
        ? {
            networkAcls: {
              bypass: "AzureServices",
              defaultAction: settings.networkDefaultAction ?? "Allow",
              ipRules: (settings.ipRules ?? []).map((value) => ({ value })),
              virtualNetworkRules: (settings.virtualNetworkRules ?? []).map((id) => ({ id })),
            },
          }
        : {}),
      ...(settings.privateEndpoints ? { privateEndpointConnections: privateEndpoints(vault) } : {}),
      accessPolicies: settings.rbac === false ? accessPolicies(vault, tenantId, readers) : [],
      enabledForDeployment: false,
      enabledForDiskEncryption: false,
      enabledForTemplateDeployment: false,
      enableSoftDelete: settings.softDelete ?? true,
      softDeleteRetentionInDays: settings.softDeleteRetentionDays ?? 90,
      enableRbacAuthorization: settings.rbac ?? true,
      // Azure returns this property only if purge protection is on.
      ...(settings.purgeProtection !== false && { enablePurgeProtection: true }),
      vaultUri: settings.vaultUri ?? vaultUri,
      provisioningState: "Succeeded",
      publicNetworkAccess: settings.publicNetworkAccess ?? "Enabled",
    },
  };
}

/** Returns the diagnostic settings of a vault: https://learn.microsoft.com/rest/api/monitor/diagnostic-settings/list */
export function diagnosticSettings(vault: Vault): object[] {
  const kind = vault.settings.diagnostics ?? "audit";
  if (kind === "none") return [];
  const retentionPolicy = { enabled: false, days: 0 };
  const category = (name: string, enabled: boolean) => ({
    category: name,
    categoryGroup: null,
    enabled,
    retentionPolicy,
  });
  const logs =
    kind === "allLogs"
      ? [{ category: null, categoryGroup: "allLogs", enabled: true, retentionPolicy }]
      : [category("AuditEvent", kind === "audit"), category("AzurePolicyEvaluationDetails", false)];
  const group = vault.id.split("/").slice(0, 5).join("/").toLowerCase();
  return [
    {
      id: `${vault.id.toLowerCase()}/providers/microsoft.insights/diagnosticSettings/security-logs`,
      type: "Microsoft.Insights/diagnosticSettings",
      name: "security-logs",
      location: vault.location,
      kind: null,
      tags: null,
      properties: {
        storageAccountId: null,
        serviceBusRuleId: null,
        workspaceId: `${group}/providers/microsoft.operationalinsights/workspaces/log-security`,
        eventHubAuthorizationRuleId: null,
        eventHubName: null,
        metrics: [{ category: "AllMetrics", enabled: kind === "metricsOnly", retentionPolicy }],
        logs,
        logAnalyticsDestinationType: null,
      },
      identity: null,
    },
  ];
}

function privateEndpoints(vault: Vault): object[] {
  const group = vault.id.split("/").slice(0, 5).join("/");
  return Array.from({ length: vault.settings.privateEndpoints ?? 0 }, (_, index) => {
    const name = `pe-${vault.name}-${index + 1}`;
    return {
      id: `${vault.id}/privateEndpointConnections/${name}`,
      properties: {
        provisioningState: "Succeeded",
        privateEndpoint: { id: `${group}/providers/Microsoft.Network/privateEndpoints/${name}` },
        privateLinkServiceConnectionState: { status: "Approved", actionsRequired: "None" },
      },
    };
  });
}

function accessPolicies(vault: Vault, tenantId: string, readers: readonly string[]): object[] {
  const declared = ["operators", "deployment"].map((principal) => ({
    tenantId,
    objectId: guidFrom(`${vault.name} ${principal}`),
    permissions: {
      keys: ["get", "list"],
      secrets: principal === "deployment" ? ["get", "list", "set", "delete"] : ["get", "list"],
      certificates: ["get", "list"],
      storage: [],
    },
  }));
  const readPermissions = { keys: ["get", "wrapKey", "unwrapKey"], secrets: ["get"], certificates: [], storage: [] };
  return [...declared, ...readers.map((objectId) => ({ tenantId, objectId, permissions: readPermissions }))];
}
