// Permissions of the policy in the service's own resource group. docs/permissions.md lists the Azure calls that
// need each permission.
param environmentName string
param storageAccountId string
param principalId string

resource storageAccount 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: split(storageAccountId, '/')[8]
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-01-01' existing = {
  parent: storageAccount
  name: 'default'
}

resource vaultEventsQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-01-01' existing = {
  parent: queueService
  name: 'vault-events'
}

// Allows each new topic to send to the queue. The condition forbids assigning any other role.
resource policyAccessRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vaultEventsQueue.id, principalId, 'Role Based Access Control Administrator')
  scope: vaultEventsQueue
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'f58310d9-a9f6-439a-9e8d-f62e7b41a168' // Role Based Access Control Administrator
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
    condition: loadTextContent('sender-only.txt')
    conditionVersion: '2.0'
  }
}

// The deployment that assigns that role runs in this resource group, and specifying a queue as a destination needs write access
// to its account: https://learn.microsoft.com/azure/event-grid/security-authorization
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
          'Microsoft.Resources/deployments/read'
          'Microsoft.Resources/deployments/write'
          'Microsoft.Resources/deployments/validate/action'
          'Microsoft.Resources/deployments/operations/read'
          'Microsoft.Resources/deployments/operationStatuses/read'
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
  name: guid(resourceGroup().id, principalId, 'Credential Lifecycle Event Deployer')
  properties: {
    roleDefinitionId: eventDeployerDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
