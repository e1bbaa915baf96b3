// A NAT gateway, so that all calls of the app come from one fixed public address.
param environmentName string
param location string
param tags object

resource publicIpAddress 'Microsoft.Network/publicIPAddresses@2024-07-01' = {
  name: 'pip-${environmentName}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIPAllocationMethod: 'Static' }
}

resource natGateway 'Microsoft.Network/natGateways@2024-07-01' = {
  name: 'ng-${environmentName}'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIpAddresses: [{ id: publicIpAddress.id }] }
}

output natGatewayId string = natGateway.id
output ipAddress string = publicIpAddress.properties.ipAddress
