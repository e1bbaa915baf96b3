// The parity table: which Terraform resource corresponds to which Azure resource type, and which argument to which property.
// The parity check (parity.ts) reports properties and arguments of the templates that are not listed here.

/** A resource type in both languages. */
export interface Kind {
  /** Azure resource type, as Bicep names it. */
  arm: string;
  /** Resource type of the Terraform provider azurerm. */
  azurerm: string;
  /** Name of the only resource to which the kind applies, in snake_case. */
  resource?: string;
  /** Set if Terraform has no separate resource, but declares it in this argument or block of the resource `name`. */
  inside?: { name: string; argument: string };
  pairs: Pair[];
  /**
   * Azure's value of an optional boolean argument if Bicep omits its property, as the argument's value. Both languages may omit
   * the argument if the provider's default is the same. https://learn.microsoft.com/azure/templates/<type>
   */
  azureDefaults?: Record<string, boolean>;
  /**
   * Properties or arguments that only one language has, each with the reason. `always x` means that Bicep must set the value x,
   * which Terraform's provider sets by itself.
   */
  only?: { bicep?: Record<string, string>; terraform?: Record<string, string> };
}

/** A Bicep property and the Terraform argument with the same meaning. */
export interface Pair {
  /** Path of the property, such as `properties.sku.name`. A number in a path is the index of a list item. */
  bicep: string;
  /** Path of the argument, such as `site_config.minimum_tls_version`. */
  terraform: string;
  /** Bicep values by the Terraform value with the same meaning. Other values are equal in both languages. */
  bicepValues?: Record<string, string>;
  /** Compares only whether both languages set it, because they express the value too differently. */
  presence?: true;
}

const pair = (bicep: string, terraform: string, bicepValues?: Record<string, string>): Pair =>
  bicepValues ? { bicep, terraform, bicepValues } : { bicep, terraform };
const presencePair = (bicep: string, terraform: string): Pair => ({ bicep, terraform, presence: true });

// Values are texts as normalize.ts writes them: `{x}` is a parameter or a member of a resource, `x is given` tests for a value,
// and `x ? a : b` is a condition.
const NAMED = [pair("name", "name")];
const TAGGED = [...NAMED, pair("tags", "tags")];
const LOCATED = [...TAGGED, pair("location", "location")];
const INVERTED = { true: "false", false: "true" };
const ENABLED_OR_DISABLED = { true: "Enabled", false: "Disabled" };
/** A boolean of Terraform, which is `Enabled` or `Disabled` in Bicep. */
const enabledIf = (variable: string) => ({ [`{${variable}}`]: `{${variable}} ? Enabled : Disabled` });
const RESOURCE_GROUP = { resource_group_name: "Bicep has the resource group as its scope" };

/** Arguments of a private endpoint that Bicep has elsewhere. */
const ENDPOINT_ARGUMENTS = {
  ...RESOURCE_GROUP,
  "private_service_connection.is_manual_connection": "Bicep has another property for manual connections",
  "lifecycle.ignore_changes": "Bicep does not change a zone group that a policy added",
  "private_dns_zone_group.name": "part of the zone group, which is a separate resource in Bicep",
  "private_dns_zone_group.private_dns_zone_ids": "part of the zone group, which is a separate resource in Bicep",
};

/** Condition under which the templates create a network, and not only private endpoints in existing subnets. */
export const NETWORK_CREATED = "{network_enabled} and not {function_subnet_resource_id} is given";
const NAT_GATEWAY_CREATED = `${NETWORK_CREATED} and {nat_gateway_enabled}`;

/** The service endpoints of the app's subnet: none with a NAT gateway, whose address an endpoint would hide. */
export const SERVICE_ENDPOINTS = "{nat_gateway.id} is given ? [] : [{service=Microsoft.KeyVault}]";

/** All resource types that the templates create. */
export const KINDS: Kind[] = [
  { arm: "Microsoft.Resources/resourceGroups", azurerm: "azurerm_resource_group", pairs: LOCATED },
  {
    arm: "Microsoft.ManagedIdentity/userAssignedIdentities",
    azurerm: "azurerm_user_assigned_identity",
    pairs: LOCATED,
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Storage/storageAccounts",
    azurerm: "azurerm_storage_account",
    azureDefaults: {
      cross_tenant_replication_enabled: false,
      is_hns_enabled: false,
      nfsv3_enabled: false,
      large_file_share_enabled: false,
      infrastructure_encryption_enabled: false,
      sftp_enabled: false,
    },
    pairs: [
      ...LOCATED,
      pair("kind", "account_kind"),
      pair("sku.name", "account_replication_type", { "{storage_replication}": "Standard_{storage_replication}" }),
      pair("properties.accessTier", "access_tier"),
      // The values are compared by an invariant in Bicep (invariants.ts), and by terraform test (infra/terraform/tests).
      presencePair("identity", "identity.type"),
      presencePair("properties.encryption", "customer_managed_key.key_vault_key_id"),
      pair("properties.allowBlobPublicAccess", "allow_nested_items_to_be_public"),
      pair("properties.allowSharedKeyAccess", "shared_access_key_enabled"),
      pair("properties.isLocalUserEnabled", "local_user_enabled"),
      pair("properties.defaultToOAuthAuthentication", "default_to_oauth_authentication"),
      pair("properties.minimumTlsVersion", "min_tls_version"),
      pair("properties.supportsHttpsTrafficOnly", "https_traffic_only_enabled"),
      pair("properties.publicNetworkAccess", "public_network_access_enabled", ENABLED_OR_DISABLED),
      pair("properties.networkAcls.defaultAction", "network_rules.default_action"),
      pair("properties.networkAcls.bypass", "network_rules.bypass", {
        "[AzureServices]": "AzureServices",
        "[None]": "None",
      }),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        account_tier: "first half of Bicep's sku.name",
        "identity.identity_ids": "part of Bicep's identity",
        "customer_managed_key.user_assigned_identity_id": "part of Bicep's encryption",
        queue_encryption_key_type: "part of Bicep's encryption",
        table_encryption_key_type: "part of Bicep's encryption",
        "blob_properties.delete_retention_policy.days":
          "part of the blob service, which is a separate resource in Bicep",
      },
    },
  },
  {
    arm: "Microsoft.Storage/storageAccounts/blobServices",
    azurerm: "azurerm_storage_account",
    inside: { name: "storage_account", argument: "blob_properties" },
    pairs: [pair("properties.deleteRetentionPolicy.days", "blob_properties.delete_retention_policy.days")],
    only: {
      bicep: { name: "always default", "properties.deleteRetentionPolicy.enabled": "always true" },
    },
  },
  {
    arm: "Microsoft.Storage/storageAccounts/blobServices/containers",
    azurerm: "azurerm_storage_container",
    azureDefaults: { encryption_scope_override_enabled: true },
    pairs: [...NAMED, pair("properties.publicAccess", "container_access_type", { private: "None" })],
    only: { terraform: { storage_account_id: "Bicep's parent" } },
  },
  {
    arm: "Microsoft.Storage/storageAccounts/queueServices/queues",
    azurerm: "azurerm_storage_queue",
    pairs: NAMED,
    only: { terraform: { storage_account_id: "Bicep's parent" } },
  },
  {
    arm: "Microsoft.EventGrid/systemTopics",
    azurerm: "azurerm_eventgrid_system_topic",
    pairs: [
      ...LOCATED,
      pair("identity.type", "identity.type"),
      presencePair("identity.userAssignedIdentities", "identity.identity_ids"),
      pair("properties.source", "source_resource_id"),
      pair("properties.topicType", "topic_type"),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        "lifecycle.precondition.condition": "Bicep deploys the topic after the module with its role",
        "lifecycle.precondition.error_message": "Bicep deploys the topic after the module with its role",
      },
    },
  },
  {
    arm: "Microsoft.EventGrid/systemTopics/eventSubscriptions",
    azurerm: "azurerm_eventgrid_system_topic_event_subscription",
    azureDefaults: { advanced_filtering_on_arrays_enabled: false },
    pairs: [
      ...NAMED,
      pair("properties.deliveryWithResourceIdentity.identity.type", "delivery_identity.type"),
      pair(
        "properties.deliveryWithResourceIdentity.identity.userAssignedIdentity",
        "delivery_identity.user_assigned_identity",
      ),
      pair(
        "properties.deliveryWithResourceIdentity.destination.properties.resourceId",
        "storage_queue_endpoint.storage_account_id",
      ),
      pair(
        "properties.deliveryWithResourceIdentity.destination.properties.queueName",
        "storage_queue_endpoint.queue_name",
      ),
      pair(
        "properties.deliveryWithResourceIdentity.destination.properties.queueMessageTimeToLiveInSeconds",
        "storage_queue_endpoint.queue_message_time_to_live_in_seconds",
      ),
      pair("properties.eventDeliverySchema", "event_delivery_schema"),
      pair("properties.retryPolicy.maxDeliveryAttempts", "retry_policy.max_delivery_attempts"),
      pair("properties.retryPolicy.eventTimeToLiveInMinutes", "retry_policy.event_time_to_live"),
      pair("properties.filter.includedEventTypes", "included_event_types"),
      pair("properties.filter.advancedFilters.0.key", "advanced_filter.string_in.key"),
      pair("properties.filter.advancedFilters.0.values", "advanced_filter.string_in.values"),
    ],
    only: {
      bicep: {
        "properties.deliveryWithResourceIdentity.destination.endpointType": "always StorageQueue",
        "properties.filter.advancedFilters.0.operatorType": "always StringIn",
      },
      terraform: { ...RESOURCE_GROUP, system_topic: "Bicep's parent" },
    },
  },
  {
    arm: "Microsoft.Authorization/policyDefinitions",
    azurerm: "azurerm_policy_definition",
    pairs: [
      ...NAMED,
      pair("properties.policyType", "policy_type"),
      pair("properties.mode", "mode"),
      pair("properties.displayName", "display_name"),
      pair("properties.description", "description"),
      presencePair("properties.parameters", "parameters"),
      presencePair("properties.policyRule", "policy_rule"),
    ],
  },
  ...["azurerm_subscription_policy_assignment", "azurerm_management_group_policy_assignment"].map((azurerm) => ({
    arm: "Microsoft.Authorization/policyAssignments",
    azurerm,
    azureDefaults: { enforce: true },
    pairs: [
      ...NAMED,
      pair("location", "location"),
      pair("identity.type", "identity.type"),
      pair("properties.displayName", "display_name"),
      pair("properties.policyDefinitionId", "policy_definition_id"),
      pair("properties.parameters", "parameters"),
    ],
  })),
  {
    arm: "Microsoft.PolicyInsights/remediations",
    azurerm: "azurerm_subscription_policy_remediation",
    pairs: [
      ...NAMED,
      pair("properties.policyAssignmentId", "policy_assignment_id"),
      pair("properties.resourceDiscoveryMode", "resource_discovery_mode"),
    ],
  },
  {
    arm: "Microsoft.KeyVault/vaults",
    azurerm: "azurerm_key_vault",
    azureDefaults: {
      enabled_for_deployment: false,
      enabled_for_disk_encryption: false,
      enabled_for_template_deployment: false,
    },
    pairs: [
      ...LOCATED,
      pair("properties.tenantId", "tenant_id"),
      pair("properties.sku.name", "sku_name"),
      pair("properties.enableRbacAuthorization", "rbac_authorization_enabled"),
      pair("properties.softDeleteRetentionInDays", "soft_delete_retention_days"),
      pair("properties.enablePurgeProtection", "purge_protection_enabled"),
      pair("properties.publicNetworkAccess", "public_network_access_enabled", ENABLED_OR_DISABLED),
      pair("properties.networkAcls.defaultAction", "network_acls.default_action"),
      pair("properties.networkAcls.bypass", "network_acls.bypass"),
    ],
    only: {
      bicep: { "properties.sku.family": "always A", "properties.enableSoftDelete": "always true" },
      terraform: RESOURCE_GROUP,
    },
  },
  {
    arm: "Microsoft.Insights/diagnosticSettings",
    azurerm: "azurerm_monitor_diagnostic_setting",
    pairs: [
      ...NAMED,
      pair("scope", "target_resource_id", {
        "{storage_account.id}/blobServices/default": "{blob_service.id}",
        "{storage_account.id}/queueServices/default": "{queue_service.id}",
        "{storage_account.id}/tableServices/default": "{table_service.id}",
      }),
      pair("properties.workspaceId", "log_analytics_workspace_id"),
      pair("properties.logs.0.category", "enabled_log.category"),
      pair("properties.logs.0.categoryGroup", "enabled_log.category_group"),
    ],
    only: { bicep: { "properties.logs.0.enabled": "always true" } },
  },
  {
    arm: "Microsoft.OperationalInsights/workspaces",
    azurerm: "azurerm_log_analytics_workspace",
    azureDefaults: {
      allow_resource_only_permissions: false,
      cmk_for_query_forced: false,
      immediate_data_purge_on_30_days_enabled: false,
    },
    pairs: [
      ...LOCATED,
      pair("properties.sku.name", "sku"),
      pair("properties.retentionInDays", "retention_in_days"),
      pair("properties.features.disableLocalAuth", "local_authentication_enabled", INVERTED),
      pair("properties.features.enableLogAccessUsingOnlyResourcePermissions", "allow_resource_only_permissions"),
      pair("properties.publicNetworkAccessForIngestion", "internet_ingestion_access_type"),
      pair("properties.publicNetworkAccessForQuery", "internet_query_access_type"),
    ],
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.OperationalInsights/workspaces/tables",
    azurerm: "azurerm_log_analytics_workspace_table_custom_log",
    pairs: [
      pair("name", "name"),
      { bicep: "parent", terraform: "workspace_id", presence: true },
      { bicep: "properties.schema.columns", terraform: "column.name", presence: true },
    ],
    only: {
      bicep: { "properties.schema.name": "Terraform takes the table's name" },
      terraform: { "column.type": "Bicep has both in a list (further-values.ts)" },
    },
  },
  {
    arm: "Microsoft.Insights/dataCollectionEndpoints",
    azurerm: "azurerm_monitor_data_collection_endpoint",
    azureDefaults: { public_network_access_enabled: true },
    pairs: [
      ...LOCATED,
      pair("properties.networkAcls.publicNetworkAccess", "public_network_access_enabled", {
        true: "Enabled",
        false: "Disabled",
      }),
    ],
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Insights/dataCollectionRules",
    azurerm: "azurerm_monitor_data_collection_rule",
    pairs: [
      ...LOCATED,
      pair("properties.dataCollectionEndpointId", "data_collection_endpoint_id"),
      { bicep: "properties.streamDeclarations", terraform: "stream_declaration.stream_name", presence: true },
      pair("properties.destinations.logAnalytics.0.name", "destinations.log_analytics.name"),
      {
        bicep: "properties.destinations.logAnalytics.0.workspaceResourceId",
        terraform: "destinations.log_analytics.workspace_resource_id",
        presence: true,
      },
      pair("properties.dataFlows.0.streams", "data_flow.streams"),
      pair("properties.dataFlows.0.destinations", "data_flow.destinations"),
      pair("properties.dataFlows.0.outputStream", "data_flow.output_stream"),
      pair("properties.dataFlows.0.transformKql", "data_flow.transform_kql"),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        "stream_declaration.column.name": "Bicep has the columns in a list (further-values.ts)",
        "stream_declaration.column.type": "Bicep has the columns in a list (further-values.ts)",
      },
    },
  },
  {
    arm: "Microsoft.Insights/components",
    azurerm: "azurerm_application_insights",
    azureDefaults: {
      daily_data_cap_notifications_enabled: true,
      ip_masking_enabled: true,
      internet_ingestion_enabled: true,
      internet_query_enabled: true,
      force_customer_storage_for_profiler: false,
    },
    pairs: [
      ...LOCATED,
      pair("properties.Application_Type", "application_type"),
      pair("properties.WorkspaceResourceId", "workspace_id"),
      pair("properties.DisableLocalAuth", "local_authentication_enabled", INVERTED),
      pair(
        "properties.publicNetworkAccessForIngestion",
        "internet_ingestion_enabled",
        enabledIf("monitoring_public_network_access_enabled"),
      ),
      pair(
        "properties.publicNetworkAccessForQuery",
        "internet_query_enabled",
        enabledIf("monitoring_public_network_access_enabled"),
      ),
    ],
    only: { bicep: { kind: "Terraform derives it" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Insights/workbooks",
    azurerm: "azurerm_application_insights_workbook",
    pairs: [
      pair("tags", "tags"),
      pair("location", "location"),
      presencePair("name", "name"),
      pair("properties.displayName", "display_name"),
      pair("properties.category", "category"),
      pair("properties.sourceId", "source_id"),
      pair("properties.serializedData", "data_json"),
    ],
    only: { bicep: { kind: "always shared" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Communication/emailServices",
    azurerm: "azurerm_email_communication_service",
    pairs: [...TAGGED, pair("properties.dataLocation", "data_location")],
    only: { bicep: { location: "always global" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Communication/emailServices/domains",
    azurerm: "azurerm_email_communication_service_domain",
    pairs: [
      ...TAGGED,
      pair("properties.domainManagement", "domain_management"),
      pair("properties.userEngagementTracking", "user_engagement_tracking_enabled", {
        true: "Enabled",
        false: "Disabled",
      }),
    ],
    only: { bicep: { location: "always global" }, terraform: { email_service_id: "Bicep's parent" } },
  },
  {
    arm: "Microsoft.Communication/communicationServices",
    azurerm: "azurerm_communication_service",
    pairs: [...TAGGED, pair("properties.dataLocation", "data_location")],
    only: {
      bicep: { location: "always global", "properties.linkedDomains": "a resource of its own in Terraform" },
      terraform: RESOURCE_GROUP,
    },
  },
  {
    arm: "Microsoft.AppConfiguration/configurationStores",
    azurerm: "azurerm_app_configuration",
    azureDefaults: { data_plane_proxy_private_link_delegation_enabled: false },
    pairs: [
      ...LOCATED,
      pair("sku.name", "sku"),
      pair("properties.disableLocalAuth", "local_auth_enabled", INVERTED),
      pair("properties.enablePurgeProtection", "purge_protection_enabled"),
      pair("properties.softDeleteRetentionInDays", "soft_delete_retention_days"),
      pair("properties.publicNetworkAccess", "public_network_access"),
      // The values are compared by invariants (invariants.ts).
      presencePair("identity", "identity.type"),
      presencePair("properties.encryption", "encryption.key_vault_key_identifier"),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        "identity.identity_ids": "part of Bicep's identity",
        "encryption.identity_client_id": "part of Bicep's encryption",
      },
    },
  },
  {
    arm: "Microsoft.Network/virtualNetworks",
    azurerm: "azurerm_virtual_network",
    pairs: [...LOCATED, pair("properties.addressSpace.addressPrefixes", "address_space")],
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/virtualNetworks/subnets",
    azurerm: "azurerm_subnet",
    azureDefaults: { default_outbound_access_enabled: true, private_link_service_network_policies_enabled: true },
    pairs: [
      ...NAMED,
      presencePair("properties.addressPrefix", "address_prefixes"),
      pair("properties.privateEndpointNetworkPolicies", "private_endpoint_network_policies"),
      pair("properties.delegations.0.name", "delegation.name"),
      pair("properties.delegations.0.properties.serviceName", "delegation.service_delegation.name"),
      pair("properties.serviceEndpoints", "service_endpoint.for_each", {
        [`${NAT_GATEWAY_CREATED} ? [] : [Microsoft.KeyVault]`]: SERVICE_ENDPOINTS,
      }),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        virtual_network_name: "Bicep's parent",
        "delegation.service_delegation.actions": "Azure adds them",
        "service_endpoint.service": "the item of for_each",
      },
    },
  },
  {
    arm: "Microsoft.Network/networkSecurityGroups",
    azurerm: "azurerm_network_security_group",
    pairs: LOCATED,
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/publicIPAddresses",
    azurerm: "azurerm_public_ip",
    pairs: [...LOCATED, pair("sku.name", "sku"), pair("properties.publicIPAllocationMethod", "allocation_method")],
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/natGateways",
    azurerm: "azurerm_nat_gateway",
    pairs: [...LOCATED, pair("sku.name", "sku_name")],
    only: { terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/privateDnsZones",
    resource: "app_private_dns_zone",
    azurerm: "azurerm_private_dns_zone",
    pairs: TAGGED,
    only: { bicep: { location: "always global" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/privateDnsZones",
    azurerm: "azurerm_private_dns_zone",
    pairs: [presencePair("name", "name"), pair("tags", "tags")],
    only: { bicep: { location: "always global" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    azurerm: "azurerm_private_dns_zone_virtual_network_link",
    pairs: [
      ...TAGGED,
      pair("properties.registrationEnabled", "registration_enabled"),
      pair("properties.resolutionPolicy", "resolution_policy"),
      pair("properties.virtualNetwork.id", "virtual_network_id"),
    ],
    only: { bicep: { location: "always global" }, terraform: { private_dns_zone_id: "Bicep's parent" } },
  },
  {
    arm: "Microsoft.Network/privateEndpoints",
    resource: "app_private_endpoint",
    azurerm: "azurerm_private_endpoint",
    pairs: [
      ...LOCATED,
      pair("properties.subnet.id", "subnet_id"),
      pair("properties.privateLinkServiceConnections.0.name", "private_service_connection.name"),
      pair(
        "properties.privateLinkServiceConnections.0.properties.privateLinkServiceId",
        "private_service_connection.private_connection_resource_id",
      ),
      pair(
        "properties.privateLinkServiceConnections.0.properties.groupIds",
        "private_service_connection.subresource_names",
      ),
    ],
    only: { terraform: ENDPOINT_ARGUMENTS },
  },
  {
    arm: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    resource: "app_private_dns_zone_group",
    azurerm: "azurerm_private_endpoint",
    inside: { name: "app_private_endpoint", argument: "private_dns_zone_group" },
    pairs: [
      pair("name", "private_dns_zone_group.name"),
      presencePair(
        "properties.privateDnsZoneConfigs.0.properties.privateDnsZoneId",
        "private_dns_zone_group.private_dns_zone_ids",
      ),
    ],
    only: { bicep: { "properties.privateDnsZoneConfigs.0.name": "Terraform derives it" } },
  },
  {
    arm: "Microsoft.Network/privateEndpoints",
    azurerm: "azurerm_private_endpoint",
    pairs: [
      pair("tags", "tags"),
      pair("location", "location"),
      presencePair("name", "name"),
      pair("properties.subnet.id", "subnet_id"),
      presencePair("properties.privateLinkServiceConnections.0.name", "private_service_connection.name"),
      presencePair(
        "properties.privateLinkServiceConnections.0.properties.privateLinkServiceId",
        "private_service_connection.private_connection_resource_id",
      ),
      presencePair(
        "properties.privateLinkServiceConnections.0.properties.groupIds",
        "private_service_connection.subresource_names",
      ),
    ],
    only: { terraform: ENDPOINT_ARGUMENTS },
  },
  {
    arm: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
    azurerm: "azurerm_private_endpoint",
    inside: { name: "private_endpoint", argument: "private_dns_zone_group" },
    pairs: [
      pair("name", "private_dns_zone_group.name"),
      presencePair(
        "properties.privateDnsZoneConfigs.0.properties.privateDnsZoneId",
        "private_dns_zone_group.private_dns_zone_ids",
      ),
    ],
    only: { bicep: { "properties.privateDnsZoneConfigs.0.name": "Terraform derives it" } },
  },
  {
    arm: "Microsoft.Web/serverfarms",
    azurerm: "azurerm_service_plan",
    azureDefaults: { premium_plan_auto_scale_enabled: false, per_site_scaling_enabled: false },
    pairs: [
      ...LOCATED,
      pair("properties.zoneRedundant", "zone_balancing_enabled"),
      pair("sku.name", "sku_name"),
      pair("properties.reserved", "os_type", { Linux: "true" }),
    ],
    only: { bicep: { kind: "Terraform derives it", "sku.tier": "always FlexConsumption" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Web/sites",
    azurerm: "azurerm_function_app_flex_consumption",
    azureDefaults: { client_certificate_enabled: false, enabled: true },
    pairs: [
      ...LOCATED,
      pair("identity.type", "identity.type"),
      presencePair("identity.userAssignedIdentities", "identity.identity_ids"),
      pair("properties.serverFarmId", "service_plan_id"),
      pair("properties.httpsOnly", "https_only"),
      pair(
        "properties.publicNetworkAccess",
        "public_network_access_enabled",
        enabledIf("app_public_network_access_enabled"),
      ),
      pair("properties.virtualNetworkSubnetId", "virtual_network_subnet_id"),
      pair("properties.siteConfig.minTlsVersion", "site_config.minimum_tls_version"),
      pair("properties.siteConfig.ipSecurityRestrictionsDefaultAction", "site_config.ip_restriction_default_action"),
      pair("properties.siteConfig.ipSecurityRestrictions", "site_config.ip_restriction.for_each", {
        "{allowed_ip_ranges}": "each of {allowed_ip_ranges}",
      }),
      pair("properties.functionAppConfig.deployment.storage.type", "storage_container_type"),
      pair("properties.functionAppConfig.deployment.storage.value", "storage_container_endpoint"),
      pair("properties.functionAppConfig.deployment.storage.authentication.type", "storage_authentication_type"),
      pair(
        "properties.functionAppConfig.deployment.storage.authentication.userAssignedIdentityResourceId",
        "storage_user_assigned_identity_id",
      ),
      pair("properties.functionAppConfig.runtime.name", "runtime_name"),
      pair("properties.functionAppConfig.runtime.version", "runtime_version"),
      pair("properties.functionAppConfig.scaleAndConcurrency.instanceMemoryMB", "instance_memory_in_mb"),
      pair("properties.functionAppConfig.scaleAndConcurrency.maximumInstanceCount", "maximum_instance_count"),
      presencePair("properties.functionAppConfig.scaleAndConcurrency.alwaysReady", "always_ready.instance_count"),
    ],
    only: {
      bicep: { kind: "Terraform derives it" },
      terraform: {
        ...RESOURCE_GROUP,
        webdeploy_publish_basic_authentication_enabled:
          "part of the publishing policy, which is a separate resource in Bicep",
        app_settings: "compared setting by setting (settings.ts)",
        "site_config.application_insights_connection_string": "compared as a setting",
        "always_ready.name": "part of Bicep's list",
        "site_config.ip_restriction.name": "part of Bicep's list",
        "site_config.ip_restriction.ip_address": "part of Bicep's list",
        "site_config.ip_restriction.action": "part of Bicep's list",
        "site_config.ip_restriction.priority": "part of Bicep's list",
      },
    },
  },
  {
    arm: "Microsoft.Web/sites/basicPublishingCredentialsPolicies",
    azurerm: "azurerm_function_app_flex_consumption",
    inside: { name: "function_app", argument: "webdeploy_publish_basic_authentication_enabled" },
    pairs: [pair("properties.allow", "webdeploy_publish_basic_authentication_enabled")],
    only: { bicep: { name: "always scm" } },
  },
  {
    arm: "Microsoft.Web/sites/config",
    azurerm: "azurerm_function_app_flex_consumption",
    inside: { name: "function_app", argument: "app_settings" },
    pairs: [],
    only: { bicep: { name: "always appsettings", properties: "compared setting by setting (settings.ts)" } },
  },
  {
    arm: "Microsoft.Insights/actionGroups",
    azurerm: "azurerm_monitor_action_group",
    pairs: [
      ...LOCATED,
      pair("properties.groupShortName", "short_name"),
      pair("properties.enabled", "enabled"),
      presencePair("properties.emailReceivers", "email_receiver.email_address"),
    ],
    only: {
      terraform: {
        ...RESOURCE_GROUP,
        "email_receiver.name": "part of Bicep's list",
        "email_receiver.use_common_alert_schema": "part of Bicep's list",
      },
    },
  },
  {
    arm: "Microsoft.Insights/scheduledQueryRules",
    azurerm: "azurerm_monitor_scheduled_query_rules_alert_v2",
    azureDefaults: {
      auto_mitigation_enabled: true,
      workspace_alerts_storage_enabled: false,
      enabled: true,
      skip_query_validation: false,
    },
    pairs: [
      ...LOCATED,
      pair("properties.displayName", "display_name"),
      pair("properties.severity", "severity"),
      pair("properties.enabled", "enabled"),
      pair("properties.autoMitigate", "auto_mitigation_enabled"),
      pair("properties.evaluationFrequency", "evaluation_frequency"),
      pair("properties.windowSize", "window_duration"),
      pair("properties.overrideQueryTimeRange", "query_time_range_override"),
      pair("properties.scopes", "scopes"),
      pair("properties.criteria.allOf.0.query", "criteria.query"),
      pair("properties.criteria.allOf.0.timeAggregation", "criteria.time_aggregation_method"),
      pair("properties.criteria.allOf.0.metricMeasureColumn", "criteria.metric_measure_column"),
      pair("properties.criteria.allOf.0.operator", "criteria.operator"),
      pair("properties.criteria.allOf.0.threshold", "criteria.threshold"),
      pair("properties.actions.actionGroups", "action.action_groups"),
    ],
    only: { bicep: { kind: "always LogAlert" }, terraform: RESOURCE_GROUP },
  },
  {
    arm: "Microsoft.Authorization/locks",
    azurerm: "azurerm_management_lock",
    pairs: [
      ...NAMED,
      pair("scope", "scope"),
      pair("properties.level", "lock_level"),
      pair("properties.notes", "notes"),
    ],
  },
  {
    arm: "Microsoft.Authorization/roleDefinitions",
    azurerm: "azurerm_role_definition",
    pairs: [
      pair("properties.permissions.0.actions", "permissions.actions"),
      pair("properties.permissions.0.dataActions", "permissions.data_actions"),
      presencePair("properties.roleName", "name"),
      presencePair("properties.description", "description"),
      presencePair("properties.assignableScopes", "assignable_scopes"),
    ],
    only: {
      bicep: { name: "Terraform generates it", "properties.type": "always CustomRole" },
      terraform: { scope: "Bicep's target scope" },
    },
  },
  {
    arm: "Microsoft.Authorization/roleAssignments",
    azurerm: "azurerm_role_assignment",
    pairs: [
      // The modules of certificate renewals are called with the ids of their resources.
      pair("scope", "scope", { "{each.value}": "{target.id}" }),
      pair("properties.roleDefinitionId", "role_definition_name"),
      pair("properties.principalId", "principal_id"),
      pair("properties.principalType", "principal_type"),
    ],
    only: { bicep: { name: "Terraform generates it" } },
  },
];

/**
 * Resources that only Terraform has, each with the equivalent Bicep property. `condition`: when Bicep sets the property, if that
 * is not whenever the resource is created.
 */
export const TERRAFORM_ONLY: Record<string, { arm: string; property: string; condition?: string }> = {
  azurerm_nat_gateway_public_ip_association: {
    arm: "Microsoft.Network/natGateways",
    property: "properties.publicIpAddresses",
  },
  azurerm_subnet_nat_gateway_association: {
    arm: "Microsoft.Network/virtualNetworks/subnets",
    property: "properties.natGateway",
    condition: NAT_GATEWAY_CREATED,
  },
  azurerm_subnet_network_security_group_association: {
    arm: "Microsoft.Network/virtualNetworks/subnets",
    property: "properties.networkSecurityGroup",
  },
  azurerm_communication_service_email_domain_association: {
    arm: "Microsoft.Communication/communicationServices",
    property: "properties.linkedDomains",
  },
};
