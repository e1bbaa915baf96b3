// A private endpoint and its DNS record for each service that the app uses.
param environmentName string
param location string
param tags object
param virtualNetworkId string
param subnetId string
param privateDnsZonesEnabled bool
param privateDnsZoneResourceIds object
param storageAccountId string
param vaultId string
param appConfigurationEnabled bool
param appConfigurationId string

// Domains and zones of each cloud.
var cloud = loadJsonContent('../clouds.json')[environment().name]

// Group ids and zones: https://learn.microsoft.com/azure/private-link/private-endpoint-dns
var endpoints = concat(
  [
    { groupId: 'blob', resourceId: storageAccountId, zone: 'privatelink.blob.${cloud.storageDomain}' }
    { groupId: 'table', resourceId: storageAccountId, zone: 'privatelink.table.${cloud.storageDomain}' }
    { groupId: 'queue', resourceId: storageAccountId, zone: 'privatelink.queue.${cloud.storageDomain}' }
    { groupId: 'vault', resourceId: vaultId, zone: cloud.vaultZone }
  ],
  appConfigurationEnabled
    ? [{ groupId: 'configurationStores', resourceId: appConfigurationId, zone: cloud.appConfigurationZone }]
    : []
)

// Existing zones belong to another team, which also links them.
var zonesCreated = privateDnsZonesEnabled && empty(privateDnsZoneResourceIds)

resource privateDnsZone 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for endpoint in endpoints: if (zonesCreated) {
    name: endpoint.zone
    location: 'global'
    tags: tags
  }
]

// A monitored vault or another store with a private endpoint elsewhere has no record in these zones. Its public address is used
// then (https://learn.microsoft.com/azure/dns/private-dns-fallback).
resource virtualNetworkLink 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (endpoint, index) in endpoints: if (zonesCreated) {
    parent: privateDnsZone[index]
    name: environmentName
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      resolutionPolicy: 'NxDomainRedirect'
      virtualNetwork: { id: virtualNetworkId }
    }
  }
]

resource privateEndpoint 'Microsoft.Network/privateEndpoints@2024-07-01' = [
  for endpoint in endpoints: {
    name: 'pe-${environmentName}-${endpoint.groupId}'
    location: location
    tags: tags
    properties: {
      subnet: { id: subnetId }
      privateLinkServiceConnections: [
        {
          name: endpoint.groupId
          properties: {
            privateLinkServiceId: endpoint.resourceId
            groupIds: [endpoint.groupId]
          }
        }
      ]
    }
  }
]

resource privateDnsZoneGroup 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-07-01' = [
  for (endpoint, index) in endpoints: if (zonesCreated || contains(privateDnsZoneResourceIds, endpoint.groupId)) {
    parent: privateEndpoint[index]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: endpoint.groupId
          properties: {
            privateDnsZoneId: contains(privateDnsZoneResourceIds, endpoint.groupId)
              ? privateDnsZoneResourceIds[endpoint.groupId]
              : privateDnsZone[index].id
          }
        }
      ]
    }
  }
]
