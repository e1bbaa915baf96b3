// The service's own key vault: its signing keys, the first administrator's password, webhook addresses and the
// audit anchor (the hash of the newest audit log digest).
param name string
param location string
param tags object
param lock object
param networkEnabled bool
param principalId string
param logAnalyticsWorkspaceId string

resource vault 'Microsoft.KeyVault/vaults@2026-02-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: subscription().tenantId
    sku: {
      family: 'A'
      name: 'standard'
    }
    enableRbacAuthorization: true
    enableSoftDelete: true
    softDeleteRetentionInDays: 90
    enablePurgeProtection: true
    publicNetworkAccess: networkEnabled ? 'Disabled' : 'Enabled'
    networkAcls: {
      defaultAction: networkEnabled ? 'Deny' : 'Allow'
      bypass: 'AzureServices'
    }
  }
}

resource vaultLock 'Microsoft.Authorization/locks@2020-05-01' = if (!empty(lock)) {
  name: lock.?name ?? 'lock-${name}'
  scope: vault
  properties: {
    level: lock.kind
    notes: 'Holds the keys with which the service signs its data.'
  }
}

resource vaultRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, principalId, 'Key Vault Secrets Officer')
  scope: vault
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'b86a8fe4-44ce-4948-aee5-eccb2c155cd7' // Key Vault Secrets Officer
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// Logs of reads and writes of the service's own secrets.
resource vaultDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'audit'
  scope: vault
  properties: {
    workspaceId: logAnalyticsWorkspaceId
    logs: [
      {
        category: 'AuditEvent'
        enabled: true
      }
    ]
  }
}

output vaultId string = vault.id
output vaultName string = vault.name
