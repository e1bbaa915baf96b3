// A virtual network with one subnet for the app's instances and one for private endpoints.
param name string
param location string
param tags object
param networkAddressPrefix string
// Empty: no NAT gateway.
param natGatewayId string

resource virtualNetwork 'Microsoft.Network/virtualNetworks@2024-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [networkAddressPrefix] }
  }
}

// The subnet of the app's instances:
// https://learn.microsoft.com/azure/azure-functions/flex-consumption-how-to#enable-virtual-network-integration
// The service endpoint lets the firewall of a vault allow the subnet. It hides the public address of calls to vaults, so a subnet
// with a NAT gateway has none: https://learn.microsoft.com/azure/virtual-network/virtual-network-service-endpoints-overview
resource functionSubnet 'Microsoft.Network/virtualNetworks/subnets@2024-07-01' = {
  parent: virtualNetwork
  name: 'functions'
  properties: {
    addressPrefix: cidrSubnet(networkAddressPrefix, 26, 0)
    delegations: [
      {
        name: 'functions'
        properties: { serviceName: 'Microsoft.App/environments' }
      }
    ]
    serviceEndpoints: empty(natGatewayId) ? [{ service: 'Microsoft.KeyVault' }] : []
    natGateway: empty(natGatewayId) ? null : { id: natGatewayId }
  }
}

resource privateEndpointSubnet 'Microsoft.Network/virtualNetworks/subnets@2024-07-01' = {
  parent: virtualNetwork
  name: 'private-endpoints'
  properties: { addressPrefix: cidrSubnet(networkAddressPrefix, 26, 1) }
  // Azure can change only one subnet of a network at a time.
  dependsOn: [functionSubnet]
}

output virtualNetworkId string = virtualNetwork.id
output functionSubnetId string = functionSubnet.id
output privateEndpointSubnetId string = privateEndpointSubnet.id
