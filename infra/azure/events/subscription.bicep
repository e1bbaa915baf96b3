// Notifies the service between scans when a key vault of one subscription is written or deleted. docs/deploy.md explains how to
// turn it on.
targetScope = 'subscription'

@description('The environmentName of the service\'s deployment.')
param environmentName string

@description('Region of the resource group. The topic itself has none.')
param location string

param tags object = {}

@description('Storage account of the service, as an id (output SERVICE_STORAGE_ACCOUNT_ID).')
param storageAccountId string

@description('Identity with which topics deliver, as an id (output SERVICE_EVENT_IDENTITY_ID).')
param eventIdentityId string

// Event Grid requires that a topic is in the subscription of its events.
resource eventsGroup 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: 'rg-${environmentName}-events'
  location: location
  tags: tags
}

module events 'topic.bicep' = {
  scope: eventsGroup
  params: {
    environmentName: environmentName
    tags: tags
    storageAccountId: storageAccountId
    eventIdentityId: eventIdentityId
  }
}
