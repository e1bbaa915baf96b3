// A virtual network with one subnet for the app's instances and one for private endpoints.
param environmentName string
param location string
param tags object
param networkAddressPrefix string
// Empty: no NAT gateway.
param natGatewayId string
param diagnosticSettingsEnabled bool
param logAnalyticsWorkspaceId string

resource virtualNetwork 'Microsoft.Network/virtualNetworks@2024-07-01' = {
  name: 'vnet-${environmentName}'
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [networkAddressPrefix] }
  }
}

// The group has no rules of its own: Azure's default rules allow calls inside the network and to the internet, and deny calls from
// the internet.
resource networkSecurityGroup 'Microsoft.Network/networkSecurityGroups@2024-07-01' = {
  name: 'nsg-${environmentName}'
  location: location
  tags: tags
}

resource networkSecurityGroupDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: networkSecurityGroup
  properties: {
    workspaceId: logAnalyticsWorkspaceId
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
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
    networkSecurityGroup: { id: networkSecurityGroup.id }
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
  properties: {
    addressPrefix: cidrSubnet(networkAddressPrefix, 26, 1)
    networkSecurityGroup: { id: networkSecurityGroup.id }
    // Without this policy, private endpoints ignore the security group.
    privateEndpointNetworkPolicies: 'NetworkSecurityGroupEnabled'
  }
  // Azure can change only one subnet of a network at a time.
  dependsOn: [functionSubnet]
}

output virtualNetworkId string = virtualNetwork.id
output functionSubnetId string = functionSubnet.id
output privateEndpointSubnetId string = privateEndpointSubnet.id
