// The system topic for Resource Manager events of a subscription. Event Grid allows only one topic per source.
param environmentName string
param tags object
param storageAccountId string
param eventIdentityId string

resource topic 'Microsoft.EventGrid/systemTopics@2025-02-15' = {
  name: 'evgt-${environmentName}'
  location: 'global'
  tags: tags
  // Only a topic with an identity passes a storage firewall:
  // https://learn.microsoft.com/azure/event-grid/handler-storage-queues
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${eventIdentityId}': {} }
  }
  properties: {
    source: subscription().id
    topicType: 'Microsoft.Resources.Subscriptions'
  }
}

// Drops events that can't be delivered within a day: a scan has found the changes by then.
resource eventSubscription 'Microsoft.EventGrid/systemTopics/eventSubscriptions@2025-02-15' = {
  parent: topic
  name: 'lifecycle-${environmentName}'
  properties: {
    deliveryWithResourceIdentity: {
      identity: {
        type: 'UserAssigned'
        userAssignedIdentity: eventIdentityId
      }
      destination: {
        endpointType: 'StorageQueue'
        properties: {
          resourceId: storageAccountId
          queueName: 'vault-events'
          queueMessageTimeToLiveInSeconds: 86400
        }
      }
    }
    eventDeliverySchema: 'CloudEventSchemaV1_0'
    retryPolicy: {
      maxDeliveryAttempts: 30
      eventTimeToLiveInMinutes: 1440
    }
    filter: {
      includedEventTypes: [
        'Microsoft.Resources.ResourceWriteSuccess'
        'Microsoft.Resources.ResourceDeleteSuccess'
      ]
      advancedFilters: [
        {
          operatorType: 'StringIn'
          key: 'data.operationName'
          values: ['Microsoft.KeyVault/vaults/write', 'Microsoft.KeyVault/vaults/delete']
        }
      ]
    }
  }
}
