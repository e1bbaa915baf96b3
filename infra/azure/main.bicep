// The whole service: a resource group, what runs in it, and what it may read in the subscriptions it watches.
// Deploy with `azd up`, or `az deployment sub create --template-file infra/azure/main.bicep --location … --parameters …`.
targetScope = 'subscription'

@description('Names the resource group (rg-…) and, with a short hash, every resource in it.')
@minLength(2)
@maxLength(20)
param environmentName string

@description('Region of every resource that has one.')
param location string

@description('Subscriptions to watch. Empty when a management group grants the permissions (watch/management-group.bicep).')
param watchedSubscriptionIds string[] = [subscription().subscriptionId]

@description('Resource groups, as ids, whose apps and API Management the service may have take new values (PRO). Empty: none.')
param rotationResourceGroupIds string[] = []

@description('User name of the first administrator. The password is made by scripts/make-secrets.ts and kept in the vault.')
param bootstrapAdminUsername string = 'admin'

@description('Memory of an instance in MB.')
@allowed([512, 2048, 4096])
param instanceMemoryMb int = 512

@description('Most instances at once.')
@minValue(40)
@maxValue(1000)
param maximumInstanceCount int = 40

@description('Instances that always run for HTTP. 0 costs nothing while nobody calls.')
@minValue(0)
@maxValue(20)
param alwaysReadyInstances int = 0

@description('Major version of Node.js.')
@allowed(['22', '24'])
param nodeVersion string = '22'

@description('Days that logs and metrics are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Who is told when the service itself has a problem. Empty: the alerts fire and tell nobody.')
param operatorEmailAddresses string[] = []

@description('Whether the service sends mail, through Communication Services with a domain that Azure manages.')
param mailEnabled bool = true

@description('Geography in which mail is kept.')
param mailDataLocation string = 'Europe'

@description('Whether settings can also come from an App Configuration store.')
param appConfigurationEnabled bool = false

@description('Whether storage, vault and App Configuration are reachable through private endpoints only.')
param networkEnabled bool = false

@description('Address range of the virtual network, at least a /25.')
param networkAddressPrefix string = '10.20.0.0/24'

@description('Name of a secret in the service vault that holds the licence. Empty: no licence.')
param licenseSecretName string = ''

@description('Application id of the registration as an API, whose access tokens of this tenant are taken. Empty: none.')
param entraApiClientId string = ''

@description('Where people reach the service, when not at the app\'s own address: https://secrets.example.com. Empty: there.')
param publicBaseUrl string = ''

@description('Addresses in the private network, as host:port, that single sign-on and sync may call. Empty: public addresses only.')
param privateTargetHosts string = ''

@description('Address of the key vault that new secrets of applications are handed over in: https://name.vault.azure.net. Empty: none.')
param handoverKeyVaultUrl string = ''

var tags = { 'azd-env-name': environmentName }

resource resourceGroup 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module service 'service.bicep' = {
  scope: resourceGroup
  params: {
    environmentName: environmentName
    location: location
    tags: tags
    watchedSubscriptionIds: watchedSubscriptionIds
    bootstrapAdminUsername: bootstrapAdminUsername
    instanceMemoryMb: instanceMemoryMb
    maximumInstanceCount: maximumInstanceCount
    alwaysReadyInstances: alwaysReadyInstances
    nodeVersion: nodeVersion
    logRetentionDays: logRetentionDays
    operatorEmailAddresses: operatorEmailAddresses
    mailEnabled: mailEnabled
    mailDataLocation: mailDataLocation
    appConfigurationEnabled: appConfigurationEnabled
    networkEnabled: networkEnabled
    networkAddressPrefix: networkAddressPrefix
    licenseSecretName: licenseSecretName
    entraApiClientId: entraApiClientId
    publicBaseUrl: publicBaseUrl
    privateTargetHosts: privateTargetHosts
    handoverKeyVaultUrl: handoverKeyVaultUrl
  }
}

module watch 'watch/subscription.bicep' = [
  for subscriptionId in watchedSubscriptionIds: {
    scope: subscription(subscriptionId)
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
    }
  }
]

module rotation 'rotation/resource-group.bicep' = [
  for resourceGroupId in rotationResourceGroupIds: {
    scope: az.resourceGroup(split(resourceGroupId, '/')[2], split(resourceGroupId, '/')[4])
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
    }
  }
]

output AZURE_RESOURCE_GROUP string = resourceGroup.name
output SERVICE_URL string = service.outputs.serviceUrl
output SERVICE_KEY_VAULT_ID string = service.outputs.vaultId
output SERVICE_FUNCTION_APP_ID string = service.outputs.functionAppId
output SERVICE_IDENTITY_PRINCIPAL_ID string = service.outputs.identityPrincipalId
