// Permission of the service in one key vault, to create versions of its certificates (PRO). docs/permissions-options.md lists the
// Azure calls that need it.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string

@description('Name of the key vault in this resource group.')
param name string

resource target 'Microsoft.KeyVault/vaults@2026-02-01' existing = {
  name: name
}

// Permits creating, changing and deleting certificates of the vault. It does not permit reading their private keys.
resource certificatesOfficerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: target
  name: guid(target.id, principalId, 'Key Vault Certificates Officer')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      'a4417e6f-fecd-4de8-b567-7b0420556985' // Key Vault Certificates Officer
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
