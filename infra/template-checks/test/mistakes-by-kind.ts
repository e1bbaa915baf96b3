// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the texts are parts of templates in other languages.

/**
 * Mistakes that a comparison of the two languages misses, or that no single expression shows. `kinds.test.ts` plants each in both
 * languages at once, and in each language alone.
 */
export interface MistakeOfKind {
  kind: string;
  what: string;
  /** The finding if both languages, or the file that both read, have the mistake. */
  message: RegExp;
  /** Texts to replace in Bicep and in the files that both languages read. */
  bicep: readonly Change[];
  /** Texts to replace in Terraform. */
  terraform: readonly Change[];
}
/** The first occurrence of a text is replaced. Changes of one file are applied in order. */
export type Change = readonly [file: string, original: string, replacement: string];

const BICEP = "infra/azure";
const TERRAFORM = "infra/terraform";
const MODULES = `${BICEP}/modules`;
const WORKBOOK = `${BICEP}/workbook.json`;
const SERVICE = `${BICEP}/service.bicep`;
const MAIN = `${BICEP}/main.bicep`;
const VARIABLES = `${TERRAFORM}/variables.tf`;

/** Changes a declaration that main.bicep and service.bicep both contain. */
const inBoth = (original: string, replacement: string): Change[] =>
  [MAIN, SERVICE].map((file) => [file, original, replacement] as const);
const inWatch = (original: string, replacement: string): Change[] =>
  ["subscription", "management-group"].map(
    (scope) => [`${BICEP}/watch/${scope}.bicep`, original, replacement] as const,
  );

const mistake = (
  kind: string,
  what: string,
  message: RegExp,
  bicep: readonly Change[],
  terraform: readonly Change[] = [],
): MistakeOfKind => ({ kind, what, message, bicep, terraform });

export const MISTAKES_BY_KIND: readonly MistakeOfKind[] = [
  mistake("workbook", "a chart shows a column that its query does not return", /returns no column count, only/, [
    [
      WORKBOOK,
      '"visualization": "barchart"',
      '"visualization": "barchart", "chartSettings": { "xAxis": "timestamp", "yAxis": ["count"] }',
    ],
  ]),
  mistake(
    "workbook",
    "a table is sorted by a column that its query does not return",
    /returns no column errors, only/,
    [
      [
        WORKBOOK,
        '"visualization": "table"',
        '"visualization": "table", "gridSettings": { "sortBy": [{ "itemKey": "errors", "sortOrder": 2 }] }',
      ],
    ],
  ),
  mistake(
    "workbook",
    "a query reads a field that the message does not have",
    /"A scan is over " has no field outcome/,
    [[WORKBOOK, "tostring(scan.status)", "tostring(scan.outcome)"]],
  ),
  mistake("workbook", "a member of an item is misspelled", /content: Unrecognized key: "timeContextParameter"/, [
    [WORKBOOK, '"timeContextFromParameter": "range"', '"timeContextParameter": "range"'],
  ]),
  mistake("workbook", "an alert measures a column that its query does not return", /returns no column scans/, [
    [`${BICEP}/queries/no-scan.kql`, "| project scans", "| project count = scans"],
  ]),
  mistake(
    "value",
    "App Configuration has a tier without private endpoints",
    /appConfiguration: sku.name must be standard/,
    [[`${MODULES}/app-configuration.bicep`, "name: 'standard'", "name: 'free'"]],
    [[`${TERRAFORM}/app-configuration.tf`, '"standard"', '"free"']],
  ),
  mistake(
    "value",
    "the vault has the tier with hardware keys",
    /vault: properties.sku.name must be standard/,
    [[`${MODULES}/vault.bicep`, "name: 'standard'", "name: 'premium'"]],
    [
      [
        `${TERRAFORM}/vault.tf`,
        'sku_name                      = "standard"',
        'sku_name                      = "premium"',
      ],
    ],
  ),
  mistake(
    "value",
    "the fixed address is assigned to the wrong gateway tier",
    /natGateway: sku.name must be Standard/,
    [
      [
        `${MODULES}/nat-gateway.bicep`,
        "sku: { name: 'Standard' }\n  properties: { publicIpAddresses",
        "sku: { name: 'StandardV2' }\n  properties: { publicIpAddresses",
      ],
    ],
    [[`${TERRAFORM}/network.tf`, 'sku_name            = "Standard"', 'sku_name            = "StandardV2"']],
  ),
  mistake(
    "value",
    "events are kept for a minute only",
    /retryPolicy.eventTimeToLiveInMinutes must be 1440/,
    [[`${BICEP}/events/topic.bicep`, "eventTimeToLiveInMinutes: 1440", "eventTimeToLiveInMinutes: 1"]],
    [[`${TERRAFORM}/events/main.tf`, "event_time_to_live    = 1440", "event_time_to_live    = 1"]],
  ),
  mistake(
    "wiring",
    "mails have the address of another resource as their sender",
    /ALERT_SENDER_ADDRESS must be/,
    [[SERVICE, "mail!.outputs.alertSenderAddress", "mail!.outputs.communicationEndpoint"]],
    [[`${TERRAFORM}/app.tf`, "email_domain[0].mail_from_sender_domain", "email_domain[0].from_sender_domain"]],
  ),
  mistake(
    "wiring",
    "the queues are read from the address of the tables",
    /AzureWebJobsStorage__queueServiceUri must be|queue_endpoint gets storage.outputs.tableEndpoint/,
    [[SERVICE, "queueEndpoint: storage.outputs.queueEndpoint", "queueEndpoint: storage.outputs.tableEndpoint"]],
    [
      [
        `${TERRAFORM}/app.tf`,
        "AzureWebJobsStorage__queueServiceUri      = azurerm_storage_account.storage_account.primary_queue_endpoint",
        "AzureWebJobsStorage__queueServiceUri      = azurerm_storage_account.storage_account.primary_table_endpoint",
      ],
    ],
  ),
  mistake(
    "role",
    "an action is missing in all templates",
    /dependency_reader_definition: lacks Microsoft.Sql\/servers\/read/,
    inWatch("          'Microsoft.Sql/servers/read'\n", ""),
    [[`${TERRAFORM}/watch/main.tf`, '      "Microsoft.Sql/servers/read",\n', ""]],
  ),
  mistake(
    "role",
    "an action is missing in all templates and in the documentation",
    /no role of the service permits Microsoft.Web\/sites\/slots\/restart\/action, which the call appService.restart needs/,
    [
      [`${BICEP}/rotation/resource-group.bicep`, "          'Microsoft.Web/sites/slots/restart/action'\n", ""],
      ["docs/permissions-options.md", ", `Microsoft.Web/sites/slots/restart/action`", ""],
    ],
    [[`${TERRAFORM}/rotation/main.tf`, '      "Microsoft.Web/sites/slots/restart/action",\n', ""]],
  ),
  mistake(
    "role",
    "the role for keys lacks an action of a kind",
    /storage\.2 must be "Microsoft.Storage\/storageAccounts\/regeneratekey\/action", but is not set/,
    [[`${BICEP}/rotation/key-actions.json`, ',\n    "Microsoft.Storage/storageAccounts/regeneratekey/action"\n', "\n"]],
  ),
  mistake(
    "role",
    "the role for keys has the actions of another kind",
    /key_rotator_definition: must have the actions of its kinds, .*queues\/authorizationRules\/listKeys\/action.* but has/,
    [[`${BICEP}/rotation/resource-keys.bicep`, "? actionsByKind[kind]", "? actionsByKind['storage']"]],
    [[`${TERRAFORM}/rotation-keys/main.tf`, "actions_by_kind[kind]]", 'actions_by_kind["storage"]]']],
  ),
  mistake(
    "role",
    "the page of the role for keys lists other actions",
    /batch: must list .*regeneratekeys\/action, but lists/,
    [["docs/rotation-key-roles.md", ", `Microsoft.Batch/batchAccounts/regeneratekeys/action`", ""]],
  ),
  mistake(
    "role",
    "a role can do more than the documentation says",
    /event_deployer_definition: has Microsoft.Storage\/storageAccounts\/listkeys\/action/,
    [
      [
        `${BICEP}/events-policy/roles.bicep`,
        "'Microsoft.Storage/storageAccounts/write'",
        "'Microsoft.Storage/storageAccounts/write'\n          'Microsoft.Storage/storageAccounts/listkeys/action'",
      ],
    ],
    [
      [
        `${TERRAFORM}/events-policy/roles/main.tf`,
        '"Microsoft.Storage/storageAccounts/write",',
        '"Microsoft.Storage/storageAccounts/write",\n      "Microsoft.Storage/storageAccounts/listkeys/action",',
      ],
    ],
  ),
  mistake(
    "default",
    "an instance is always ready, and costs money, by default",
    /alwaysReadyInstances: its default is 1, here 0/,
    [
      ...inBoth("param alwaysReadyInstances int = 0", "param alwaysReadyInstances int = 1"),
      [`${BICEP}/main.parameters.json`, "ALWAYS_READY_INSTANCES=0", "ALWAYS_READY_INSTANCES=1"],
    ],
    [[VARIABLES, "type        = number\n  default     = 0", "type        = number\n  default     = 1"]],
  ),
  mistake(
    "default",
    "mail is off by default",
    /mailEnabled: its default is false, here true/,
    [
      ...inBoth("param mailEnabled bool = true", "param mailEnabled bool = false"),
      [`${BICEP}/main.parameters.json`, "MAIL_ENABLED=true", "MAIL_ENABLED=false"],
    ],
    [
      [
        VARIABLES,
        'Azure manages."\n  type        = bool\n  default     = true',
        'Azure manages."\n  type        = bool\n  default     = false',
      ],
    ],
  ),
  mistake(
    "default",
    "a limit is higher than the documented one",
    /maximumInstanceCount: this row does not name the limit 2000/,
    inBoth("@maxValue(1000)", "@maxValue(2000)"),
    [[VARIABLES, "maximum_instance_count <= 1000", "maximum_instance_count <= 2000"]],
  ),
  mistake(
    "name",
    "two environments have the same storage account",
    /storage_account: its name st\w+ must depend on environmentName/,
    [
      [
        SERVICE,
        "uniqueString(subscription().subscriptionId, environmentName, location)",
        "uniqueString(subscription().subscriptionId, location)",
      ],
    ],
    [[`${TERRAFORM}/main.tf`, "/${var.environment_name}/${var.location}", "/${var.location}"]],
  ),
  mistake(
    "name",
    "two subscriptions have the same vault",
    /vault: its name kv-a-name-of-20-letters must depend on the subscription/,
    [[SERVICE, "'kv-${suffix}'", "'kv-${environmentName}'"]],
    [[`${TERRAFORM}/vault.tf`, '"kv-${local.suffix}"', '"kv-${var.environment_name}"']],
  ),
  mistake(
    "name",
    "the storage account has a name that is too long",
    /storage_account: st\S+ is no valid name/,
    [[SERVICE, "'st${suffix}'", "'st${environmentName}${suffix}'"]],
    [
      [
        `${TERRAFORM}/storage.tf`,
        'name                            = "st${local.suffix}"',
        'name                            = "st${var.environment_name}${local.suffix}"',
      ],
    ],
  ),
  mistake(
    "name",
    "the identity of two environments is the same",
    /event_identity: its name id-lifecycle-events must depend on environmentName/,
    [[SERVICE, "'id-${environmentName}-events'", "'id-lifecycle-events'"]],
    [[`${TERRAFORM}/event-identity.tf`, '"id-${var.environment_name}-events"', '"id-lifecycle-events"']],
  ),
  mistake("name", "two role assignments have the same name", /queue_role: another resource has the name guid/, [
    [
      `${MODULES}/storage.bicep`,
      "principalId, 'Storage Queue Data Contributor')",
      "principalId, 'Storage Blob Data Owner')",
    ],
  ]),
  mistake(
    "scope",
    "the policy's role is for the group of a wrong segment",
    /event_deployer_definition: its scope must be \S+rg-service, but is/,
    [
      [
        `${BICEP}/events-policy/subscription.bicep`,
        "split(storageAccountId, '/')[4]",
        "split(storageAccountId, '/')[6]",
      ],
    ],
    [
      [
        `${TERRAFORM}/events-policy/subscription/main.tf`,
        "scope              = var.resource_group_id",
        "scope              = var.scope",
      ],
    ],
  ),
  mistake(
    "scope",
    "the role for a rotation is in another subscription",
    /rotation_operator_role: its scope must be \S+rg-rotated, but is/,
    [
      [
        MAIN,
        "az.resourceGroup(split(resourceGroupId, '/')[2], split(resourceGroupId, '/')[4])",
        "az.resourceGroup(subscription().subscriptionId, split(resourceGroupId, '/')[4])",
      ],
    ],
    [
      [
        `${TERRAFORM}/rotation/main.tf`,
        'resource "azurerm_role_assignment" "rotation_operator_role" {\n  scope              = var.scope',
        'resource "azurerm_role_assignment" "rotation_operator_role" {\n  scope              = "/subscriptions/${local.parts[2]}"',
      ],
    ],
  ),
  mistake(
    "scope",
    "the role for keys is for the whole subscription",
    /key_rotator_role: its scope must be \S+rg-keys, but is/,
    [
      [
        MAIN,
        "az.resourceGroup(split(group.key, '/')[2], split(group.key, '/')[4])",
        "az.resourceGroup(subscription().subscriptionId, split(group.key, '/')[4])",
      ],
    ],
    [
      [
        `${TERRAFORM}/rotation-keys/main.tf`,
        'resource "azurerm_role_assignment" "key_rotator_role" {\n  scope              = var.scope',
        'resource "azurerm_role_assignment" "key_rotator_role" {\n  scope              = "/subscriptions/${local.parts[2]}"',
      ],
    ],
  ),
  mistake(
    "scope",
    "the role for logs is for a wrong segment of the workspace's id",
    /log_reader_definition: with logs\/workspace.bicep, Bicep deploys|log_reader_definition: its scope must be/,
    [],
    [[`${TERRAFORM}/logs/main.tf`, "resourceGroups/${local.parts[4]}", "resourceGroups/${local.parts[8]}"]],
  ),
  mistake(
    "order",
    "both subnets are created at the same time",
    /privateEndpointSubnet must depend on the other subnet/,
    [[`${MODULES}/network.bicep`, "  dependsOn: [functionSubnet]\n", ""]],
  ),
  mistake(
    "order",
    "the app starts before it has its roles",
    /function_app must depend on blob_role|must depend on the resource group/,
    [[MAIN, "  dependsOn: [resourceGroup]\n", ""]],
    [[`${TERRAFORM}/app.tf`, "    azurerm_role_assignment.blob_role,\n", ""]],
  ),
  mistake(
    "order",
    "the app starts before its private endpoints exist",
    /function_app must depend on private_endpoint/,
    [[SERVICE, "  dependsOn: [privateEndpoints]\n", ""]],
    [[`${TERRAFORM}/app.tf`, "    azurerm_private_endpoint.private_endpoint,\n", ""]],
  ),
  mistake(
    "order",
    "the remediation starts before the policy has its roles",
    /subscription_policy_remediation must depend on identity_operator_role/,
    [
      [
        `${BICEP}/events-policy/subscription.bicep`,
        "dependsOn: [subscriptionTopicsRole, roles]",
        "dependsOn: [subscriptionTopicsRole]",
      ],
    ],
    [
      [
        `${TERRAFORM}/events-policy/subscription/main.tf`,
        "depends_on = [azurerm_role_assignment.subscription_topics_role, module.roles]",
        "depends_on = [azurerm_role_assignment.subscription_topics_role]",
      ],
    ],
  ),
  mistake(
    "order",
    "the secrets are resolved before the app may read them",
    /app_settings must depend on vault_reference_role/,
    [[`${MODULES}/app.bicep`, "  dependsOn: [vaultReferenceRole]\n", ""]],
    [[`${TERRAFORM}/main.tf`, "azurerm_role_assignment.topic_sender_role.id", "azurerm_role_assignment.queue_role.id"]],
  ),
  mistake(
    "settings",
    "additionalSettings replace settings of the templates",
    /additionalSettings must not replace AZURE_CLIENT_ID/,
    [
      [`${MODULES}/app.bicep`, "  properties: union(\n    additionalSettings,\n", "  properties: union(\n"],
      [
        `${MODULES}/app.bicep`,
        "{ ACME_DNS_ZONE_IDS: join(acmeDnsZoneIds, ',') }\n",
        "{ ACME_DNS_ZONE_IDS: join(acmeDnsZoneIds, ',') },\n    additionalSettings\n",
      ],
    ],
    [
      [`${TERRAFORM}/app.tf`, "  app_settings = merge(\n    var.additional_settings,\n", "  app_settings = merge(\n"],
      [
        `${TERRAFORM}/app.tf`,
        '{ ACME_DNS_ZONE_IDS = join(",", var.acme_dns_zone_ids) }\n',
        '{ ACME_DNS_ZONE_IDS = join(",", var.acme_dns_zone_ids) },\n    var.additional_settings\n',
      ],
    ],
  ),
  mistake(
    "replacement",
    "the key type of queues replaces the storage account, with all its data",
    /storage_account: queue_encryption_key_type must be|properties.encryption must be/,
    [
      [
        `${MODULES}/storage.bicep`,
        "{ keySource: 'Microsoft.Storage' }",
        "{ keySource: 'Microsoft.Storage', services: { queue: { keyType: 'Account' } } }",
      ],
    ],
    [
      [
        `${TERRAFORM}/storage.tf`,
        'queue_encryption_key_type       = var.customer_managed_key != null ? "Account" : "Service"',
        'queue_encryption_key_type       = "Account"',
      ],
    ],
  ),
  mistake(
    "refusal",
    "a gateway without a network is not refused",
    /var.nat_gateway_enabled does not refuse the values|natGatewayEnabled: does not refuse the values/,
    [
      [
        SERVICE,
        "var natGatewayRefused = natGatewayEnabled && !networkCreated",
        "var natGatewayRefused = natGatewayEnabled && !networkCreated && networkEnabled && natGatewayCreated",
      ],
    ],
    [[VARIABLES, "!var.nat_gateway_enabled || (", "!var.nat_gateway_enabled || var.nat_gateway_enabled || ("]],
  ),
  mistake(
    "refusal",
    "one subnet without the other is not refused",
    /private_endpoint_subnet_resource_id does not refuse|privateEndpointSubnetResourceId: does not refuse/,
    [
      [
        SERVICE,
        "empty(functionSubnetResourceId) != empty(privateEndpointSubnetResourceId)",
        "empty(functionSubnetResourceId) != empty(functionSubnetResourceId)",
      ],
    ],
    [
      [
        VARIABLES,
        '(var.private_endpoint_subnet_resource_id == "") == (var.function_subnet_resource_id == "")',
        '(var.private_endpoint_subnet_resource_id == "") == (var.private_endpoint_subnet_resource_id == "")',
      ],
    ],
  ),
  mistake(
    "refusal",
    "no number of instances is refused",
    /var.maximum_instance_count does not refuse the values of the test too_few_instances/,
    [],
    [[VARIABLES, "maximum_instance_count >= 40 &&", "maximum_instance_count >= 40 ||"]],
  ),
  mistake(
    "refusal",
    "the check of the alerts' recipients always holds",
    /check.alerts_notify_somebody does not refuse/,
    [],
    [
      [
        `${TERRAFORM}/alerts.tf`,
        "length(var.operator_email_addresses) > 0",
        "length(var.operator_email_addresses) >= 0",
      ],
    ],
  ),
  mistake(
    "refusal",
    "a validation that no test tries",
    /no test in infra\/terraform\/tests expects that var.mail_data_location/,
    [],
    [
      [
        VARIABLES,
        '  default     = "Europe"\n',
        '  default     = "Europe"\n\n  validation {\n    condition     = var.mail_data_location != ""\n    error_message = "Set it."\n  }\n',
      ],
    ],
  ),
  mistake(
    "output",
    "the output of the topics' identity is the service's identity",
    /output service_event_identity_id must be <event_identity.id>, but is <identity.id>/i,
    [
      [
        SERVICE,
        "output eventIdentityId string = eventIdentity.outputs.eventIdentityId",
        "output eventIdentityId string = identity.outputs.identityId",
      ],
    ],
    [
      [
        `${TERRAFORM}/outputs.tf`,
        "value       = azurerm_user_assigned_identity.event_identity.id",
        "value       = azurerm_user_assigned_identity.identity.id",
      ],
    ],
  ),
  mistake(
    "output",
    "the output of the principal is the client id",
    /output service_identity_principal_id must be <identity.principal_id>/i,
    [
      [
        SERVICE,
        "output identityPrincipalId string = identity.outputs.principalId",
        "output identityPrincipalId string = identity.outputs.clientId",
      ],
    ],
    [
      [
        `${TERRAFORM}/outputs.tf`,
        "value       = azurerm_user_assigned_identity.identity.principal_id",
        "value       = azurerm_user_assigned_identity.identity.client_id",
      ],
    ],
  ),
  mistake(
    "subnet",
    "both subnets have the same range",
    /private_endpoint_subnet: overlaps with another subnet/,
    [
      [
        `${MODULES}/network.bicep`,
        "cidrSubnet(networkAddressPrefix, 26, 1)",
        "cidrSubnet(networkAddressPrefix, 26, 0)",
      ],
    ],
    [[`${TERRAFORM}/network.tf`, "local.subnet_bits, 1)", "local.subnet_bits, 0)"]],
  ),
  mistake(
    "subnet",
    "a subnet is outside of a small network",
    /can't be evaluated: 10.1.2.0\/25 has no part 2/,
    [
      [
        `${MODULES}/network.bicep`,
        "cidrSubnet(networkAddressPrefix, 26, 1)",
        "cidrSubnet(networkAddressPrefix, 26, 2)",
      ],
    ],
    [[`${TERRAFORM}/network.tf`, "local.subnet_bits, 1)", "local.subnet_bits, 2)"]],
  ),
  mistake(
    "subnet",
    "a subnet takes the whole network",
    /must be a \/26 inside of the network/,
    [
      [
        `${MODULES}/network.bicep`,
        "cidrSubnet(networkAddressPrefix, 26, 0)",
        "cidrSubnet(networkAddressPrefix, 25, 0)",
      ],
    ],
    [[`${TERRAFORM}/network.tf`, "subnet_bits = 26 -", "subnet_bits = 27 -"]],
  ),
  mistake(
    "example",
    "an example passes an argument that does not exist",
    /has no variable subnet_id/,
    [],
    [
      [
        `${TERRAFORM}/examples/existing-network/main.tf`,
        "function_subnet_resource_id         =",
        "subnet_id                           =",
      ],
    ],
  ),
  mistake(
    "example",
    "an example swaps two subnets",
    /function_subnet_resource_id gets var.private_endpoint_subnet_resource_id/,
    [],
    [
      [
        `${TERRAFORM}/examples/bring-your-own/main.tf`,
        "= var.function_subnet_resource_id",
        "= var.private_endpoint_subnet_resource_id",
      ],
    ],
  ),
  mistake(
    "example",
    "an example swaps the parts of a key",
    /key_name gets var.key_vault_resource_id/,
    [],
    [[`${TERRAFORM}/examples/bring-your-own/main.tf`, "= var.key_name", "= var.key_vault_resource_id"]],
  ),
  mistake(
    "example",
    "an example passes the id of another identity",
    /event_identity_id gets module.service.service_storage_account_id/,
    [],
    [
      [
        `${TERRAFORM}/examples/several-subscriptions/main.tf`,
        "module.service.service_event_identity_id",
        "module.service.service_storage_account_id",
      ],
    ],
  ),
  mistake(
    "example",
    "an output of an example is another output",
    /the output service_url must be the module's output/,
    [],
    [
      [
        `${TERRAFORM}/examples/minimal/outputs.tf`,
        "module.service.service_url",
        "module.service.service_key_vault_name",
      ],
    ],
  ),
  mistake(
    "example",
    "an example of a private app is open",
    /app_public_network_access_enabled must be false, but is true/,
    [],
    [
      [
        `${TERRAFORM}/examples/bring-your-own/main.tf`,
        "app_public_network_access_enabled   = false",
        "app_public_network_access_enabled   = true",
      ],
    ],
  ),
  mistake(
    "example",
    "a policy is assigned in another subscription",
    /has var.subscription_id, not var.other_subscription_id/,
    [],
    [
      [
        `${TERRAFORM}/examples/several-subscriptions/main.tf`,
        "/subscriptions/${var.other_sub",
        "/subscriptions/${var.sub",
      ],
    ],
  ),
  mistake("command", "a documented command passes a parameter that does not exist", /has no parameter principal$/, [
    ["docs/permissions.md", "--parameters principalId=", "--parameters principal="],
  ]),
  mistake(
    "state",
    "the deployer changes with each apply",
    /terraform_data.deployer must ignore changes of input/,
    [],
    [[`${TERRAFORM}/app.tf`, "ignore_changes = [input]", "ignore_changes = []"]],
  ),
  mistake(
    "tag",
    "azd does not find the resources",
    /its tag azd-env-name must be/,
    [[MAIN, "'azd-env-name': environmentName", "'azd-env-name': location"]],
    [[`${TERRAFORM}/main.tf`, '"azd-env-name" = var.environment_name', '"azd-env-name" = var.location']],
  ),
  mistake(
    "value",
    "two numbers are swapped",
    /instanceMemoryMB must be {instance_memory_mb}/,
    [
      [`${MODULES}/app.bicep`, "instanceMemoryMB: instanceMemoryMb", "instanceMemoryMB: maximumInstanceCount"],
      [`${MODULES}/app.bicep`, "maximumInstanceCount: maximumInstanceCount", "maximumInstanceCount: instanceMemoryMb"],
    ],
    [
      [`${TERRAFORM}/app.tf`, "= var.instance_memory_mb", "= var.maximum_instance_count"],
      [`${TERRAFORM}/app.tf`, "= var.maximum_instance_count\n\n", "= var.instance_memory_mb\n\n"],
    ],
  ),
  mistake(
    "query",
    "the alert about failed scans misses those that ran out of time",
    /must contain tostring\(scan.status\) in/,
    [[`${BICEP}/queries/failed-scans.kql`, '("failed", "timedOut")', '("failed")']],
  ),
  mistake(
    "location",
    "the topic of a subscription has a region",
    /topic: location must be global, but is {location}/,
    [
      [`${BICEP}/events/topic.bicep`, "location: 'global'", "location: location"],
      [`${BICEP}/events/topic.bicep`, "param tags object", "param location string\nparam tags object"],
      [
        `${BICEP}/events/subscription.bicep`,
        "    tags: tags\n    storage",
        "    location: location\n    tags: tags\n    storage",
      ],
    ],
    [[`${TERRAFORM}/events/main.tf`, 'location            = "global"', "location            = var.location"]],
  ),
  mistake(
    "condition",
    "mail is created without being asked for",
    /email_service must be created under the condition {mail_enabled}/,
    [[SERVICE, "= if (mailEnabled) {", "= if (!empty(mailDataLocation)) {"]],
    [[`${TERRAFORM}/mail.tf`, "count = var.mail_enabled ? 1 : 0", 'count = var.mail_data_location != "" ? 1 : 0']],
  ),
  mistake(
    "reference",
    "a role assignment gets the ID of a role with its scope",
    /role_definition_id gets azurerm_role_definition.id, but accepts azurerm_role_definition.role_definition_resource_id/,
    [],
    [
      [
        `${TERRAFORM}/literal-scan/main.tf`,
        "literal_scanner_definition[0].role_definition_resource_id",
        "literal_scanner_definition[0].id",
      ],
    ],
  ),
  mistake(
    "reference",
    "a module gets the principal of an identity for its ID, and passes it on",
    /identity_ids gets azurerm_user_assigned_identity.principal_id, but accepts azurerm_user_assigned_identity.id/,
    [],
    [
      [
        `${TERRAFORM}/main.tf`,
        "event_identity_id  = azurerm_user_assigned_identity.event_identity.id",
        "event_identity_id  = azurerm_user_assigned_identity.event_identity.principal_id",
      ],
    ],
  ),
  mistake(
    "reference",
    "an argument for an ID gets a name",
    /service_plan_id must be a resource ID, but is "plan-/,
    [],
    [[`${TERRAFORM}/app.tf`, "azurerm_service_plan.plan.id", "azurerm_service_plan.plan.name"]],
  ),
  mistake(
    "refusal",
    "a validation refuses every valid value",
    /var.further_entra_tenant_ids refuses \["aaaaaaaa-.*, which is a valid value: further_entra_tenant_ids must hold GUIDs/,
    [],
    [
      [
        VARIABLES,
        'for id in var.further_entra_tenant_ids : can(regex("^[0-9a-f]{8}',
        'for id in var.further_entra_tenant_ids : can(regex("^[0-9A-F]{9}',
      ],
    ],
  ),
  mistake(
    "refusal",
    "a limit refuses every valid value but the default",
    /(@maxValue of logRetentionDays|var.log_retention_days) refuses 90, which is a valid value/,
    inBoth("@maxValue(730)", "@maxValue(73)"),
    [[VARIABLES, "var.log_retention_days <= 730", "var.log_retention_days <= 73"]],
  ),
  mistake(
    "refusal",
    "a precondition refuses every valid value",
    /event_subscription refuses valid values: sender_role_id|topic refuses valid values: sender_role_id/,
    [],
    [[`${TERRAFORM}/events/main.tf`, "var.sender_role_id != null", 'var.sender_role_id == "role"']],
  ),
  mistake(
    "value",
    "App Configuration gets the resource ID of the identity for its client ID",
    /(properties.encryption|encryption.identity_client_id) must be/,
    [
      [
        `${MODULES}/app-configuration.bicep`,
        "identityClientId: customerManagedKey.userAssignedIdentityClientId",
        "identityClientId: customerManagedKey.userAssignedIdentityResourceId",
      ],
    ],
    [
      [
        `${TERRAFORM}/app-configuration.tf`,
        "identity_client_id       = encryption.value",
        "identity_client_id       = var.customer_managed_key.user_assigned_identity.resource_id",
      ],
    ],
  ),
];
