// What the service may read in one subscription. docs/permissions.md says for which call.
targetScope = 'subscription'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

// Vaults, and the properties of what is in them. No value of a secret.
resource keyVaultReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subscription().id, principalId, 'Key Vault Reader')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '21090545-7ca7-4776-b22c-e363652d74d2' // Key Vault Reader
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// The built-in roles that may read the first and the last may read everything in the subscription.
resource inventoryReaderDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(subscription().id, environmentName, 'Credential Lifecycle Inventory Reader')
  properties: {
    // Unique in the tenant.
    roleName: 'Credential Lifecycle Inventory Reader (${environmentName}, ${subscription().subscriptionId})'
    description: 'Reads the subscription, its key vaults and the diagnostic settings of its resources.'
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
    assignableScopes: [subscription().id]
  }
}

resource inventoryReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subscription().id, principalId, 'Credential Lifecycle Inventory Reader')
  properties: {
    roleDefinitionId: inventoryReaderDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
