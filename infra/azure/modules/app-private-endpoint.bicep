// A private endpoint of the app itself, with its DNS record, for callers in your network.
param environmentName string
param location string
param tags object
param virtualNetworkId string
param subnetId string
param privateDnsZonesEnabled bool
param privateDnsZoneResourceIds object
param functionAppId string

// Domains and zones of each cloud.
var cloud = loadJsonContent('../clouds.json')[environment().name]

// An existing zone belongs to another team, which also links it.
var zoneCreated = privateDnsZonesEnabled && empty(privateDnsZoneResourceIds)

// The zone group adds the names of the app and of its deployment site (scm).
resource appPrivateDnsZone 'Microsoft.Network/privateDnsZones@2024-06-01' = if (zoneCreated) {
  name: 'privatelink.${cloud.appDomain}'
  location: 'global'
  tags: tags
}

// The zone has no record of apps with a private endpoint elsewhere. The redirect then uses their public address.
resource appVirtualNetworkLink 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = if (zoneCreated) {
  parent: appPrivateDnsZone
  name: environmentName
  location: 'global'
  tags: tags
  properties: {
    registrationEnabled: false
    resolutionPolicy: 'NxDomainRedirect'
    virtualNetwork: { id: virtualNetworkId }
  }
}

resource appPrivateEndpoint 'Microsoft.Network/privateEndpoints@2024-07-01' = {
  name: 'pe-${environmentName}-sites'
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [
      {
        name: 'sites'
        properties: {
          privateLinkServiceId: functionAppId
          groupIds: ['sites']
        }
      }
    ]
  }
}

resource appPrivateDnsZoneGroup 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-07-01' = if (zoneCreated || contains(privateDnsZoneResourceIds, 'sites')) {
  parent: appPrivateEndpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: 'sites'
        properties: {
          privateDnsZoneId: contains(privateDnsZoneResourceIds, 'sites')
            ? privateDnsZoneResourceIds.sites
            : appPrivateDnsZone.id
        }
      }
    ]
  }
}
