// The storage account of the service: its data (tables), its messages (queues) and its deployment package (one blob container).
// Only Entra identities can access it.
param name string
param location string
param tags object
param storageReplication string
param customerManagedKey object
param lock object
param networkEnabled bool
param principalId string
param diagnosticSettingsEnabled bool
param logAnalyticsWorkspaceId string

// Domains and zones of each cloud.
var cloud = loadJsonContent('../clouds.json')[environment().name]

resource storageAccount 'Microsoft.Storage/storageAccounts@2025-01-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: 'Standard_${storageReplication}' }
  identity: empty(customerManagedKey)
    ? null
    : {
        type: 'UserAssigned'
        userAssignedIdentities: { '${customerManagedKey.userAssignedIdentityResourceId}': {} }
      }
  properties: {
    accessTier: 'Hot'
    // A key without a version is rotated automatically. Tables and queues use it only if the account was created with it.
    encryption: empty(customerManagedKey)
      ? { keySource: 'Microsoft.Storage' }
      : {
          keySource: 'Microsoft.Keyvault'
          identity: { userAssignedIdentity: customerManagedKey.userAssignedIdentityResourceId }
          keyvaultproperties: {
            keyvaulturi: 'https://${last(split(customerManagedKey.keyVaultResourceId, '/'))}.${cloud.vaultDomain}'
            keyname: customerManagedKey.keyName
            keyversion: customerManagedKey.?keyVersion
          }
          services: {
            blob: { enabled: true, keyType: 'Account' }
            queue: { enabled: true, keyType: 'Account' }
            table: { enabled: true, keyType: 'Account' }
          }
        }
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    isLocalUserEnabled: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: networkEnabled ? 'Disabled' : 'Enabled'
    networkAcls: {
      defaultAction: networkEnabled ? 'Deny' : 'Allow'
      bypass: 'AzureServices'
    }
  }
}

resource storageLock 'Microsoft.Authorization/locks@2020-05-01' = if (!empty(lock)) {
  name: lock.?name ?? 'lock-${name}'
  scope: storageAccount
  properties: {
    level: lock.kind
    notes: 'Holds the data of the service.'
  }
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-01-01' = {
  parent: storageAccount
  name: 'default'
  properties: {
    deleteRetentionPolicy: {
      enabled: true
      days: 7
    }
  }
}

resource deploymentContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-01-01' = {
  parent: blobService
  name: 'deployments'
  properties: { publicAccess: 'None' }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-01-01' existing = {
  parent: storageAccount
  name: 'default'
}

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2025-01-01' existing = {
  parent: storageAccount
  name: 'default'
}

resource blobDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: blobService
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

resource queueDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: queueService
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

resource tableDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: tableService
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

// The service creates its queues itself, but Event Grid needs this one before the service has run.
resource vaultEventsQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-01-01' = {
  parent: queueService
  name: 'vault-events'
}

// The Functions host stores its locks in blobs, and the platform reads the deployment package from a blob.
resource blobRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storageAccount.id, principalId, 'Storage Blob Data Owner')
  scope: storageAccount
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'b7e6dc6d-f1e8-4753-8033-0f276bb0955b' // Storage Blob Data Owner
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource queueRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storageAccount.id, principalId, 'Storage Queue Data Contributor')
  scope: storageAccount
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '974c5e8b-45b9-4653-ba55-5f855dd0fb88' // Storage Queue Data Contributor
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource tableRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storageAccount.id, principalId, 'Storage Table Data Contributor')
  scope: storageAccount
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3' // Storage Table Data Contributor
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output storageAccountId string = storageAccount.id
output blobEndpoint string = storageAccount.properties.primaryEndpoints.blob
output queueEndpoint string = storageAccount.properties.primaryEndpoints.queue
output tableEndpoint string = storageAccount.properties.primaryEndpoints.table
output deploymentContainerUrl string = '${storageAccount.properties.primaryEndpoints.blob}${deploymentContainer.name}'
