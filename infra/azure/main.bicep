// The whole service: a resource group with its resources, and permissions in the monitored subscriptions. Deploy with `azd up`,
// or `az deployment sub create --template-file infra/azure/main.bicep --location … --parameters …`.
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

@description('Subscriptions in which settings are compared with the values of secrets, to find copies (PRO). Empty: none.')
param literalScanSubscriptionIds string[] = []

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

@description('Domains, comma separated, whose addresses get the alerts of what a tag names them the owner of. Empty: tags are not believed.')
param alertOwnerDomains string = ''

@description('Mails sent in any minute at most. Empty: 5, which Azure allows the domain that is deployed here.')
param mailPerMinute string = ''

@description('Mails sent in any hour at most. Empty: 10, which Azure allows the domain that is deployed here.')
param mailPerHour string = ''

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

@description('Scope that access tokens of people must have, when not access_as_user. Empty: that one.')
param entraApiScope string = ''

@description('Tenants beside the one deployed to whose access tokens are taken, for a registration that is multi-tenant.')
param furtherEntraTenantIds string[] = []

@description('Where people reach the service, when not at the app\'s own address: https://secrets.example.com. Empty: there.')
param publicBaseUrl string = ''

@description('Addresses in the private network, as host:port, that single sign-on and sync may call. Empty: public addresses only.')
param privateTargetHosts string = ''

@description('Address of the key vault that new secrets of applications are handed over in: https://name.vault.azure.net. Empty: none.')
param handoverKeyVaultUrl string = ''

@description('Whether Event Grid tells the service between scans when a key vault of a watched subscription is written or deleted.')
param eventsEnabled bool = false

@description('Workspaces, as their own GUIDs, in whose logs the service looks who reads the vaults (PRO). Each needs logs/workspace.bicep.')
param logAnalyticsWorkspaceIds string[] = []

@description('Address of an OpenTelemetry collector: https://collector.example.com:4318. Empty: none.')
param telemetryEndpoint string = ''

@description('Name of a secret in the service vault that holds the collector\'s headers, as name=value pairs. Empty: none.')
param telemetryHeadersSecretName string = ''

@description('Further app settings by name, such as schedules and limits (docs/deploy.md). No secret: give a reference to the vault.')
param additionalSettings object = {}

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
    alertOwnerDomains: alertOwnerDomains
    mailPerMinute: mailPerMinute
    mailPerHour: mailPerHour
    appConfigurationEnabled: appConfigurationEnabled
    networkEnabled: networkEnabled
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
  }
}

module events 'events/subscription.bicep' = [
  for subscriptionId in watchedSubscriptionIds: if (eventsEnabled) {
    scope: subscription(subscriptionId)
    params: {
      environmentName: environmentName
      location: location
      tags: tags
      storageAccountId: service.outputs.storageAccountId
    }
  }
]

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

module literalScan 'literal-scan/subscription.bicep' = [
  for subscriptionId in literalScanSubscriptionIds: {
    scope: subscription(subscriptionId)
    params: {
      principalId: service.outputs.identityPrincipalId
      environmentName: environmentName
    }
  }
]

output AZURE_RESOURCE_GROUP string = resourceGroup.name
output SERVICE_URL string = service.outputs.serviceUrl
output SERVICE_KEY_VAULT_ID string = service.outputs.vaultId
output SERVICE_STORAGE_ACCOUNT_ID string = service.outputs.storageAccountId
output SERVICE_FUNCTION_APP_ID string = service.outputs.functionAppId
output SERVICE_IDENTITY_PRINCIPAL_ID string = service.outputs.identityPrincipalId
// True if operatorEmailAddresses is empty: alerts fire, but no one is notified.
output ALERTS_NOTIFY_NOBODY bool = empty(operatorEmailAddresses)
