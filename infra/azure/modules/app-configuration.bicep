// An App Configuration store, in which administrators can change settings without the service's API. The service reads it with
// its identity.
param name string
param location string
param tags object
param customerManagedKey object
param networkEnabled bool
param diagnosticSettingsEnabled bool
param logAnalyticsWorkspaceId string
param principalId string

// Domains and zones of each cloud.
var cloud = loadJsonContent('../clouds.json')[environment().name]

resource appConfiguration 'Microsoft.AppConfiguration/configurationStores@2024-06-01' = {
  name: name
  location: location
  tags: tags
  sku: { name: 'standard' }
  identity: empty(customerManagedKey.?userAssignedIdentityClientId)
    ? null
    : {
        type: 'UserAssigned'
        userAssignedIdentities: { '${customerManagedKey.userAssignedIdentityResourceId}': {} }
      }
  properties: {
    disableLocalAuth: true
    enablePurgeProtection: true
    softDeleteRetentionInDays: 7
    publicNetworkAccess: networkEnabled ? 'Disabled' : 'Enabled'
    // Azure needs the client ID of the identity here. A deployer may not be able to read it from the identity.
    encryption: empty(customerManagedKey.?userAssignedIdentityClientId)
      ? null
      : {
          keyVaultProperties: {
            keyIdentifier: join(
              concat(
                [
                  'https://${last(split(customerManagedKey.keyVaultResourceId, '/'))}.${cloud.vaultDomain}/keys'
                  customerManagedKey.keyName
                ],
                empty(customerManagedKey.?keyVersion) ? [] : [customerManagedKey.keyVersion]
              ),
              '/'
            )
            identityClientId: customerManagedKey.userAssignedIdentityClientId
          }
        }
  }
}

resource appConfigurationDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: appConfiguration
  properties: {
    workspaceId: logAnalyticsWorkspaceId
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
  }
}

resource appConfigurationRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(appConfiguration.id, principalId, 'App Configuration Data Reader')
  scope: appConfiguration
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '516239f1-63e1-4d78-a4de-a74fb236a071' // App Configuration Data Reader
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output appConfigurationId string = appConfiguration.id
output appConfigurationEndpoint string = appConfiguration.properties.endpoint
