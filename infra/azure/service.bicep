// All resources of the service in its resource group, in the order of their dependencies. main.bicep describes the parameters.
param environmentName string
param location string
param tags object
param storageReplication string
param watchedSubscriptionIds string[]
param bootstrapAdminUsername string
param deployerObjectId string
param instanceMemoryMb int
param maximumInstanceCount int
param alwaysReadyInstances int
param nodeVersion string
param logRetentionDays int
param operatorEmailAddresses string[]
param mailEnabled bool
param mailDataLocation string
param alertOwnerDomains string
param mailPerMinute string
param mailPerHour string
param appConfigurationEnabled bool
param allowedIpRanges string[]
param networkEnabled bool
param natGatewayEnabled bool
param functionSubnetResourceId string
param privateEndpointSubnetResourceId string
param privateDnsZonesEnabled bool
param networkAddressPrefix string
param licenseSecretName string
param entraApiClientId string
param entraApiScope string
param furtherEntraTenantIds string[]
param publicBaseUrl string
param logAnalyticsWorkspaceIds string[]
param telemetryEndpoint string
param telemetryHeadersSecretName string
param additionalSettings object
param privateTargetHosts string
param handoverKeyVaultUrl string
param literalScanSubscriptionIds string[]

// Existing subnets have the network and the gateway of their owner.
var networkCreated = networkEnabled && empty(functionSubnetResourceId)
var natGatewayCreated = networkEnabled && empty(functionSubnetResourceId) && natGatewayEnabled

// Names of storage accounts and vaults must be unique in all of Azure and have at most 24 characters.
var suffix = uniqueString(subscription().subscriptionId, environmentName, location)

module identity 'modules/identity.bicep' = {
  params: {
    name: 'id-${environmentName}'
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
    name: 'vnet-${environmentName}'
    location: location
    tags: tags
    networkAddressPrefix: networkAddressPrefix
    natGatewayId: natGatewayCreated ? natGateway!.outputs.natGatewayId : ''
  }
}

module storage 'modules/storage.bicep' = {
  params: {
    name: 'st${suffix}'
    location: location
    tags: tags
    storageReplication: storageReplication
    networkEnabled: networkEnabled
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
    principalId: identity.outputs.principalId
  }
}

module appConfiguration 'modules/app-configuration.bicep' = if (appConfigurationEnabled) {
  params: {
    name: 'appcs-${environmentName}-${suffix}'
    location: location
    tags: tags
    networkEnabled: networkEnabled
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
    storageAccountId: storage.outputs.storageAccountId
    vaultId: vault.outputs.vaultId
    appConfigurationEnabled: appConfigurationEnabled
    appConfigurationId: appConfigurationEnabled ? appConfiguration!.outputs.appConfigurationId : ''
  }
}

module app 'modules/app.bicep' = {
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
    functionSubnetId: networkCreated ? network!.outputs.functionSubnetId : functionSubnetResourceId
    natGatewayCreated: natGatewayCreated
    ipAddress: natGatewayCreated ? natGateway!.outputs.ipAddress : ''
    watchedSubscriptionIds: watchedSubscriptionIds
    bootstrapAdminUsername: bootstrapAdminUsername
    deployerObjectId: deployerObjectId
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
output vaultId string = vault.outputs.vaultId
output storageAccountId string = storage.outputs.storageAccountId
output eventIdentityId string = eventIdentity.outputs.eventIdentityId
output subnetId string = natGatewayCreated || !networkEnabled
  ? ''
  : networkCreated ? network!.outputs.functionSubnetId : functionSubnetResourceId
output ipAddress string = natGatewayCreated ? natGateway!.outputs.ipAddress : ''
