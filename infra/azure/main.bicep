// The whole service: a resource group with its resources, and permissions in the monitored subscriptions. Deploy with `azd up`,
// or `az deployment sub create --template-file infra/azure/main.bicep --location … --parameters …`.
targetScope = 'subscription'

@description('Names the resource group (rg-…) and, with a short hash, every resource in it.')
@minLength(2)
@maxLength(20)
param environmentName string

@description('Region of the resources. Must offer Flex Consumption (az functionapp list-flexconsumption-locations).')
@metadata({ azd: { type: 'location' } })
param location string

@description('Existing resource group for the service. Empty: creates rg-NAME.')
param resourceGroupName string = ''

@description('Tags of all resources and resource groups, such as a cost center.')
param tags object = {}

@description('Copies of the stored data: LRS (one zone), ZRS (three zones), GRS or GZRS (also another region).')
@allowed(['LRS', 'ZRS', 'GRS', 'GZRS'])
param storageReplication string = 'ZRS'

@description('Encrypts storage with a key: keyVaultResourceId, keyName, keyVersion, userAssignedIdentityResourceId, and App Configuration too with userAssignedIdentityClientId. Empty: Microsoft-managed.')
param customerManagedKey object = {}

@description('Protects storage account and vault: kind (CanNotDelete) and name of the lock. Empty: none.')
param lock object = {}

@description('Whether the instances of the app are spread over the availability zones of the region.')
param zoneRedundant bool = false

@description('Subscriptions to monitor. Empty if a management group grants the permissions (watch/management-group.bicep).')
param watchedSubscriptionIds string[] = [subscription().subscriptionId]

@description('Whether to grant the permissions on watchedSubscriptionIds. False if another team deploys watch/subscription.bicep.')
param watchRolesEnabled bool = true

@description('Existing custom role Inventory Reader, as a resource id. Empty: creates one in each monitored subscription.')
param inventoryReaderRoleDefinitionId string = ''

@description('Existing custom role Dependency Reader, as a resource id. Empty: creates one in each monitored subscription.')
param dependencyReaderRoleDefinitionId string = ''

@description('Ids of resource groups whose apps and API Management the service may refresh after a rotation (PRO). Empty: none.')
param rotationResourceGroupIds string[] = []

@description('Existing custom role Rotation Operator, as a resource id. Empty: creates one in each of these resource groups.')
param rotationOperatorRoleDefinitionId string = ''

// Such as { '/subscriptions/…/resourceGroups/rg-shop': ['storage', 'serviceBusQueue'] }
@description('Kinds of keys that the service may regenerate, by the id of the resource group (PRO). Empty: none.')
param rotationKeyKinds object = {}

@description('Subscriptions in which settings are compared with the values of secrets, to find copies (PRO). Empty: none.')
param literalScanSubscriptionIds string[] = []

@description('Existing custom role Literal Scanner, as a resource id. Empty: creates one in each of these subscriptions.')
param literalScannerRoleDefinitionId string = ''

@description('Ids of DNS zones in which the service proves names to certificate authorities (PRO). Empty: none.')
param acmeDnsZoneIds string[] = []

@description('Ids of key vaults whose certificates the service may renew (PRO). Empty: none.')
param certificateVaultIds string[] = []

@description('User name of the first administrator. scripts/make-secrets.ts creates the password and stores it in the vault.')
param bootstrapAdminUsername string = 'admin'

@description('Object id in Entra of who can set the first password. Empty: who deploys. Set it if a pipeline deploys for you.')
param deployerObjectId string = ''

@description('Memory of an instance in MB.')
@allowed([512, 2048, 4096])
param instanceMemoryMb int = 512

@description('Maximum number of instances.')
@minValue(40)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Number of always-ready instances for HTTP. 0 costs nothing while there are no calls.')
@minValue(0)
@maxValue(20)
param alwaysReadyInstances int = 0

@description('Major version of Node.js.')
@allowed(['22', '24'])
param nodeVersion string = '22'

@description('Retention of logs and metrics in days.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Existing Log Analytics workspace for logs and metrics, as a resource id. Empty: creates one.')
param logAnalyticsWorkspaceResourceId string = ''

@description('Whether all resource logs of storage, app, mail, App Configuration and network go to the workspace.')
param diagnosticSettingsEnabled bool = false

@description('Whether logs and metrics can be sent and read from public networks. False needs your Azure Monitor private link scope.')
param monitoringPublicNetworkAccessEnabled bool = true

@description('Mail addresses for alerts about problems of the service itself. Empty: alerts fire, but no one is notified.')
param operatorEmailAddresses string[] = []

@description('Whether the service sends mail, through Communication Services with a domain that Azure manages.')
param mailEnabled bool = true

@description('Geography in which mail data is stored.')
param mailDataLocation string = 'Europe'

@description('Comma-separated mail domains whose addresses in owner tags receive alerts. Empty: owner tags are not used for alerts.')
param alertOwnerDomains string = ''

@description('Maximum number of mails per minute. Empty: 5, the limit of Azure for the deployed domain.')
param mailPerMinute string = ''

@description('Maximum number of mails per hour. Empty: 10, the limit of Azure for the deployed domain.')
param mailPerHour string = ''

@description('Whether settings can also come from an App Configuration store.')
param appConfigurationEnabled bool = false

@description('Address ranges that may call the app, in CIDR notation: 203.0.113.0/24. Empty: everyone.')
param allowedIpRanges string[] = []

@description('Whether the app can be called from public networks. False needs appPrivateEndpointEnabled or your own private endpoint.')
param appPublicNetworkAccessEnabled bool = true

@description('Whether the app has a private endpoint. Needs networkEnabled.')
param appPrivateEndpointEnabled bool = false

@description('Whether storage, vault and App Configuration are reachable through private endpoints only.')
param networkEnabled bool = false

@description('Whether the service calls vaults with one fixed public address, through a NAT gateway. Needs networkEnabled without own subnets.')
param natGatewayEnabled bool = false

@description('Existing subnet of the app, delegated to Microsoft.App/environments, as a resource id. Empty: creates a network.')
param functionSubnetResourceId string = ''

@description('Existing subnet of the private endpoints, as a resource id. Set both subnets, or none.')
param privateEndpointSubnetResourceId string = ''

@description('Whether to create private DNS zones. False if a policy adds private endpoints to central zones.')
param privateDnsZonesEnabled bool = true

@description('Existing private DNS zones, as resource ids by endpoint: blob, table, queue, vault, configurationStores, sites. Empty: creates zones.')
param privateDnsZoneResourceIds object = {}

@description('Address range of the virtual network, at least a /25.')
param networkAddressPrefix string = '10.20.0.0/24'

@description('Name of the secret in the service vault that contains the license. Empty: no license.')
param licenseSecretName string = ''

@description('Application id of the API registration whose access tokens of this tenant are accepted. Empty: none.')
param entraApiClientId string = ''

@description('Required scope of access tokens of people. Empty: access_as_user.')
param entraApiScope string = ''

@description('Further tenants whose access tokens are accepted, for a multi-tenant registration.')
param furtherEntraTenantIds string[] = []

@description('Public address of the service: https://secrets.example.com. Empty: the address of the app.')
param publicBaseUrl string = ''

@description('Addresses in the private network, as host:port, that single sign-on and sync may call. Empty: public addresses only.')
param privateTargetHosts string = ''

@description('Address of the handover vault for new secrets of applications: https://name.vault.azure.net. Empty: none.')
param handoverKeyVaultUrl string = ''

@description('Whether Event Grid notifies the service when a key vault of a monitored subscription is written or deleted between scans.')
param eventsEnabled bool = false

@description('GUIDs of the Log Analytics workspaces whose logs show who reads the vaults (PRO). Each needs logs/workspace.bicep.')
param logAnalyticsWorkspaceIds string[] = []

@description('Address of an OpenTelemetry collector: https://collector.example.com:4318. Empty: none.')
param telemetryEndpoint string = ''

@description('Name of the secret in the service vault that contains the collector\'s headers, as name=value pairs. Empty: none.')
param telemetryHeadersSecretName string = ''

@description('Further app settings by name, such as schedules and limits (docs/deploy.md). Use key vault references for secrets.')
param additionalSettings object = {}

// azd finds its resources by this tag.
var resourceTags = union(tags, { 'azd-env-name': environmentName })
var groupName = empty(resourceGroupName) ? 'rg-${environmentName}' : resourceGroupName

resource resourceGroup 'Microsoft.Resources/resourceGroups@2025-04-01' = if (empty(resourceGroupName)) {
  name: 'rg-${environmentName}'
  location: location
  tags: resourceTags
}

module service 'service.bicep' = {
  scope: az.resourceGroup(groupName)
  dependsOn: [resourceGroup]
  params: {
    environmentName: environmentName
    location: location
    tags: resourceTags
    storageReplication: storageReplication
    customerManagedKey: customerManagedKey
    lock: lock
    zoneRedundant: zoneRedundant
    watchedSubscriptionIds: watchedSubscriptionIds
    bootstrapAdminUsername: bootstrapAdminUsername
    deployerObjectId: deployerObjectId
    instanceMemoryMb: instanceMemoryMb
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyInstances: alwaysReadyInstances
    nodeVersion: nodeVersion
    logRetentionDays: logRetentionDays
    logAnalyticsWorkspaceResourceId: logAnalyticsWorkspaceResourceId
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    monitoringPublicNetworkAccessEnabled: monitoringPublicNetworkAccessEnabled
    operatorEmailAddresses: operatorEmailAddresses
    mailEnabled: mailEnabled
    mailDataLocation: mailDataLocation
    alertOwnerDomains: alertOwnerDomains
    mailPerMinute: mailPerMinute
    mailPerHour: mailPerHour
    appConfigurationEnabled: appConfigurationEnabled
    allowedIpRanges: allowedIpRanges
    appPublicNetworkAccessEnabled: appPublicNetworkAccessEnabled
    appPrivateEndpointEnabled: appPrivateEndpointEnabled
    networkEnabled: networkEnabled
    natGatewayEnabled: natGatewayEnabled
    functionSubnetResourceId: functionSubnetResourceId
    privateEndpointSubnetResourceId: privateEndpointSubnetResourceId
    privateDnsZonesEnabled: privateDnsZonesEnabled
    privateDnsZoneResourceIds: privateDnsZoneResourceIds
    networkAddressPrefix: networkAddressPrefix
    licenseSecretName: licenseSecretName
    entraApiClientId: entraApiClientId
    entraApiScope: entraApiScope
    furtherEntraTenantIds: furtherEntraTenantIds
    publicBaseUrl: publicBaseUrl
    logAnalyticsWorkspaceIds: logAnalyticsWorkspaceIds
    telemetryEndpoint: telemetryEndpoint
    telemetryHeadersSecretName: telemetryHeadersSecretName
    additionalSettings: additionalSettings
    privateTargetHosts: privateTargetHosts
    handoverKeyVaultUrl: handoverKeyVaultUrl
    literalScanSubscriptionIds: literalScanSubscriptionIds
    acmeDnsZoneIds: acmeDnsZoneIds
  }
}

module events 'events/subscription.bicep' = [
  for subscriptionId in watchedSubscriptionIds: if (eventsEnabled) {
    scope: subscription(subscriptionId)
    params: {
      environmentName: environmentName
      location: location
      tags: resourceTags
      storageAccountId: service.outputs.storageAccountId
      eventIdentityId: service.outputs.eventIdentityId
    }
  }
]

module watch 'watch/subscription.bicep' = [
  for subscriptionId in watchedSubscriptionIds: if (watchRolesEnabled) {
    scope: subscription(subscriptionId)
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
      inventoryReaderRoleDefinitionId: inventoryReaderRoleDefinitionId
      dependencyReaderRoleDefinitionId: dependencyReaderRoleDefinitionId
    }
  }
]

module rotation 'rotation/resource-group.bicep' = [
  for resourceGroupId in rotationResourceGroupIds: {
    scope: az.resourceGroup(split(resourceGroupId, '/')[2], split(resourceGroupId, '/')[4])
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
      rotationOperatorRoleDefinitionId: rotationOperatorRoleDefinitionId
    }
  }
]

module rotationKeys 'rotation/resource-keys.bicep' = [
  for group in items(rotationKeyKinds): {
    scope: az.resourceGroup(split(group.key, '/')[2], split(group.key, '/')[4])
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
      kinds: group.value
    }
  }
]

module literalScan 'literal-scan/subscription.bicep' = [
  for subscriptionId in literalScanSubscriptionIds: {
    scope: subscription(subscriptionId)
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
      literalScannerRoleDefinitionId: literalScannerRoleDefinitionId
    }
  }
]

module certificateDnsZones 'certificates/dns-zone.bicep' = [
  for zoneId in acmeDnsZoneIds: {
    scope: az.resourceGroup(split(zoneId, '/')[2], split(zoneId, '/')[4])
    params: {
      principalId: service.outputs.identityPrincipalId
      name: split(zoneId, '/')[8]
    }
  }
]

module certificateVaults 'certificates/vault.bicep' = [
  for vaultId in certificateVaultIds: {
    scope: az.resourceGroup(split(vaultId, '/')[2], split(vaultId, '/')[4])
    params: {
      principalId: service.outputs.identityPrincipalId
      name: split(vaultId, '/')[8]
    }
  }
]

// Version of these templates. /health?deep=true has the app's.
output SERVICE_VERSION string = loadJsonContent('../../package.json', '$.version')
output AZURE_RESOURCE_GROUP string = groupName
output SERVICE_URL string = service.outputs.serviceUrl
output SERVICE_KEY_VAULT_ID string = service.outputs.vaultId
output SERVICE_KEY_VAULT_NAME string = service.outputs.vaultName
output SERVICE_STORAGE_ACCOUNT_ID string = service.outputs.storageAccountId
output SERVICE_EVENT_IDENTITY_ID string = service.outputs.eventIdentityId
output SERVICE_FUNCTION_APP_ID string = service.outputs.functionAppId
output SERVICE_FUNCTION_APP_NAME string = service.outputs.functionAppName
// The resources that an Azure Monitor private link scope must include.
output SERVICE_LOG_ANALYTICS_WORKSPACE_ID string = service.outputs.logAnalyticsWorkspaceId
output SERVICE_APPLICATION_INSIGHTS_ID string = service.outputs.applicationInsightsId
// The source of the service's calls that the firewall of a monitored vault must allow: the subnet, or with natGatewayEnabled the
// address. Both are empty if the service has no fixed source.
output SERVICE_SUBNET_ID string = service.outputs.subnetId
output SERVICE_IP_ADDRESS string = service.outputs.ipAddress
output SERVICE_IDENTITY_PRINCIPAL_ID string = service.outputs.identityPrincipalId
// True if operatorEmailAddresses is empty: alerts fire, but no one is notified.
output ALERTS_NOTIFY_NOBODY bool = empty(operatorEmailAddresses)
