// All resources of the service in its resource group, in the order of their dependencies. main.bicep deploys it, with the
// permissions in the monitored subscriptions. If you may deploy to one resource group only, deploy this file:
// `az deployment group create --resource-group … --template-file infra/azure/service.bicep --parameters environmentName=…`.
// npm run check:infra compares the parameters with those of main.bicep.
targetScope = 'resourceGroup'

@description('Names the resource group (rg-…) and, with a short hash, every resource in it.')
@minLength(2)
@maxLength(20)
param environmentName string

@description('Region of the resources. Must offer Flex Consumption (az functionapp list-flexconsumption-locations).')
@metadata({ azd: { type: 'location' } })
param location string = resourceGroup().location

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

@description('Subscriptions in which settings are compared with the values of secrets, to find copies (PRO). Empty: none.')
param literalScanSubscriptionIds string[] = []

@description('Ids of DNS zones in which the service proves names to certificate authorities (PRO). Empty: none.')
param acmeDnsZoneIds string[] = []

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

@description('GUIDs of the Log Analytics workspaces whose logs show who reads the vaults (PRO). Each needs logs/workspace.bicep.')
param logAnalyticsWorkspaceIds string[] = []

@description('Address of an OpenTelemetry collector: https://collector.example.com:4318. Empty: none.')
param telemetryEndpoint string = ''

@description('Name of the secret in the service vault that contains the collector\'s headers, as name=value pairs. Empty: none.')
param telemetryHeadersSecretName string = ''

@description('Further app settings by name, such as schedules and limits (docs/deploy.md). Use key vault references for secrets.')
param additionalSettings object = {}

// Existing subnets are in a network of their owner, who also decides about its NAT gateway. So the templates create neither.
var networkCreated = networkEnabled && empty(functionSubnetResourceId)
var natGatewayCreated = networkEnabled && empty(functionSubnetResourceId) && natGatewayEnabled
var appPrivateEndpointCreated = networkEnabled && appPrivateEndpointEnabled

// Combinations of parameters that are not valid. With one of them, `fail` stops the deployment before it creates anything, because
// every other resource waits for the identity, whose name contains the call.
var natGatewayRefused = natGatewayEnabled && !networkCreated
var subnetMissing = empty(functionSubnetResourceId) != empty(privateEndpointSubnetResourceId)
var appEndpointRefused = appPrivateEndpointEnabled && !networkEnabled
var identityName = natGatewayRefused
  ? fail('natGatewayEnabled needs networkEnabled, and no subnets of your own: their network has its own gateway.')
  : subnetMissing
      ? fail('Set both functionSubnetResourceId and privateEndpointSubnetResourceId, or none.')
      : appEndpointRefused ? fail('appPrivateEndpointEnabled needs networkEnabled.') : 'id-${environmentName}'

// Names of storage accounts and vaults must be unique in all of Azure and have at most 24 characters.
var suffix = uniqueString(subscription().subscriptionId, environmentName, location)

module identity 'modules/identity.bicep' = {
  params: {
    name: identityName
    location: location
    tags: tags
  }
}

module monitoring 'modules/monitoring.bicep' = {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    logRetentionDays: logRetentionDays
    logAnalyticsWorkspaceResourceId: logAnalyticsWorkspaceResourceId
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    monitoringPublicNetworkAccessEnabled: monitoringPublicNetworkAccessEnabled
    principalId: identity.outputs.principalId
  }
}

module natGateway 'modules/nat-gateway.bicep' = if (natGatewayCreated) {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
  }
}

module network 'modules/network.bicep' = if (networkCreated) {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    networkAddressPrefix: networkAddressPrefix
    natGatewayId: natGatewayCreated ? natGateway!.outputs.natGatewayId : ''
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
  }
}

module storage 'modules/storage.bicep' = {
  params: {
    name: 'st${suffix}'
    location: location
    tags: tags
    storageReplication: storageReplication
    customerManagedKey: customerManagedKey
    lock: lock
    networkEnabled: networkEnabled
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
    principalId: identity.outputs.principalId
  }
}

module eventIdentity 'modules/event-identity.bicep' = {
  params: {
    name: 'id-${environmentName}-events'
    location: location
    tags: tags
    storageAccountName: storage.outputs.storageAccountName
  }
}

module vault 'modules/vault.bicep' = {
  params: {
    name: 'kv-${suffix}'
    location: location
    tags: tags
    lock: lock
    networkEnabled: networkEnabled
    principalId: identity.outputs.principalId
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
  }
}

module mail 'modules/mail.bicep' = if (mailEnabled) {
  params: {
    name: 'acs-${environmentName}-${suffix}'
    tags: tags
    mailDataLocation: mailDataLocation
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
    principalId: identity.outputs.principalId
  }
}

module appConfiguration 'modules/app-configuration.bicep' = if (appConfigurationEnabled) {
  params: {
    name: 'appcs-${environmentName}-${suffix}'
    location: location
    tags: tags
    customerManagedKey: customerManagedKey
    networkEnabled: networkEnabled
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
    principalId: identity.outputs.principalId
  }
}

module privateEndpoints 'modules/private-endpoints.bicep' = if (networkEnabled) {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    virtualNetworkId: networkCreated
      ? network!.outputs.virtualNetworkId
      : split(privateEndpointSubnetResourceId, '/subnets/')[0]
    subnetId: networkCreated ? network!.outputs.privateEndpointSubnetId : privateEndpointSubnetResourceId
    privateDnsZonesEnabled: privateDnsZonesEnabled
    privateDnsZoneResourceIds: privateDnsZoneResourceIds
    storageAccountId: storage.outputs.storageAccountId
    vaultId: vault.outputs.vaultId
    appConfigurationEnabled: appConfigurationEnabled
    appConfigurationId: appConfigurationEnabled ? appConfiguration!.outputs.appConfigurationId : ''
  }
}

module app 'modules/app.bicep' = {
  // The app resolves the secrets in its settings when it is created, in a private network through the endpoints.
  dependsOn: [privateEndpoints]
  params: {
    environmentName: environmentName
    suffix: suffix
    location: location
    tags: tags
    identityId: identity.outputs.identityId
    identityClientId: identity.outputs.clientId
    blobEndpoint: storage.outputs.blobEndpoint
    queueEndpoint: storage.outputs.queueEndpoint
    tableEndpoint: storage.outputs.tableEndpoint
    deploymentContainerUrl: storage.outputs.deploymentContainerUrl
    vaultName: vault.outputs.vaultName
    applicationInsightsConnectionString: monitoring.outputs.applicationInsightsConnectionString
    mailEnabled: mailEnabled
    communicationEndpoint: mailEnabled ? mail!.outputs.communicationEndpoint : ''
    alertSenderAddress: mailEnabled ? mail!.outputs.alertSenderAddress : ''
    alertOwnerDomains: alertOwnerDomains
    mailPerMinute: mailPerMinute
    mailPerHour: mailPerHour
    appConfigurationEnabled: appConfigurationEnabled
    appConfigurationEndpoint: appConfigurationEnabled ? appConfiguration!.outputs.appConfigurationEndpoint : ''
    networkEnabled: networkEnabled
    allowedIpRanges: allowedIpRanges
    appPublicNetworkAccessEnabled: appPublicNetworkAccessEnabled
    zoneRedundant: zoneRedundant
    diagnosticSettingsEnabled: diagnosticSettingsEnabled
    logAnalyticsWorkspaceId: monitoring.outputs.logAnalyticsWorkspaceId
    functionSubnetId: networkCreated ? network!.outputs.functionSubnetId : functionSubnetResourceId
    natGatewayCreated: natGatewayCreated
    ipAddress: natGatewayCreated ? natGateway!.outputs.ipAddress : ''
    watchedSubscriptionIds: watchedSubscriptionIds
    bootstrapAdminUsername: bootstrapAdminUsername
    operatorEmailAddresses: operatorEmailAddresses
    deployerObjectId: empty(deployerObjectId) ? deployer().objectId : deployerObjectId
    instanceMemoryMb: instanceMemoryMb
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyInstances: alwaysReadyInstances
    nodeVersion: nodeVersion
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

module appPrivateEndpoint 'modules/app-private-endpoint.bicep' = if (appPrivateEndpointCreated) {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    virtualNetworkId: networkCreated
      ? network!.outputs.virtualNetworkId
      : split(privateEndpointSubnetResourceId, '/subnets/')[0]
    subnetId: networkCreated ? network!.outputs.privateEndpointSubnetId : privateEndpointSubnetResourceId
    privateDnsZonesEnabled: privateDnsZonesEnabled
    privateDnsZoneResourceIds: privateDnsZoneResourceIds
    functionAppId: app.outputs.functionAppId
  }
}

module alerts 'modules/alerts.bicep' = {
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    applicationInsightsId: monitoring.outputs.applicationInsightsId
    operatorEmailAddresses: operatorEmailAddresses
  }
}

output identityPrincipalId string = identity.outputs.principalId
output serviceUrl string = app.outputs.serviceUrl
output functionAppId string = app.outputs.functionAppId
output functionAppName string = app.outputs.functionAppName
output vaultId string = vault.outputs.vaultId
output vaultName string = vault.outputs.vaultName
output logAnalyticsWorkspaceId string = monitoring.outputs.logAnalyticsWorkspaceId
output applicationInsightsId string = monitoring.outputs.applicationInsightsId
output storageAccountId string = storage.outputs.storageAccountId
output eventIdentityId string = eventIdentity.outputs.eventIdentityId
output subnetId string = natGatewayCreated || !networkEnabled
  ? ''
  : networkCreated ? network!.outputs.functionSubnetId : functionSubnetResourceId
output ipAddress string = natGatewayCreated ? natGateway!.outputs.ipAddress : ''
