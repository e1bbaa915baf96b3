// Samples of parameters with which both languages are evaluated. Each id differs in each of its segments, so that a value from a
// wrong segment is a wrong value.

import { snake } from "../parity/normalize.ts";
import type { Deployment, Place } from "./deployed.ts";
import type { Value } from "./evaluate.ts";

/** A deployment in both languages. */
export interface Sample {
  name: string;
  /** Path of the Bicep file. */
  bicep: string;
  parameters: { [name: string]: Value };
  /** Folder of the Terraform module. */
  terraform: string;
  variables: { [name: string]: Value };
  place: Place;
}

/** A sample with what each language deploys. */
export interface Result {
  sample: Sample;
  bicep: Deployment;
  terraform: Deployment;
}

const TENANT = "11111111-1111-4111-8111-111111111111";
const SUBSCRIPTION = "22222222-2222-4222-8222-222222222222";
const WATCHED = "33333333-3333-4333-8333-333333333333";
const PLATFORM = `/subscriptions/44444444-4444-4444-8444-444444444444/resourceGroups/rg-platform/providers`;
const CUSTOM_ROLE = "/providers/Microsoft.Authorization/roleDefinitions";
const SERVICE_GROUP = `/subscriptions/55555555-5555-4555-8555-555555555555/resourceGroups/rg-service`;
const ROTATED = `/subscriptions/66666666-6666-4666-8666-666666666666/resourceGroups/rg-rotated`;
const KEYS = `/subscriptions/88888888-8888-4888-8888-888888888888/resourceGroups/rg-keys`;
const ZONE = `/subscriptions/bbbbbbbb-1111-4111-8111-bbbbbbbbbbbb/resourceGroups/rg-dns/providers/Microsoft.Network/dnsZones/sample.example`;
const RENEWED = `/subscriptions/cccccccc-1111-4111-8111-cccccccccccc/resourceGroups/rg-vaults/providers/Microsoft.KeyVault/vaults/kv-renewed`;
const WORKSPACE_GROUP = "rg-logs";
const MANAGEMENT_GROUP = "mg-company";

const PLACE: Place = {
  tenantId: TENANT,
  subscriptionId: SUBSCRIPTION,
  cloud: "AzureCloud",
  deployerObjectId: "77777777-7777-4777-8777-777777777777",
};

/** The parameters of every deployment of the service. The name has the maximum length. */
export const REQUIRED = { environmentName: "a-name-of-20-letters", location: "westeurope" };

/** Name of the sample with all options, whose outputs are all set. */
export const EVERY_OPTION = "every option";

/** Kinds whose keys are rotated in the samples. Two of them need the same action. */
export const ROTATED_KINDS = ["storage", "serviceBus", "serviceBusQueue"];

/** A value for every option that creates a resource, sets a setting or has limits. */
const OPTIONS = {
  storageReplication: "GZRS",
  instanceMemoryMb: 4096,
  maximumInstanceCount: 100,
  nodeVersion: "24",
  logRetentionDays: 90,
  alwaysReadyInstances: 2,
  rotationResourceGroupIds: [ROTATED],
  rotationKeyKinds: { [KEYS]: ROTATED_KINDS },
  literalScanSubscriptionIds: [WATCHED],
  acmeDnsZoneIds: [ZONE],
  certificateVaultIds: [RENEWED],
  operatorEmailAddresses: ["operator@sample.example"],
  allowedIpRanges: ["203.0.113.0/24"],
  diagnosticSettingsEnabled: true,
  appConfigurationEnabled: true,
  appPrivateEndpointEnabled: true,
  networkEnabled: true,
  natGatewayEnabled: true,
  // The smallest network: it has exactly the two /26 subnets.
  networkAddressPrefix: "10.1.2.0/25",
  eventsEnabled: true,
  lock: { kind: "CanNotDelete" },
  licenseSecretName: "license",
  alertOwnerDomains: "sample.example",
  mailPerMinute: "20",
  mailPerHour: "200",
  entraApiClientId: "99999999-9999-4999-8999-999999999999",
  entraApiScope: "access_as_sample",
  furtherEntraTenantIds: ["aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"],
  publicBaseUrl: "https://lifecycle.sample.example",
  privateTargetHosts: "login.sample.example:443",
  handoverKeyVaultUrl: "https://kv-handover.vault.azure.net",
  logAnalyticsWorkspaceIds: ["bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"],
  telemetryEndpoint: "https://collector.sample.example:4318",
  telemetryHeadersSecretName: "collector-headers",
};

/** Every resource that can exist already. */
const EXISTING = {
  resourceGroupName: "rg-existing",
  watchedSubscriptionIds: [SUBSCRIPTION, WATCHED],
  networkEnabled: true,
  appPrivateEndpointEnabled: true,
  appConfigurationEnabled: true,
  functionSubnetResourceId: `${PLATFORM}/Microsoft.Network/virtualNetworks/vnet-a/subnets/functions`,
  privateEndpointSubnetResourceId: `${PLATFORM}/Microsoft.Network/virtualNetworks/vnet-b/subnets/endpoints`,
  privateDnsZoneResourceIds: {
    vault: `${PLATFORM}/Microsoft.Network/privateDnsZones/privatelink.vaultcore.azure.net`,
    sites: `${PLATFORM}/Microsoft.Network/privateDnsZones/privatelink.azurewebsites.net`,
  },
  logAnalyticsWorkspaceResourceId: `${PLATFORM}/Microsoft.OperationalInsights/workspaces/log-platform`,
  rotationResourceGroupIds: [ROTATED],
  literalScanSubscriptionIds: [WATCHED],
  inventoryReaderRoleDefinitionId: `${CUSTOM_ROLE}/inventory-reader`,
  dependencyReaderRoleDefinitionId: `${CUSTOM_ROLE}/dependency-reader`,
  rotationOperatorRoleDefinitionId: `${CUSTOM_ROLE}/rotation-operator`,
  literalScannerRoleDefinitionId: `${CUSTOM_ROLE}/literal-scanner`,
};

const KEY = {
  keyVaultResourceId: `${PLATFORM}/Microsoft.KeyVault/vaults/kv-keys`,
  keyName: "lifecycle",
  userAssignedIdentityResourceId: `${PLATFORM}/Microsoft.ManagedIdentity/userAssignedIdentities/id-key`,
  userAssignedIdentityClientId: "cccccccc-cccc-4ccc-8ccc-cccccccccccc",
};

/**
 * Converts parameters of main.bicep to variables. Only the encryption key has another shape. `customerManagedKey` is KEY in every
 * sample that sets it.
 */
function variablesOf({ customerManagedKey, ...parameters }: { [name: string]: Value }): { [name: string]: Value } {
  const variables = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [snake(name), value]));
  return customerManagedKey === undefined
    ? variables
    : {
        ...variables,
        customer_managed_key: {
          key_vault_resource_id: KEY.keyVaultResourceId,
          key_name: KEY.keyName,
          user_assigned_identity: {
            resource_id: KEY.userAssignedIdentityResourceId,
            client_id: KEY.userAssignedIdentityClientId,
          },
        },
      };
}

/** Returns a sample of the service itself. */
export const serviceSample = (
  name: string,
  parameters: { [name: string]: Value },
  place: Partial<Place> = {},
): Sample => ({
  name,
  bicep: "infra/azure/main.bicep",
  parameters: { ...REQUIRED, ...parameters },
  terraform: "infra/terraform",
  variables: {
    ...variablesOf({ ...REQUIRED, ...parameters }),
    ...(place.cloud !== undefined && { azure_cloud: place.cloud }),
  },
  place: { ...PLACE, ...place },
});

/** Parameters of templates that grant permissions to the service's identity. */
const PRINCIPAL = { principalId: "<identity.principal_id>", environmentName: REQUIRED.environmentName };
const EVENT_IDS = {
  storageAccountId: `${SERVICE_GROUP}/providers/Microsoft.Storage/storageAccounts/stservice`,
  eventIdentityId: `${SERVICE_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id-events`,
};

const SUBSCRIPTION_ID = `/subscriptions/${SUBSCRIPTION}`;
const MANAGEMENT_GROUP_ID = `/providers/Microsoft.Management/managementGroups/${MANAGEMENT_GROUP}`;
const KEY_VAULT_ID = `${SUBSCRIPTION_ID}/resourceGroups/rg-vaults/providers/Microsoft.KeyVault/vaults/kv-keys`;
const WORKSPACE_ID = `${SUBSCRIPTION_ID}/resourceGroups/${WORKSPACE_GROUP}/providers/Microsoft.OperationalInsights/workspaces/log-company`;
const WATCH_SCOPES = [SUBSCRIPTION_ID, `/subscriptions/${WATCHED}`, MANAGEMENT_GROUP_ID];

/**
 * Returns a sample of a template that is deployed on its own.
 *
 * @param bicep - Path below infra/azure, which is also the sample's name.
 * @param terraform - Folder below infra/terraform.
 * @param further - Variables that only Terraform has, such as `scope`. In Bicep the deployment has a scope of its own.
 */
function separateSample(
  bicep: string,
  terraform: string,
  parameters: { [name: string]: Value },
  further: { [name: string]: Value },
  place: Partial<Place> = {},
): Sample {
  const variables = Object.fromEntries(Object.entries(parameters).map(([name, value]) => [snake(name), value]));
  return {
    name: bicep,
    bicep: `infra/azure/${bicep}`,
    parameters,
    terraform: `infra/terraform/${terraform}`,
    variables: { ...variables, ...further },
    place: { ...PLACE, ...place },
  };
}

const EVENTS = { ...REQUIRED, ...EVENT_IDS };
const POLICY_GROUP = { resource_group_id: SERVICE_GROUP };

/** All samples. */
export const SAMPLES: readonly Sample[] = [
  serviceSample("defaults", {}),
  serviceSample(EVERY_OPTION, OPTIONS),
  serviceSample("existing resources", { ...EXISTING, customerManagedKey: KEY }),
  serviceSample("every option in another cloud", OPTIONS, { cloud: "AzureUSGovernment" }),
  serviceSample("nothing but the service", {
    watchedSubscriptionIds: [],
    watchRolesEnabled: false,
    mailEnabled: false,
    networkEnabled: true,
    networkAddressPrefix: "172.16.8.0/22",
    privateDnsZonesEnabled: false,
  }),
  separateSample("watch/subscription.bicep", "watch", PRINCIPAL, { scope: SUBSCRIPTION_ID, scope_name: SUBSCRIPTION }),
  separateSample(
    "watch/management-group.bicep",
    "watch",
    PRINCIPAL,
    { scope: MANAGEMENT_GROUP_ID, scope_name: MANAGEMENT_GROUP },
    { managementGroup: MANAGEMENT_GROUP },
  ),
  separateSample(
    "logs/workspace.bicep",
    "logs",
    { ...PRINCIPAL, workspaceName: "log-company" },
    { workspace_id: WORKSPACE_ID },
    { resourceGroup: WORKSPACE_GROUP },
  ),
  separateSample(
    "rotation/vault-keys.bicep",
    "vault-keys",
    { ...PRINCIPAL, keyVaultName: "kv-keys" },
    { key_vault_id: KEY_VAULT_ID },
    { resourceGroup: "rg-vaults" },
  ),
  separateSample(
    "siem/workspace.bicep",
    "siem",
    { ...PRINCIPAL, workspaceName: "log-company", location: REQUIRED.location },
    { workspace_id: WORKSPACE_ID },
    { resourceGroup: WORKSPACE_GROUP },
  ),
  separateSample("events/subscription.bicep", "events", EVENTS, {}),
  separateSample("events-policy/subscription.bicep", "events-policy/subscription", EVENTS, {
    scope: SUBSCRIPTION_ID,
    ...POLICY_GROUP,
  }),
  separateSample(
    "events-policy/management-group.bicep",
    "events-policy/management-group",
    EVENTS,
    { scope: MANAGEMENT_GROUP_ID, ...POLICY_GROUP },
    { managementGroup: MANAGEMENT_GROUP },
  ),
];

/**
 * Scopes at which an optional feature gets its permissions, by the name of the role assignment or custom role. The scope of every
 * other assignment is a resource of the service (invariants.ts).
 */
export const SCOPES: Record<string, readonly string[]> = {
  rotation_operator_definition: [ROTATED],
  rotation_operator_role: [ROTATED],
  key_rotator_definition: [KEYS],
  key_rotator_role: [KEYS],
  literal_scanner_definition: [`/subscriptions/${WATCHED}`],
  literal_scanner_role: [`/subscriptions/${WATCHED}`],
  dns_zone_role: [ZONE],
  certificates_officer_role: [RENEWED],
  secrets_user_role: [`/subscriptions/${WATCHED}`],
  ...Object.fromEntries(
    ["key_vault_reader_role", "inventory_reader_role", "dependency_reader_role"].map((symbol) => [
      symbol,
      WATCH_SCOPES,
    ]),
  ),
  inventory_reader_definition: WATCH_SCOPES,
  dependency_reader_definition: WATCH_SCOPES,
  vault_key_rotator_definition: [`${SUBSCRIPTION_ID}/resourceGroups/rg-vaults`],
  vault_key_rotator_role: [KEY_VAULT_ID],
  log_reader_definition: [`${SUBSCRIPTION_ID}/resourceGroups/${WORKSPACE_GROUP}`],
  log_reader_role: [WORKSPACE_ID],
  subscription_topics_role: [SUBSCRIPTION_ID],
  management_group_topics_role: [MANAGEMENT_GROUP_ID],
  identity_operator_role: [EVENT_IDS.eventIdentityId],
  event_deployer_definition: [SERVICE_GROUP],
  event_deployer_role: [EVENT_IDS.storageAccountId],
};

/**
 * Value of each output of the service with every option, by its name in lower case. The text `<vault.id>` is the id of the
 * resource that is declared as `vault`. `#` stands for the hash that makes names unique, which the languages compute differently.
 */
export const OUTPUTS: Record<string, Value> = {
  azure_resource_group: `rg-${REQUIRED.environmentName}`,
  service_resource_group_name: `rg-${REQUIRED.environmentName}`,
  service_resource_group_id: "<resource_group.id>",
  service_url: `https://func-${REQUIRED.environmentName}-#.azurewebsites.net`,
  service_key_vault_id: "<vault.id>",
  service_key_vault_name: "kv-#",
  service_storage_account_id: "<storage_account.id>",
  service_storage_account_name: "st#",
  service_event_identity_id: "<event_identity.id>",
  service_vault_events_queue_id: "<vault_events_queue.id>",
  service_function_app_id: "<function_app.id>",
  service_function_app_name: `func-${REQUIRED.environmentName}-#`,
  service_log_analytics_workspace_id: "<log_analytics_workspace.id>",
  service_application_insights_id: "<application_insights.id>",
  service_identity_id: "<identity.id>",
  service_identity_client_id: "<identity.client_id>",
  service_identity_principal_id: "<identity.principal_id>",
  service_subnet_id: "",
  service_ip_address: "<public_ip_address.ip_address>",
  alerts_notify_nobody: false,
};

/** Reasons of the outputs whose value depends on an option. */
export const OUTPUT_REASONS: Record<string, string> = {
  service_subnet_id: "with a NAT gateway the subnet has no service endpoint, and the address replaces it",
  service_ip_address: "with a NAT gateway the service calls from this address",
};
