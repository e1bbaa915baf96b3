/**
 * Mistakes that are made in Bicep and Terraform alike, or in a file that both read: no comparison finds them.
 * `check.test.ts` applies each to the real files.
 */
export interface CommonMistake {
  what: string;
  /** In each file, the first occurrence of a text is replaced. */
  changes: readonly [file: string, original: string, replacement: string][];
  /** The finding. */
  message: RegExp;
}

const BICEP = "infra/azure";
const TERRAFORM = "infra/terraform";
const POLICY = `${BICEP}/events-policy/policy.json`;
const WORKBOOK = `${BICEP}/workbook.json`;

const common = (what: string, message: RegExp, ...changes: CommonMistake["changes"]): CommonMistake => ({
  what,
  message,
  changes,
});

export const COMMON_MISTAKES: readonly CommonMistake[] = [
  common(
    "shared keys are on",
    /allowSharedKeyAccess must be false/,
    [`${BICEP}/modules/storage.bicep`, "allowSharedKeyAccess: false", "allowSharedKeyAccess: true"],
    [`${TERRAFORM}/storage.tf`, "shared_access_key_enabled       = false", "shared_access_key_enabled       = true"],
  ),
  common(
    "old TLS versions are accepted",
    /minimumTlsVersion must be TLS1_2/,
    [`${BICEP}/modules/storage.bicep`, "'TLS1_2'", "'TLS1_0'"],
    [`${TERRAFORM}/storage.tf`, '"TLS1_2"', '"TLS1_0"'],
  ),
  common(
    "purge protection is off",
    /enablePurgeProtection must be true/,
    [`${BICEP}/modules/vault.bicep`, "enablePurgeProtection: true", "enablePurgeProtection: false"],
    [`${TERRAFORM}/vault.tf`, "purge_protection_enabled      = true", "purge_protection_enabled      = false"],
  ),
  common(
    "the vault stays public with the network option",
    /vault: properties.publicNetworkAccess must be {network_enabled} \? Disabled : Enabled/,
    [`${BICEP}/modules/vault.bicep`, "networkEnabled ? 'Disabled' : 'Enabled'", "'Enabled'"],
    [`${TERRAFORM}/vault.tf`, "var.network_enabled ? false : true", "true"],
  ),
  common(
    "the zone of vaults has a wrong name in one cloud",
    /clouds.json|must be .*privatelink.vaultcore.usgovcloudapi.net/,
    [`${BICEP}/clouds.json`, "vaultcore.usgovcloudapi.net", "vault.usgovcloudapi.net"],
  ),
  common(
    "the zone of vaults is the one of another service",
    /there is no private endpoint vault {vault.id} {cloud.vault_zone}/,
    [`${BICEP}/modules/private-endpoints.bicep`, "cloud.vaultZone", "cloud.appConfigurationZone"],
    [`${TERRAFORM}/private-endpoints.tf`, "local.cloud.vaultZone", "local.cloud.appConfigurationZone"],
  ),
  common(
    "a private endpoint is missing",
    /there is no private endpoint queue/,
    [`${BICEP}/modules/private-endpoints.bicep`, "groupId: 'queue'", "groupId: 'file'"],
    [`${TERRAFORM}/private-endpoints.tf`, "queue = { resource_id", "file = { resource_id"],
  ),
  common(
    "the app's subnet is delegated to another service",
    /serviceName must be Microsoft.App\/environments/,
    [`${BICEP}/modules/network.bicep`, "Microsoft.App/environments", "Microsoft.Web/serverFarms"],
    [`${TERRAFORM}/network.tf`, "Microsoft.App/environments", "Microsoft.Web/serverFarms"],
  ),
  common(
    "the firewalls of vaults can't allow the app's subnet",
    /serviceEndpoints must be/,
    [`${BICEP}/modules/network.bicep`, "{ service: 'Microsoft.KeyVault' }", "{ service: 'Microsoft.Storage' }"],
    [`${TERRAFORM}/network.tf`, '["Microsoft.KeyVault"]', '["Microsoft.Storage"]'],
  ),
  common(
    "the fixed address has no gateway in the app's subnet",
    /azurerm_subnet_nat_gateway_association is created under the condition/,
    [
      `${TERRAFORM}/network.tf`,
      'resource "azurerm_subnet_nat_gateway_association" "function_subnet_nat_gateway" {\n  count = local.nat_gateway_created ? 1 : 0',
      'resource "azurerm_subnet_nat_gateway_association" "function_subnet_nat_gateway" {\n  count = local.network_created ? 1 : 0',
    ],
  ),
  common(
    "a subnet has no security group",
    /privateEndpointSubnet: properties.networkSecurityGroup.id must be/,
    [
      `${BICEP}/modules/network.bicep`,
      "26, 1)\n    networkSecurityGroup: { id: networkSecurityGroup.id }\n",
      "26, 1)\n",
    ],
    [
      `${TERRAFORM}/network.tf`,
      'resource "azurerm_subnet_network_security_group_association" "private_endpoint_subnet_security"',
      'resource "azurerm_subnet_security" "private_endpoint_subnet_security"',
    ],
  ),
  common(
    "the app's private endpoint has the zone of another service",
    /app_?private_?dns_?zone: name must be privatelink.{cloud.app_domain}/i,
    [`${BICEP}/modules/app-private-endpoint.bicep`, "cloud.appDomain}'", "cloud.vaultDomain}'"],
    [`${TERRAFORM}/app-private-endpoint.tf`, "local.cloud.appDomain", "local.cloud.vaultDomain"],
  ),
  common(
    "the app stays public when its public access is off",
    /functionApp: properties.publicNetworkAccess must be/,
    [`${BICEP}/modules/app.bicep`, "appPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'", "'Enabled'"],
    [
      `${TERRAFORM}/app.tf`,
      "public_network_access_enabled                  = var.app_public_network_access_enabled",
      "public_network_access_enabled                  = true",
    ],
  ),
  common(
    "the key of the customer does not encrypt the service's tables",
    /properties.encryption must be .* table={enabled=true, keyType=Account}/,
    [`${BICEP}/modules/storage.bicep`, "table: { enabled: true, keyType: 'Account' }", "table: { keyType: 'Service' }"],
    [`${TERRAFORM}/storage.tf`, 'var.customer_managed_key != null ? "Account" : "Service"', '"Service"'],
  ),
  common(
    "a lock refuses every update",
    /storageLock: properties.level must be {lock.kind}/,
    [`${BICEP}/modules/storage.bicep`, "level: lock.kind", "level: 'ReadOnly'"],
    [`${TERRAFORM}/storage.tf`, "lock_level = var.lock.kind", 'lock_level = "ReadOnly"'],
  ),
  common(
    "only audit logs of tables are collected",
    /tableDiagnostics: properties.logs.0.categoryGroup must be allLogs/,
    [
      `${BICEP}/modules/storage.bicep`,
      "  scope: tableService\n  properties: {\n    workspaceId: logAnalyticsWorkspaceId\n    logs: [\n      {\n        categoryGroup: 'allLogs'",
      "  scope: tableService\n  properties: {\n    workspaceId: logAnalyticsWorkspaceId\n    logs: [\n      {\n        categoryGroup: 'audit'",
    ],
  ),
  common(
    "an existing workspace is not used",
    /WorkspaceResourceId must be {log_analytics_workspace_resource_id} is given/,
    [
      `${BICEP}/modules/monitoring.bicep`,
      "WorkspaceResourceId: workspaceId",
      "WorkspaceResourceId: logAnalyticsWorkspace.id",
    ],
    [
      `${TERRAFORM}/monitoring.tf`,
      "workspace_id                 = local.log_analytics_workspace_id",
      "workspace_id                 = azurerm_log_analytics_workspace.log_analytics_workspace[0].id",
    ],
  ),
  common(
    "an existing role is not assigned",
    /inventoryReaderRole: properties.roleDefinitionId must be {inventory_reader_role_definition_id} is given/,
    ...["subscription", "management-group"].map((scope): [string, string, string] => [
      `${BICEP}/watch/${scope}.bicep`,
      "empty(inventoryReaderRoleDefinitionId) ? inventoryReaderDefinition.id : inventoryReaderRoleDefinitionId",
      "inventoryReaderDefinition.id",
    ]),
  ),
  common(
    "both languages leave out an optional boolean with different defaults",
    /local_user_enabled is not set/,
    [`${BICEP}/modules/storage.bicep`, "    isLocalUserEnabled: false\n", ""],
    [`${TERRAFORM}/storage.tf`, "  local_user_enabled              = false\n", ""],
  ),
  common(
    "an event type does not exist",
    /includedEventTypes must be .* see Microsoft.Resources.ResourceWriteSucceeded/,
    [`${BICEP}/events/topic.bicep`, "ResourceWriteSuccess", "ResourceWriteSucceeded"],
    [`${TERRAFORM}/events/main.tf`, "ResourceWriteSuccess", "ResourceWriteSucceeded"],
  ),
  common(
    "an event type of the policy does not exist",
    /includedEventTypes must be .* see Microsoft.KeyVault.SecretExpiring/,
    [POLICY, "Microsoft.KeyVault.SecretNearExpiry", "Microsoft.KeyVault.SecretExpiring"],
  ),
  common(
    "the topic passes other changes than those of vaults",
    /advancedFilters.0.values must be/,
    [`${BICEP}/events/topic.bicep`, "'Microsoft.KeyVault/vaults/write'", "'Microsoft.KeyVault/vaults/read'"],
    [`${TERRAFORM}/events/main.tf`, '"Microsoft.KeyVault/vaults/write"', '"Microsoft.KeyVault/vaults/read"'],
  ),
  common(
    "a log category is not one of vaults",
    /category must be AuditEvent/,
    [`${BICEP}/modules/vault.bicep`, "'AuditEvent'", "'AuditLogs'"],
    [`${TERRAFORM}/vault.tf`, '"AuditEvent"', '"AuditLogs"'],
  ),
  common(
    "local sign-in to logs is on",
    /disableLocalAuth must be true/,
    [`${BICEP}/modules/monitoring.bicep`, "disableLocalAuth: true", "disableLocalAuth: false"],
    [`${TERRAFORM}/monitoring.tf`, "local_authentication_enabled = false", "local_authentication_enabled = true"],
  ),
  common(
    "plain HTTP is accepted",
    /httpsOnly must be true/,
    [`${BICEP}/modules/app.bicep`, "httpsOnly: true", "httpsOnly: false"],
    [
      `${TERRAFORM}/app.tf`,
      "https_only                                     = true",
      "https_only                                     = false",
    ],
  ),
  common(
    "the service may read the values of watched secrets",
    /keyVaultReaderRole: properties.roleDefinitionId must be Key Vault Reader/,
    [
      `${BICEP}/watch/subscription.bicep`,
      "'21090545-7ca7-4776-b22c-e363652d74d2' // Key Vault Reader",
      "'4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User",
    ],
    [
      `${BICEP}/watch/management-group.bicep`,
      "'21090545-7ca7-4776-b22c-e363652d74d2' // Key Vault Reader",
      "'4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User",
    ],
    [`${TERRAFORM}/watch/main.tf`, '"Key Vault Reader"', '"Key Vault Secrets User"'],
  ),
  common(
    "a custom role on watched scopes reads the values of secrets",
    /getSecret\/action is more than reading/,
    ...["subscription", "management-group"].map((scope): [string, string, string] => [
      `${BICEP}/watch/${scope}.bicep`,
      "'Microsoft.KeyVault/vaults/read'",
      "'Microsoft.KeyVault/vaults/read'\n          'Microsoft.KeyVault/vaults/secrets/getSecret/action'",
    ]),
    [
      `${TERRAFORM}/watch/main.tf`,
      '"Microsoft.KeyVault/vaults/read",',
      '"Microsoft.KeyVault/vaults/read", "Microsoft.KeyVault/vaults/secrets/getSecret/action",',
    ],
  ),
  common("the permissions are granted to another subscription", /watch: its scope must depend on subscriptionId/, [
    `${BICEP}/main.bicep`,
    "    scope: subscription(subscriptionId)\n    params: {\n      principalId",
    "    scope: subscription()\n    params: {\n      principalId",
  ]),
  common(
    "the permissions are granted to a resource group",
    /its scope is a resourceGroup, but .* is for a subscription/,
    [
      `${BICEP}/main.bicep`,
      "    scope: subscription(subscriptionId)\n    params: {\n      principalId",
      "    scope: az.resourceGroup(subscriptionId, 'rg')\n    params: {\n      principalId",
    ],
  ),
  common("the permissions are granted for another list", /watch: its scope must be each.value/, [
    `${TERRAFORM}/main.tf`,
    '{each.value}"',
    '{var.environment_name}"',
  ]),
  common(
    "the search for copies gets the list of watched subscriptions",
    /literal_scan: it is called for {watched_subscription_ids}, in Bicep for {literal_scan_subscription_ids}/,
    [`${TERRAFORM}/main.tf`, "toset(var.literal_scan_subscription_ids)", "toset(local.watched_subscription_ids)"],
  ),
  common(
    "the service's role on its vault is assigned on the whole resource group",
    /vaultRole: scope must be {vault.id}/,
    [`${BICEP}/modules/vault.bicep`, "  scope: vault\n  properties: {\n    roleDef", "  properties: {\n    roleDef"],
    [
      `${TERRAFORM}/vault.tf`,
      "scope                = azurerm_key_vault.vault.id",
      "scope                = local.resource_group_id",
    ],
  ),
  common("the policy may assign any role on the queue", /properties.condition must be file\(sender-only.txt\)/, [
    `${BICEP}/events-policy/roles.bicep`,
    "    condition: loadTextContent('sender-only.txt')\n",
    "",
  ]),
  common(
    "the host has no identity for its storage",
    /AzureWebJobsStorage__credential must be "managedidentity"/,
    [`${BICEP}/modules/app.bicep`, "'managedidentity'", "'managedIdentity'"],
    [`${TERRAFORM}/app.tf`, '"managedidentity"', '"managedIdentity"'],
  ),
  common(
    "a setting refers to a secret that nobody makes",
    /AUDIT_SIGNING_KEYS must be/,
    [`${BICEP}/modules/app.bicep`, "secrets/audit-signing-keys", "secrets/audit-keys"],
    [`${TERRAFORM}/app.tf`, "secrets/audit-signing-keys", "secrets/audit-keys"],
  ),
  common(
    "an alert never fires",
    /criteria.allOf.0.threshold must be 0/,
    [`${BICEP}/modules/alerts.bicep`, "threshold: 0", "threshold: 1000"],
    [`${TERRAFORM}/alerts.tf`, "threshold               = 0", "threshold               = 1000"],
  ),
  common(
    "an alert notifies nobody",
    /actionGroups must be \[{action_group.id}\]/,
    [`${BICEP}/modules/alerts.bicep`, "actions: { actionGroups: [actionGroup.id] }", "actions: { actionGroups: [] }"],
    [`${TERRAFORM}/alerts.tf`, "action_groups = [azurerm_monitor_action_group.action_group.id]", "action_groups = []"],
  ),
  common(
    "a query searches for a text that nobody writes",
    /neither the service nor the host writes .*"A scan ended "/,
    [`${BICEP}/queries/failed-scans.kql`, 'startswith "A scan is over "', 'startswith "A scan ended "'],
  ),
  common("a query searches for a status that no scan has", /no scan ends with the status timeout/, [
    `${BICEP}/queries/failed-scans.kql`,
    '"timedOut"',
    '"timeout"',
  ]),
  common("a query reads a column that does not exist", /has no column severity$/, [
    `${BICEP}/queries/errors.kql`,
    "severityLevel >= 3",
    "severity >= 3",
  ]),
  common("a query reads a table that does not exist", /there is no table AppTraces/, [
    `${BICEP}/queries/poison-queues.kql`,
    "traces",
    "AppTraces",
  ]),
  common("a query calls a function that does not exist", /there is no function count_if/, [
    `${BICEP}/queries/no-scan.kql`,
    "older = countif(",
    "older = count_if(",
  ]),
  common("the workbook reads a table that does not exist", /there is no table request$/, [
    WORKBOOK,
    "requests | summarize",
    "request | summarize",
  ]),
  common("the workbook reads a column of another table", /requests has no column message/, [
    WORKBOOK,
    "by function = operation_Name",
    "by function = message",
  ]),
  common("the workbook's chart has a time range that does not exist", /has no parameter period/, [
    WORKBOOK,
    '"timeContextFromParameter": "range"',
    '"timeContextFromParameter": "period"',
  ]),
];
