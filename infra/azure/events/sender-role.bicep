// Permits an Event Grid topic to send messages to the queue vault-events of the service, and nothing else.
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

resource topicSenderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vaultEventsQueue.id, principalId, 'Storage Queue Data Message Sender')
  scope: vaultEventsQueue
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a' // Storage Queue Data Message Sender
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
