// Values that both languages must set: what keeps the service closed and working. The parity check (parity/parity.ts) compares
// Bicep with Terraform, so it would not notice a mistake that both contain.

import type { BicepFile } from "./bicep/parse.ts";
import { checkConditions } from "./conditions.ts";
import type { Finding } from "./expression.ts";
import { FURTHER_VALUES, type Invariant } from "./further-values.ts";
import {
  type BicepResource,
  bicepResources,
  findingAt,
  type TerraformResource,
  terraformResources,
} from "./parity/declared-resources.ts";
import { snake } from "./parity/normalize.ts";
import { KINDS, type Kind, NETWORK_CREATED, SERVICE_ENDPOINTS } from "./parity/resource-kinds.ts";
import { bicepValue, terraformValue } from "./parity/values.ts";
import type { TerraformModule } from "./terraform/check.ts";
import { checkListed } from "./unlisted-values.ts";

const CLOSED_IN_NETWORK = "{network_enabled} ? Disabled : Enabled";
const OPEN_MONITORING = "{monitoring_public_network_access_enabled} ? Enabled : Disabled";
const DENIED_IN_NETWORK = "{network_enabled} ? Deny : Allow";

/**
 * Event types by the kind of topic. Vaults: every type that Azure has. Subscriptions: the changes of resources that succeeded.
 * https://learn.microsoft.com/azure/event-grid/event-schema-key-vault
 * https://learn.microsoft.com/azure/event-grid/event-schema-subscriptions
 */
const EVENT_TYPES: Record<string, readonly string[]> = {
  "Microsoft.KeyVault.vaults": [
    ...["Certificate", "Key", "Secret"].flatMap((kind) =>
      ["NewVersionCreated", "NearExpiry", "Expired"].map((event) => `Microsoft.KeyVault.${kind}${event}`),
    ),
    "Microsoft.KeyVault.VaultAccessPolicyChanged",
  ],
  "Microsoft.Resources.Subscriptions": [
    "Microsoft.Resources.ResourceWriteSuccess",
    "Microsoft.Resources.ResourceDeleteSuccess",
  ],
};

const SERVICE_IDENTITY = "{identity.principal_id}";

/** A custom role of the templates, or an existing one that takes its place. */
const ownRole = (name: string): string =>
  `{${name}_role_definition_id} is given ? {${name}_role_definition_id} : {${name}_definition.id}`;

/**
 * Role assignments by name: the role, who gets it, and on which resource. docs/permissions.md and docs/permissions-options.md say
 * why each is needed. Without a resource: on the scope of the file. The identity of the policy is not compared, because it has
 * another name at each scope.
 */
const ASSIGNMENTS: Record<string, [role: string, principal?: string | undefined, scope?: string]> = {
  app_configuration_role: ["App Configuration Data Reader", SERVICE_IDENTITY, "{app_configuration.id}"],
  blob_role: ["Storage Blob Data Owner", SERVICE_IDENTITY, "{storage_account.id}"],
  certificates_officer_role: ["Key Vault Certificates Officer", SERVICE_IDENTITY],
  dns_zone_role: ["DNS Zone Contributor", SERVICE_IDENTITY],
  dependency_reader_role: [ownRole("dependency_reader"), SERVICE_IDENTITY],
  event_deployer_role: ["{event_deployer_definition.id}", undefined, "{storage_account.id}"],
  identity_operator_role: ["Managed Identity Operator", undefined, "{event_identity.id}"],
  inventory_reader_role: [ownRole("inventory_reader"), SERVICE_IDENTITY],
  key_rotator_role: ["{key_rotator_definition.id}", SERVICE_IDENTITY],
  key_vault_reader_role: ["Key Vault Reader", SERVICE_IDENTITY],
  literal_scanner_role: [ownRole("literal_scanner"), SERVICE_IDENTITY],
  log_reader_role: ["{log_reader_definition.id}", SERVICE_IDENTITY],
  mail_role: ["Communication and Email Service Owner", SERVICE_IDENTITY, "{communication_service.id}"],
  management_group_topics_role: ["EventGrid Contributor"],
  queue_role: ["Storage Queue Data Contributor", SERVICE_IDENTITY, "{storage_account.id}"],
  rotation_operator_role: [ownRole("rotation_operator"), SERVICE_IDENTITY],
  secrets_user_role: ["Key Vault Secrets User", SERVICE_IDENTITY],
  stream_role: ["Monitoring Metrics Publisher", SERVICE_IDENTITY, "{stream_rule.id}"],
  subscription_topics_role: ["EventGrid Contributor"],
  table_role: ["Storage Table Data Contributor", SERVICE_IDENTITY, "{storage_account.id}"],
  telemetry_role: ["Monitoring Metrics Publisher", SERVICE_IDENTITY, "{application_insights.id}"],
  topic_sender_role: ["Storage Queue Data Message Sender", "{event_identity.principal_id}", "{vault_events_queue.id}"],
  vault_key_rotator_role: ["{vault_key_rotator_definition.id}", SERVICE_IDENTITY],
  vault_reference_role: ["Key Vault Secrets User", "{function_app.identity_principal_id}", "{vault.id}"],
  vault_role: ["Key Vault Secrets Officer", SERVICE_IDENTITY, "{vault.id}"],
};

/** Encryption with a customer-managed key. Without `Account`, the keys of tables and queues would be Microsoft's. */
const ENCRYPTION = `{identity={userAssignedIdentity={customer_managed_key.user_assigned_identity_resource_id}}, keySource=Microsoft.Keyvault, keyvaultproperties={keyname={customer_managed_key.key_name}, keyvaulturi=https://last(split(/, {customer_managed_key.key_vault_resource_id})).{cloud.vault_domain}, keyversion={customer_managed_key.key_version}}, services={blob={enabled=true, keyType=Account}, queue={enabled=true, keyType=Account}, table={enabled=true, keyType=Account}}}`;

/** Resources whose logs `diagnosticSettingsEnabled` sends to the workspace, by the name of the diagnostic setting. */
const DIAGNOSTICS: Record<string, string> = {
  app_configuration_diagnostics: "app_configuration",
  app_diagnostics: "function_app",
  blob_diagnostics: "blob_service",
  communication_diagnostics: "communication_service",
  network_security_group_diagnostics: "network_security_group",
  queue_diagnostics: "queue_service",
  table_diagnostics: "table_service",
  workspace_diagnostics: "log_analytics_workspace",
};

const WORKSPACE =
  "{log_analytics_workspace_resource_id} is given ? {log_analytics_workspace_resource_id} : {log_analytics_workspace.id}";

const INVARIANTS: readonly Invariant[] = [
  ...FURTHER_VALUES,
  {
    type: "Microsoft.Storage/storageAccounts",
    values: {
      kind: "StorageV2",
      "properties.allowSharedKeyAccess": "false",
      "properties.allowBlobPublicAccess": "false",
      "properties.isLocalUserEnabled": "false",
      "properties.defaultToOAuthAuthentication": "true",
      "properties.minimumTlsVersion": "TLS1_2",
      "properties.supportsHttpsTrafficOnly": "true",
      "properties.publicNetworkAccess": CLOSED_IN_NETWORK,
      "properties.networkAcls.defaultAction": DENIED_IN_NETWORK,
      identity:
        "{type=UserAssigned, userAssignedIdentities={{customer_managed_key.user_assigned_identity_resource_id}={}}}",
      "properties.encryption": `{customer_managed_key} is given ? ${ENCRYPTION} : {keySource=Microsoft.Storage}`,
    },
    reason:
      "only Entra identities may access the service's data, by TLS 1.2, and with the network option only from inside",
  },
  {
    type: "Microsoft.Storage/storageAccounts",
    values: { "properties.networkAcls.bypass": "AzureServices" },
    reason: "Event Grid delivers to the queue as a trusted service, which the firewall would block otherwise",
  },
  {
    type: "Microsoft.Storage/storageAccounts/blobServices",
    values: { "properties.deleteRetentionPolicy.enabled": "true", "properties.deleteRetentionPolicy.days": "7" },
    reason: "a deleted package can be restored for a week",
  },
  {
    type: "Microsoft.Storage/storageAccounts/blobServices/containers",
    values: { name: "deployments", "properties.publicAccess": "None" },
    reason: "the platform reads the package from this container, and nobody else may",
  },
  {
    type: "Microsoft.Storage/storageAccounts/queueServices/queues",
    values: { name: "vault-events" },
    reason: "the service reads events from this queue (EVENT_QUEUE in shared/discovery/vault-event.ts)",
  },
  {
    type: "Microsoft.KeyVault/vaults",
    values: {
      "properties.enableRbacAuthorization": "true",
      "properties.enableSoftDelete": "true",
      "properties.enablePurgeProtection": "true",
      "properties.publicNetworkAccess": CLOSED_IN_NETWORK,
      "properties.networkAcls.defaultAction": DENIED_IN_NETWORK,
      "properties.networkAcls.bypass": "AzureServices",
    },
    reason: "the vault's keys must survive a deletion, and roles alone give access",
  },
  {
    type: "Microsoft.KeyVault/vaults",
    values: { "properties.softDeleteRetentionInDays": "90" },
    reason: "Azure can't change the retention of an existing vault, so that each upgrade would fail",
  },
  {
    type: "Microsoft.Insights/diagnosticSettings",
    name: "vault_diagnostics",
    values: {
      scope: "{vault.id}",
      "properties.workspaceId": WORKSPACE,
      "properties.logs.0.category": "AuditEvent",
      "properties.logs.0.enabled": "true",
    },
    reason:
      "AuditEvent is a vault's category of reads and writes: https://learn.microsoft.com/azure/key-vault/general/logging",
  },
  ...Object.entries(DIAGNOSTICS).map(([name, resource]) => ({
    type: "Microsoft.Insights/diagnosticSettings",
    name,
    values: {
      scope: `{${resource}.id}`,
      "properties.workspaceId": resource === "log_analytics_workspace" ? "{log_analytics_workspace.id}" : WORKSPACE,
      "properties.logs.0.categoryGroup": "allLogs",
      "properties.logs.0.enabled": "true",
    },
    reason: "diagnosticSettingsEnabled sends all logs of each resource to the workspace",
  })),
  ...["storage_account", "vault"].map((resource) => ({
    type: "Microsoft.Authorization/locks",
    name: `${resource.replace("_account", "")}_lock`,
    values: { scope: `{${resource}.id}`, "properties.level": "{lock.kind}" },
    reason: "the lock protects what cannot be created again",
  })),
  {
    type: "Microsoft.AppConfiguration/configurationStores",
    values: {
      "properties.disableLocalAuth": "true",
      "properties.enablePurgeProtection": "true",
      "properties.softDeleteRetentionInDays": "7",
      "properties.publicNetworkAccess": CLOSED_IN_NETWORK,
    },
    reason: "only Entra identities may access the store, and with the network option only from inside",
  },
  {
    type: "Microsoft.OperationalInsights/workspaces",
    values: {
      "properties.features.disableLocalAuth": "true",
      "properties.features.enableLogAccessUsingOnlyResourcePermissions": "true",
      "properties.publicNetworkAccessForIngestion": OPEN_MONITORING,
      "properties.publicNetworkAccessForQuery": OPEN_MONITORING,
    },
    reason: "only Entra identities may access logs, and who may read a resource may read its logs",
  },
  {
    type: "Microsoft.Insights/components",
    values: {
      "properties.DisableLocalAuth": "true",
      "properties.WorkspaceResourceId": WORKSPACE,
      "properties.publicNetworkAccessForIngestion": OPEN_MONITORING,
      "properties.publicNetworkAccessForQuery": OPEN_MONITORING,
    },
    reason: "only Entra identities may send telemetry",
  },
  {
    type: "Microsoft.Web/sites",
    values: {
      "identity.type": "SystemAssigned, UserAssigned",
      "properties.httpsOnly": "true",
      "properties.publicNetworkAccess": "{app_public_network_access_enabled} ? Enabled : Disabled",
      "properties.virtualNetworkSubnetId": `${NETWORK_CREATED} ? {function_subnet.id} : {function_subnet_resource_id}`,
      "properties.siteConfig.minTlsVersion": "1.2",
      "properties.siteConfig.ipSecurityRestrictionsDefaultAction": "{allowed_ip_ranges} is given ? Deny : Allow",
      "properties.functionAppConfig.deployment.storage.type": "blobContainer",
      "properties.functionAppConfig.deployment.storage.authentication.type": "UserAssignedIdentity",
      "properties.functionAppConfig.deployment.storage.authentication.userAssignedIdentityResourceId": "{identity.id}",
      "properties.functionAppConfig.runtime.name": "node",
      "properties.serverFarmId": "{plan.id}",
    },
    reason: "the app accepts HTTPS with TLS 1.2 only, calls through its subnet and reads its package with its identity",
  },
  {
    type: "Microsoft.Web/sites/basicPublishingCredentialsPolicies",
    values: { "properties.allow": "false" },
    reason: "only Entra identities may publish",
  },
  {
    type: "Microsoft.Web/serverfarms",
    values: { "sku.name": "FC1", "properties.reserved": "true", "properties.zoneRedundant": "{zone_redundant}" },
    reason: "the app is made for Flex Consumption on Linux",
  },
  {
    type: "Microsoft.Network/virtualNetworks/subnets",
    name: "function_subnet",
    values: {
      "properties.delegations.0.properties.serviceName": "Microsoft.App/environments",
      "properties.serviceEndpoints": SERVICE_ENDPOINTS,
    },
    reason: "Flex Consumption needs the delegation, and the firewalls of watched vaults the service endpoint",
  },
  ...["function_subnet", "private_endpoint_subnet"].map((name) => ({
    type: "Microsoft.Network/virtualNetworks/subnets",
    name,
    values: { "properties.networkSecurityGroup.id": "{network_security_group.id}" },
    reason: "policies of many companies deny a subnet without a security group",
  })),
  {
    type: "Microsoft.Network/virtualNetworks/subnets",
    name: "private_endpoint_subnet",
    values: { "properties.privateEndpointNetworkPolicies": "NetworkSecurityGroupEnabled" },
    reason: "private endpoints ignore the security group otherwise",
  },
  {
    type: "Microsoft.Network/privateEndpoints",
    name: "app_private_endpoint",
    values: {
      "properties.privateLinkServiceConnections.0.properties.privateLinkServiceId": "{function_app.id}",
      "properties.privateLinkServiceConnections.0.properties.groupIds": "[sites]",
    },
    reason: "it is the endpoint of the app: https://learn.microsoft.com/azure/private-link/private-endpoint-overview",
  },
  {
    type: "Microsoft.Network/privateDnsZones",
    name: "app_private_dns_zone",
    values: { name: "privatelink.{cloud.app_domain}" },
    reason: "apps have this zone: https://learn.microsoft.com/azure/private-link/private-endpoint-dns",
  },
  {
    type: "Microsoft.Network/publicIPAddresses",
    values: { "sku.name": "Standard", "properties.publicIPAllocationMethod": "Static" },
    reason: "the firewalls of watched vaults allow this address",
  },
  {
    type: "Microsoft.Network/privateEndpoints",
    values: {
      "properties.subnet.id": `${NETWORK_CREATED} ? {private_endpoint_subnet.id} : {private_endpoint_subnet_resource_id}`,
    },
    reason: "a delegated subnet accepts no private endpoint",
  },
  {
    type: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    values: { "properties.registrationEnabled": "false" },
    reason:
      "a network can have one zone that registers its machines, so that the second link would fail: https://learn.microsoft.com/azure/dns/private-dns-autoregistration",
  },
  {
    type: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    values: {
      "properties.resolutionPolicy": "NxDomainRedirect",
      "properties.virtualNetwork.id": `${NETWORK_CREATED} ? {virtual_network.id} : split(/subnets/, {private_endpoint_subnet_resource_id})[0]`,
    },
    reason: "a watched vault that has a private endpoint elsewhere has no record in the zone",
  },
  {
    type: "Microsoft.Insights/scheduledQueryRules",
    values: {
      "properties.enabled": "true",
      "properties.autoMitigate": "true",
      "properties.scopes": "[{application_insights.id}]",
      "properties.actions.actionGroups": "[{action_group.id}]",
    },
    reason: "an alert must reach the operators, and be resolved when its condition is over",
  },
  ...Object.entries({ failed_scans: "0", poison_queues: "0", errors: "10" }).map(([name, threshold]) => ({
    type: "Microsoft.Insights/scheduledQueryRules",
    name: `${name}_alert`,
    values: {
      "properties.severity": "2",
      "properties.evaluationFrequency": "PT15M",
      "properties.windowSize": "PT15M",
      "properties.criteria.allOf.0.query": `file(${name.replaceAll("_", "-")}.kql)`,
      "properties.criteria.allOf.0.operator": "GreaterThan",
      "properties.criteria.allOf.0.timeAggregation": "Count",
      "properties.criteria.allOf.0.threshold": threshold,
    },
    reason: "the alert counts the rows of its own query, without a gap between two evaluations",
  })),
  {
    type: "Microsoft.Insights/scheduledQueryRules",
    name: "no_scan_alert",
    values: {
      "properties.severity": "1",
      "properties.evaluationFrequency": "PT1H",
      "properties.windowSize": "P1D",
      "properties.criteria.allOf.0.query": "file(no-scan.kql)",
      "properties.criteria.allOf.0.operator": "LessThan",
      "properties.criteria.allOf.0.timeAggregation": "Total",
      "properties.criteria.allOf.0.metricMeasureColumn": "scans",
      "properties.criteria.allOf.0.threshold": "1",
    },
    reason: "the alert fires if its query returns the number 0",
  },
  {
    type: "Microsoft.Insights/actionGroups",
    values: { "properties.enabled": "true", location: "global" },
    reason: "a disabled group notifies nobody",
  },
  {
    type: "Microsoft.Communication/emailServices/domains",
    values: {
      name: "AzureManagedDomain",
      "properties.domainManagement": "AzureManaged",
      "properties.userEngagementTracking": "Disabled",
    },
    reason: "Azure's own domain has this name, and tracking would rewrite the links of every mail",
  },
  {
    type: "Microsoft.EventGrid/systemTopics",
    name: "topic",
    values: { "properties.source": "/subscriptions/{subscription_id}" },
    reason: "the topic has the events of its subscription",
  },
  {
    type: "Microsoft.EventGrid/systemTopics",
    values: { "identity.type": "UserAssigned" },
    reason: "only a topic with an identity passes a storage firewall, and one identity for all topics needs one role",
  },
  {
    type: "Microsoft.EventGrid/systemTopics/eventSubscriptions",
    values: {
      "properties.deliveryWithResourceIdentity.identity.type": "UserAssigned",
      "properties.deliveryWithResourceIdentity.identity.userAssignedIdentity": "{event_identity.id}",
      "properties.deliveryWithResourceIdentity.destination.properties.queueName": "vault-events",
      "properties.eventDeliverySchema": "CloudEventSchemaV1_0",
    },
    reason: "the service reads CloudEvents from the queue vault-events",
  },
  {
    type: "Microsoft.EventGrid/systemTopics/eventSubscriptions",
    name: "event_subscription",
    values: {
      "properties.filter.advancedFilters.0.key": "data.operationName",
      "properties.filter.advancedFilters.0.values":
        "[Microsoft.KeyVault/vaults/write, Microsoft.KeyVault/vaults/delete]",
    },
    reason:
      "the service needs the changes of vaults, and of nothing else in the subscription. StringIn compares whole texts, so that a wildcard matches nothing",
  },
  {
    type: "Microsoft.Authorization/policyAssignments",
    values: { "identity.type": "SystemAssigned" },
    reason: "the policy deploys with its own identity",
  },
  {
    type: "Microsoft.Authorization/policyDefinitions",
    values: { "properties.mode": "Indexed", "properties.policyType": "Custom" },
    reason: "the policy deploys next to resources that have a location",
  },
  ...Object.entries(ASSIGNMENTS).map(([name, [role, principal, scope]]) => ({
    type: "Microsoft.Authorization/roleAssignments",
    name,
    values: {
      "properties.roleDefinitionId": role,
      ...(principal && { "properties.principalId": principal }),
      ...(scope && { scope }),
      "properties.principalType": "ServicePrincipal",
    },
    reason: "each assignment gives one role to one identity",
  })),
];

/**
 * Checks the invariants in both languages, and in the templates of the policy.
 * @param policy Template that the policy deploys next to each vault.
 */
export function checkInvariants(
  bicep: ReadonlyMap<string, BicepFile>,
  modules: readonly TerraformModule[],
  policy: ReadonlyMap<string, BicepFile>,
): Finding[] {
  const bicepDeclared = [...bicepResources(bicep), ...bicepResources(policy)].flatMap(([, resources]) => resources);
  const terraform = terraformResources(modules);
  return [
    ...INVARIANTS.flatMap((one) => [
      ...bicepDeclared.flatMap((resource) => checkBicepResource(one, resource)),
      ...KINDS.filter(({ arm }) => arm === one.type).flatMap((kind) =>
        [...terraform].flatMap(([key, resource]) => checkTerraformResource(one, kind, key, resource)),
      ),
      // A resource that only Terraform has.
      ...[...terraform]
        .filter(([key]) => key === `${one.type} ${one.name ?? key.split(" ")[1]}`)
        .flatMap(([key, resource]) => checkArguments(one, key.split(" ")[1]!, resource)),
    ]),
    ...bicepDeclared.flatMap((one) => [...checkEventTypes(one, bicepDeclared), ...checkWatchRole(one)]),
    ...checkAssignmentNames(bicepDeclared),
    ...checkListed(INVARIANTS, bicepDeclared, terraform),
    ...checkConditions(bicepDeclared),
  ];
}

function checkBicepResource({ type, name, values = {}, reason }: Invariant, one: BicepResource): Finding[] {
  if (one.resource.type !== type || (name !== undefined && snake(one.resource.name) !== name)) return [];
  return Object.entries(values).flatMap(([path, expected]) =>
    mustBe(one, `${one.resource.name}: ${path}`, bicepValue(one, path), expected, reason),
  );
}

function checkTerraformResource(
  { name, values = {}, terraform = {}, reason }: Invariant,
  kind: Kind,
  key: string,
  one: TerraformResource,
): Finding[] {
  const [type, ownName] = key.split(" ") as [string, string];
  const expectedName = kind.inside?.name ?? name;
  if (kind.resource !== undefined && kind.resource !== ownName) return [];
  if (type !== kind.azurerm || (expectedName !== undefined && ownName !== expectedName)) return [];
  return [
    ...Object.entries(values).flatMap(([path, expected]) => {
      const pair = kind.pairs.find(({ bicep, presence }) => bicep === path && !presence);
      return pair ? mustBe(one, `${ownName}: ${pair.terraform}`, terraformValue(one, pair), expected, reason) : [];
    }),
    // Inside of another resource, these arguments would be those of the outer one.
    ...(kind.inside ? [] : checkArguments({ type, terraform, reason }, ownName, one)),
  ];
}

/** Checks the values of arguments that Bicep has in another form. */
function checkArguments({ terraform = {}, reason }: Invariant, name: string, one: TerraformResource): Finding[] {
  return Object.entries(terraform).flatMap(([argument, expected]) => {
    const value = terraformValue(one, { bicep: "", terraform: argument });
    return mustBe(one, `${name}: ${argument}`, value, expected, reason);
  });
}

/**
 * Compares a value with the required one. A parameter of a template that is deployed on its own has the name of the value that
 * an operator passes: `{principal_id}` for `{identity.principal_id}`, or `{event_identity_id}` for `{event_identity.id}`.
 */
function mustBe(
  side: { file: string; line: number },
  what: string,
  value: string | undefined,
  expected: string,
  reason: string,
): Finding[] {
  const isPassed =
    value !== undefined && (expected.endsWith(`.${value.slice(1)}`) || expected.replace(".", "_") === value);
  return value === expected || isPassed
    ? []
    : [findingAt(side, `${what} must be ${expected}, but is ${value ?? "not set"}, since ${reason}`)];
}

/** Checks that an event subscription includes exactly the event types that the service needs from its kind of topic. */
function checkEventTypes(one: BicepResource, all: readonly BicepResource[]): Finding[] {
  if (one.resource.type !== "Microsoft.EventGrid/systemTopics/eventSubscriptions") return [];
  const topic = all.find(
    ({ resource, file }) => file === one.file && resource.type === "Microsoft.EventGrid/systemTopics",
  );
  const needed = EVENT_TYPES[(topic && bicepValue(topic, "properties.topicType")) ?? ""] ?? [];
  const list = bicepValue(one, "properties.filter.includedEventTypes") ?? "[]";
  const included = list.slice(1, -1).split(", ");
  const wrong = [
    ...included.filter((type) => !needed.includes(type)),
    ...needed.filter((type) => !included.includes(type)),
  ];
  return wrong.length === 0 && needed.length > 0
    ? []
    : [
        findingAt(
          one,
          `includedEventTypes must be ${needed.join(", ") || "of a known topic"}: see ${wrong.join(", ")}`,
        ),
      ];
}

/** Checks that a custom role on watched scopes can only read, and never a secret's value. */
function checkWatchRole(one: BicepResource): Finding[] {
  if (one.resource.type !== "Microsoft.Authorization/roleDefinitions" || !one.file.includes("/watch/")) return [];
  const actions = (bicepValue(one, "properties.permissions.0.actions") ?? "[]").slice(1, -1).split(", ");
  return actions
    .filter((action) => !/^Microsoft\.[\w/]+\/read$/.test(action))
    .map((action) => findingAt(one, `${one.resource.name}: ${action} is more than reading one kind of resource`));
}

/** Checks that each assignment has an invariant. */
function checkAssignmentNames(all: readonly BicepResource[]): Finding[] {
  return all
    .filter(({ resource, file }) => resource.type.endsWith("/roleAssignments") && file.endsWith(".bicep"))
    .filter(({ resource }) => !ASSIGNMENTS[snake(resource.name)])
    .map((one) => findingAt(one, `${one.resource.name} is not in ASSIGNMENTS (invariants.ts)`));
}
