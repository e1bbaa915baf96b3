// The identity with which every Event Grid topic of this service delivers events. One identity for all topics needs one role
// assignment, and a policy that creates topics can use it without the right to assign roles.
param name string
param location string
param tags object
param storageAccountName string

resource eventIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: name
  location: location
  tags: tags
}

resource storageAccount 'Microsoft.Storage/storageAccounts@2025-01-01' existing = {
  name: storageAccountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-01-01' existing = {
  parent: storageAccount
  name: 'default'
}

resource vaultEventsQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-01-01' existing = {
  parent: queueService
  name: 'vault-events'
}

// Permits the topics to send messages to this one queue, and nothing else.
resource topicSenderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vaultEventsQueue.id, eventIdentity.id, 'Storage Queue Data Message Sender')
  scope: vaultEventsQueue
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a' // Storage Queue Data Message Sender
    )
    principalId: eventIdentity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

output eventIdentityId string = eventIdentity.id
