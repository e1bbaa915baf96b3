// Values that both languages must set, each with its reason, in addition to those in invariants.ts, which checks both tables. A
// value is in the normalized form of both languages (parity/normalize.ts). To add one, write any text: the check's finding shows
// the text that the templates have.
// - `{name}` is a parameter or a declaration. `{each.key}`, `{key.}` and `{value.}` are the key or the value of a loop's item.
// - Texts have no quotes, so `? a : ` ends with the empty text, and `lookup(x, y, )` has it as the last argument.
// - `each of {list}` is a loop over the list.
// - `{x} is given`: not null or empty. In a condition, `x != null ? a : b` becomes `not {x} is given ? b : a`, and
//   `x == null ? a : b` becomes `not not {x} is given ? b : a`.

/** Values that resources of a type must have. */
export interface Invariant {
  /** Azure resource type. */
  type: string;
  /** Name of the resource in snake_case. Without it, the invariant applies to each resource of the type. */
  name?: string;
  /** Required value by the path of the Bicep property. Also required of the Terraform argument that parity pairs with it. */
  values?: Record<string, string>;
  /** Required value by the path of a Terraform argument, for arguments without such a pair or with another form. */
  terraform?: Record<string, string>;
  reason: string;
}

const JOIN = "Microsoft.Network/virtualNetworks/subnets/join/action";
/** Number of bits that Terraform's `cidrsubnet` must add to the prefix of the network, to get a /26. */
const SUBNET_BITS = "26 - tonumber(split(/, {network_address_prefix})[1])";
const EXISTING_KEY = "{customer_managed_key} is given";
const KEY_IDENTITY = `not ${EXISTING_KEY} ? [] : [{customer_managed_key.user_assigned_identity_resource_id}]`;
/** The client ID of the identity if it is given. App Configuration needs it and does not accept the resource ID. */
const SETTINGS_KEY = `not ${EXISTING_KEY} ? [] : compact([{customer_managed_key.user_assigned_identity_client_id}])`;
const KEY_ID = `not ${EXISTING_KEY} ?  : join(/, concat([https://split(/, {customer_managed_key.key_vault_resource_id})[8].{cloud.vault_domain}/keys, {customer_managed_key.key_name}], not not {customer_managed_key.key_version} is given ? [{customer_managed_key.key_version}] : []))`;
const ZONES = "{private_dns_zone_resource_ids}";

const OWN_ZONES = `{private_dns_zones_enabled} and not ${ZONES} is given`;

/** The columns of the table of audit streams (shared/siem/event.ts). */
const STREAM_COLUMNS =
  "[{name=TimeGenerated, type=datetime}, {name=OccurredAt, type=datetime}, {name=EventId, type=string}, {name=EventType, type=string}, {name=Sequence, type=string}, {name=StreamId, type=string}, {name=Actor, type=string}, {name=Action, type=string}, {name=Outcome, type=string}, {name=Target, type=string}, {name=Data, type=string}, {name=DataPart2, type=string}, {name=DataPart3, type=string}]";

/** The table of audit streams, and the data collection rule that fills it. */
const STREAMS: readonly Invariant[] = [
  {
    type: "Microsoft.OperationalInsights/workspaces/tables",
    name: "stream_table",
    values: { "properties.schema.name": "CredentialLifecycle_CL", "properties.schema.columns": STREAM_COLUMNS },
    terraform: {
      workspace_id: "{workspace_id}",
      "column.for_each": STREAM_COLUMNS,
      "column.name": "{value.name}",
      "column.type": "{value.type}",
    },
    reason: "the service sends these columns, and the table must be in the given workspace",
  },
  {
    type: "Microsoft.Insights/dataCollectionEndpoints",
    name: "stream_endpoint",
    values: { "properties.networkAcls.publicNetworkAccess": "Enabled" },
    terraform: { public_network_access_enabled: "true" },
    reason: "the service reaches the endpoint without a private link scope of Azure Monitor",
  },
  {
    type: "Microsoft.Insights/dataCollectionRules",
    name: "stream_rule",
    values: {
      "properties.dataCollectionEndpointId": "{stream_endpoint.id}",
      "properties.streamDeclarations.Custom-CredentialLifecycle_CL.columns": STREAM_COLUMNS,
      "properties.destinations.logAnalytics.0.name": "workspace",
      "properties.destinations.logAnalytics.0.workspaceResourceId": "{workspace.id}",
      "properties.dataFlows.0.streams": "[Custom-CredentialLifecycle_CL]",
      "properties.dataFlows.0.destinations": "[workspace]",
      "properties.dataFlows.0.outputStream": "Custom-{stream_table.name}",
      "properties.dataFlows.0.transformKql": "source",
    },
    terraform: {
      "stream_declaration.stream_name": "Custom-CredentialLifecycle_CL",
      "stream_declaration.column.for_each": STREAM_COLUMNS,
      "stream_declaration.column.name": "{value.name}",
      "stream_declaration.column.type": "{value.type}",
      "destinations.log_analytics.workspace_resource_id": "{workspace_id}",
    },
    reason: "the rule must take the service's stream, and write it to the table unchanged",
  },
];

/** Topics: the source, and how long an event is kept. */
const EVENTS: readonly Invariant[] = [
  {
    type: "Microsoft.EventGrid/systemTopics",
    name: "topic",
    values: { location: "global", "properties.topicType": "Microsoft.Resources.Subscriptions" },
    terraform: { "identity.identity_ids": "[{event_identity.id}]" },
    reason: "a topic of a subscription has no region, and delivers with the identity that has the role",
  },
  {
    type: "Microsoft.EventGrid/systemTopics",
    // The first resource of the template in policy.json. policy.ts generates this name.
    name: "resource0",
    values: { "properties.topicType": "Microsoft.KeyVault.vaults", "properties.source": "{vault_id}" },
    reason: "the policy creates topics of vaults",
  },
  {
    type: "Microsoft.EventGrid/systemTopics/eventSubscriptions",
    values: {
      "properties.deliveryWithResourceIdentity.destination.properties.resourceId": "{storage_account.id}",
      "properties.deliveryWithResourceIdentity.destination.properties.queueMessageTimeToLiveInSeconds": "86400",
      "properties.retryPolicy.maxDeliveryAttempts": "30",
      "properties.retryPolicy.eventTimeToLiveInMinutes": "1440",
    },
    terraform: { system_topic: "{topic.name}" },
    reason: "a scan finds the change within a day, so that older events are of no use",
  },
  {
    type: "Microsoft.PolicyInsights/remediations",
    values: {
      "properties.policyAssignmentId": "{subscription_policy_assignment.id}",
      "properties.resourceDiscoveryMode": "ReEvaluateCompliance",
    },
    terraform: { subscription_id: "{scope}" },
    reason: "the first remediation starts before Azure has evaluated the policy",
  },
  ...["subscription", "management_group"].flatMap((scope): Invariant[] => [
    {
      type: "Microsoft.Authorization/policyDefinitions",
      name: `${scope}_policy`,
      values: { "properties.parameters": "{policy.parameters}", "properties.policyRule": "{policy.policy_rule}" },
      terraform: {
        parameters: "jsondecode(file(policy.json))",
        policy_rule: "jsondecode(file(policy.json))",
        ...(scope === "management_group" && { management_group_id: "{scope}" }),
      },
      reason: "both languages deploy policy.json",
    },
    {
      type: "Microsoft.Authorization/policyAssignments",
      name: `${scope}_policy_assignment`,
      values: {
        "properties.policyDefinitionId": `{${scope}_policy.id}`,
        "properties.parameters":
          "{environmentName={value={environment_name}}, eventIdentityId={value={event_identity_id}}, storageAccountId={value={storage_account_id}}}",
      },
      terraform: { [`${scope}_id`]: "{scope}" },
      reason: "the policy gets the ids of the service's own resources",
    },
    {
      type: "Microsoft.Authorization/roleAssignments",
      name: `${scope}_topics_role`,
      values: { "properties.principalId": `{${scope}_policy_assignment.identity_principal_id}` },
      reason: "the policy deploys with the identity of its assignment",
    },
  ]),
  ...["identity_operator_role", "event_deployer_role"].map((name) => ({
    type: "Microsoft.Authorization/roleAssignments",
    name,
    // The first of two callers. The other one has the identity of the subscription's assignment.
    values: { "properties.principalId": "{management_group_policy_assignment.identity_principal_id}" },
    reason: "the policy deploys with the identity of its assignment",
  })),
];

/** Tiers, which decide about features and prices. */
const TIERS: readonly Invariant[] = [
  {
    type: "Microsoft.AppConfiguration/configurationStores",
    values: { "sku.name": "standard" },
    reason: "the free tier has no private endpoint, no purge protection and no customer-managed key",
  },
  {
    type: "Microsoft.AppConfiguration/configurationStores",
    values: {
      identity:
        "{type=UserAssigned, userAssignedIdentities={{customer_managed_key.user_assigned_identity_resource_id}={}}}",
      "properties.encryption":
        "{keyVaultProperties={identityClientId={customer_managed_key.user_assigned_identity_client_id}, keyIdentifier=join(/, concat([https://last(split(/, {customer_managed_key.key_vault_resource_id})).{cloud.vault_domain}/keys, {customer_managed_key.key_name}], {customer_managed_key.key_version} is given ? [{customer_managed_key.key_version}] : []))}}",
    },
    terraform: {
      "identity.for_each": SETTINGS_KEY,
      "identity.type": "UserAssigned",
      "identity.identity_ids": "[{customer_managed_key.user_assigned_identity_resource_id}]",
      "encryption.for_each": SETTINGS_KEY,
      "encryption.key_vault_key_identifier": KEY_ID,
      // The item of `for_each`.
      "encryption.identity_client_id": "{value.}",
    },
    reason:
      "App Configuration reads the key with the identity whose client ID is given, and is not encrypted without it",
  },
  {
    type: "Microsoft.KeyVault/vaults",
    values: { "properties.sku.name": "standard", "properties.tenantId": "{tenant_id}" },
    reason: "the vault holds secrets only, and the premium tier adds hardware keys",
  },
  {
    type: "Microsoft.OperationalInsights/workspaces",
    values: { "properties.sku.name": "PerGB2018", "properties.retentionInDays": "{log_retention_days}" },
    reason: "the other tiers are for commitments or retired",
  },
  {
    type: "Microsoft.Network/natGateways",
    values: { "sku.name": "Standard", "properties.publicIpAddresses.0.id": "{public_ip_address.id}" },
    reason: "the gateway has the tier of its address",
  },
  {
    type: "Microsoft.Storage/storageAccounts",
    values: { "sku.name": "Standard_{storage_replication}", "properties.accessTier": "Hot" },
    terraform: {
      account_tier: "Standard",
      "identity.for_each": KEY_IDENTITY,
      "identity.type": "UserAssigned",
      "customer_managed_key.for_each": KEY_IDENTITY,
      // Azure can't change the key type of an existing account.
      queue_encryption_key_type: `not ${EXISTING_KEY} ? Service : Account`,
      table_encryption_key_type: `not ${EXISTING_KEY} ? Service : Account`,
      "customer_managed_key.key_vault_key_id": KEY_ID,
    },
    reason: "another tier or key type replaces the account, with all its data",
  },
  ...["plan", "function_app"].map((name) => ({
    type: name === "plan" ? "Microsoft.Web/serverfarms" : "Microsoft.Web/sites",
    values: { kind: name === "plan" ? "functionapp" : "functionapp,linux" },
    reason: "the kind decides what the portal and the platform do with the app",
  })),
];

/** The app, its mail and its monitoring. */
const APP: readonly Invariant[] = [
  {
    type: "Microsoft.Web/sites",
    values: {
      "properties.functionAppConfig.deployment.storage.value":
        "{storage_account.primary_endpoints_blob}{deployment_container.name}",
      "properties.siteConfig.ipSecurityRestrictions": "each of {allowed_ip_ranges}",
      "properties.functionAppConfig.runtime.version": "{node_version}",
      "properties.functionAppConfig.scaleAndConcurrency.instanceMemoryMB": "{instance_memory_mb}",
      "properties.functionAppConfig.scaleAndConcurrency.maximumInstanceCount": "{maximum_instance_count}",
    },
    terraform: {
      "identity.identity_ids": "[{identity.id}]",
      "site_config.application_insights_connection_string": "{application_insights.connection_string}",
      "site_config.ip_restriction.name": "allowed-{key.}",
      "site_config.ip_restriction.action": "Allow",
      "site_config.ip_restriction.priority": "100 + {key.}",
    },
    reason: "the platform reads the package with the service's identity, and the parameters set the rest",
  },
  {
    type: "Microsoft.Web/sites",
    values: {
      "properties.functionAppConfig.scaleAndConcurrency.alwaysReady":
        "{always_ready_instances} == 0 ? [] : [{instanceCount={always_ready_instances}, name=http}]",
    },
    terraform: {
      "always_ready.for_each": "{always_ready_instances} == 0 ? [] : [{always_ready_instances}]",
      "always_ready.name": "http",
    },
    reason: "any number above 0 keeps that many instances ready for HTTP, and 0 none",
  },
  {
    type: "Microsoft.Communication/communicationServices",
    values: {
      "properties.linkedDomains": "[{email_domain.id}]",
      "properties.dataLocation": "{mail_data_location}",
      location: "global",
    },
    reason: "mail can only be sent from a linked domain",
  },
  {
    type: "azurerm_communication_service_email_domain_association",
    terraform: {
      communication_service_id: "{communication_service.id}",
      email_service_domain_id: "{email_domain.id}",
    },
    reason: "mail can only be sent from a linked domain",
  },
  {
    type: "Microsoft.Communication/emailServices",
    values: { "properties.dataLocation": "{mail_data_location}", location: "global" },
    reason: "mail is stored where the parameter says",
  },
  {
    type: "Microsoft.Communication/emailServices/domains",
    terraform: { email_service_id: "{email_service.id}" },
    reason: "the domain belongs to the service for mail",
  },
  {
    type: "Microsoft.Insights/components",
    values: { kind: "web", "properties.Application_Type": "web" },
    reason: "other kinds are retired",
  },
  {
    type: "Microsoft.Insights/workbooks",
    values: {
      "properties.category": "workbook",
      "properties.sourceId": "lower({application_insights.id})",
      "properties.serializedData": "file(workbook.json)",
    },
    reason: "the portal lists the workbook of a component by its id in lower case",
  },
  {
    type: "Microsoft.Insights/actionGroups",
    values: {
      "properties.groupShortName": "lifecycle",
      "properties.emailReceivers": "each of {operator_email_addresses}",
    },
    terraform: {
      "email_receiver.for_each": "{operator_email_addresses}",
      "email_receiver.name": "operator-{key.}",
      "email_receiver.use_common_alert_schema": "true",
    },
    reason: "every operator is notified, in a mail that names the service",
  },
  {
    type: "Microsoft.Insights/scheduledQueryRules",
    name: "no_scan_alert",
    values: { "properties.overrideQueryTimeRange": "P2D" },
    reason: "the query tells a new service from one without scans by lines that are older than a day",
  },
];

/** The network, if the templates create one. */
const NETWORK: readonly Invariant[] = [
  {
    type: "Microsoft.Network/virtualNetworks",
    values: { "properties.addressSpace.addressPrefixes": "[{network_address_prefix}]" },
    reason: "the network has the range that the parameter names",
  },
  ...["function_subnet", "private_endpoint_subnet"].map((name, index) => ({
    type: "Microsoft.Network/virtualNetworks/subnets",
    name,
    values: { "properties.addressPrefix": `cidrSubnet({network_address_prefix}, 26, ${index})` },
    terraform: {
      address_prefixes: `[cidrsubnet({network_address_prefix}, ${SUBNET_BITS}, ${index})]`,
      virtual_network_name: "{virtual_network.name}",
    },
    reason: "both subnets fit into the smallest network, a /25",
  })),
  {
    type: "Microsoft.Network/virtualNetworks/subnets",
    name: "function_subnet",
    values: { "properties.delegations.0.name": "functions", "properties.natGateway": "{id={nat_gateway.id}}" },
    terraform: { "delegation.service_delegation.actions": `[${JOIN}]` },
    reason: "the app calls through this subnet",
  },
  ...["function_subnet", "private_endpoint_subnet"].map((subnet) => ({
    type: "azurerm_subnet_network_security_group_association",
    name: `${subnet}_security`,
    terraform: { subnet_id: `{${subnet}.id}`, network_security_group_id: "{network_security_group.id}" },
    reason: "policies of many companies deny a subnet without a security group",
  })),
  {
    type: "azurerm_subnet_nat_gateway_association",
    terraform: { subnet_id: "{function_subnet.id}", nat_gateway_id: "{nat_gateway.id}" },
    reason: "the app calls through this subnet",
  },
  {
    type: "azurerm_nat_gateway_public_ip_association",
    terraform: { nat_gateway_id: "{nat_gateway.id}", public_ip_address_id: "{public_ip_address.id}" },
    reason: "the gateway needs its address",
  },
  {
    type: "Microsoft.Network/privateEndpoints",
    name: "private_endpoint",
    values: {
      "properties.privateLinkServiceConnections.0.name": "{endpoint.group_id}",
      "properties.privateLinkServiceConnections.0.properties.privateLinkServiceId": "{endpoint.resource_id}",
      "properties.privateLinkServiceConnections.0.properties.groupIds": "[{endpoint.group_id}]",
    },
    terraform: {
      "private_service_connection.name": "{each.key}",
      "private_service_connection.private_connection_resource_id": "{each.value}",
      "private_service_connection.subresource_names": "[{each.key}]",
    },
    reason: "each endpoint of the list (parity/endpoints.ts) is created",
  },
  {
    type: "Microsoft.Network/privateEndpoints",
    terraform: { "private_service_connection.is_manual_connection": "false", "private_dns_zone_group.name": "default" },
    reason: "a manual connection waits for an approval that nobody gives",
  },
  ...[
    ["private_endpoint", "{private_dns_zone.id}", "{each.key}"],
    ["app_private_endpoint", "{app_private_dns_zone.id}", "sites"],
  ].map(([name, zone, group]) => ({
    type: "Microsoft.Network/privateEndpoints",
    name: name!,
    terraform: {
      "private_dns_zone_group.for_each": `${OWN_ZONES} ? [${zone}] : compact([lookup(each of coalesce(${ZONES}, {}), ${group}, )])`,
    },
    reason: "the record of each endpoint is in the zone of its group",
  })),
  {
    type: "Microsoft.Network/privateEndpoints",
    name: "app_private_endpoint",
    values: { "properties.privateLinkServiceConnections.0.name": "sites" },
    reason: "the connection has the name of its group",
  },
  {
    type: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    name: "private_dns_zone_group",
    values: {
      "properties.privateDnsZoneConfigs.0.name": "{endpoint.group_id}",
      "properties.privateDnsZoneConfigs.0.properties.privateDnsZoneId": `contains(${ZONES}, {endpoint.group_id}) ? ${ZONES}[{endpoint.group_id}] : {private_dns_zone.id}`,
    },
    reason: "the record of each endpoint is in the zone of its group",
  },
  {
    type: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    name: "app_private_dns_zone_group",
    values: {
      "properties.privateDnsZoneConfigs.0.name": "sites",
      "properties.privateDnsZoneConfigs.0.properties.privateDnsZoneId": `contains(${ZONES}, sites) ? {private_dns_zone_resource_ids.sites} : {app_private_dns_zone.id}`,
    },
    reason: "the record of the app is in the zone of apps",
  },
  ...["", "app_"].map((prefix) => ({
    type: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    name: `${prefix}virtual_network_link`,
    terraform: { private_dns_zone_id: `{${prefix}private_dns_zone.id}` },
    reason: "each zone is linked to the app's network",
  })),
  ...[
    ["Microsoft.Storage/storageAccounts/blobServices/containers", "deployment_container"],
    ["Microsoft.Storage/storageAccounts/queueServices/queues", "vault_events_queue"],
  ].map(([type, name]) => ({
    type: type!,
    name: name!,
    terraform: { storage_account_id: "{storage_account.id}" },
    reason: "the service has one storage account",
  })),
];

/** Further values that both languages must set. */
export const FURTHER_VALUES: readonly Invariant[] = [...EVENTS, ...STREAMS, ...TIERS, ...APP, ...NETWORK];
