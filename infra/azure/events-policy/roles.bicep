// Permissions of the policy in the service's own resource group. docs/permissions-options.md lists the Azure calls that need each
// permission. None of them allows the policy to assign a role.
param environmentName string
param storageAccountId string
param eventIdentityId string
param principalId string

resource storageAccount 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: split(storageAccountId, '/')[8]
}

resource eventIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: split(eventIdentityId, '/')[8]
}

// Allows the policy to give each topic that it creates the identity with which the topic delivers events.
resource identityOperatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(eventIdentity.id, principalId, 'Managed Identity Operator')
  scope: eventIdentity
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'f1a07417-d97a-45cb-824c-7a7467783830' // Managed Identity Operator
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// Specifying a queue as a destination needs write access to its account:
// https://learn.microsoft.com/azure/event-grid/security-authorization
resource eventDeployerDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Event Deployer')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Event Deployer (${environmentName}, ${subscription().subscriptionId})'
    description: 'Allows the policy for key vault events to specify the queue of the service as their destination.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.Storage/storageAccounts/read'
          'Microsoft.Storage/storageAccounts/write'
          'Microsoft.Storage/storageAccounts/queueServices/queues/read'
        ]
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource eventDeployerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(storageAccount.id, principalId, 'Credential Lifecycle Event Deployer')
  scope: storageAccount
  properties: {
    roleDefinitionId: eventDeployerDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
