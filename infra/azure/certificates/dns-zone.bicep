// Permission of the service in one DNS zone, to prove names to certificate authorities (PRO). docs/permissions-options.md lists the
// Azure calls that need it.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string

@description('Name of the DNS zone in this resource group.')
param name string

resource target 'Microsoft.Network/dnsZones@2018-05-01' existing = {
  name: name
}

// Permits changing every record of the zone. No built-in role permits TXT records only.
resource dnsZoneRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: target
  name: guid(target.id, principalId, 'DNS Zone Contributor')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'befefa01-2a29-4197-83a8-272ff33ce314' // DNS Zone Contributor
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
