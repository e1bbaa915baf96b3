// What the service may read in every subscription of a management group, later ones too. docs/permissions.md says for which call.
targetScope = 'managementGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

// Vaults, and the properties of what is in them. No value of a secret.
resource keyVaultReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(managementGroup().id, principalId, 'Key Vault Reader')
  properties: {
    roleDefinitionId: tenantResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '21090545-7ca7-4776-b22c-e363652d74d2' // Key Vault Reader
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// The built-in roles that may read the first and the last may read everything in the management group.
resource inventoryReaderDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(managementGroup().id, environmentName, 'Credential Lifecycle Inventory Reader')
  properties: {
    // Unique in the tenant.
    roleName: 'Credential Lifecycle Inventory Reader (${environmentName}, ${managementGroup().name})'
    description: 'Reads the subscriptions, their key vaults and the diagnostic settings of their resources.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.Resources/subscriptions/read'
          'Microsoft.KeyVault/vaults/read'
          'Microsoft.Insights/diagnosticSettings/read'
        ]
      }
    ]
    assignableScopes: [managementGroup().id]
  }
}

resource inventoryReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(managementGroup().id, principalId, 'Credential Lifecycle Inventory Reader')
  properties: {
    roleDefinitionId: inventoryReaderDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
