// Permissions of the service in one key vault, so that it rotates the vault's keys and changes their rotation policies (PRO).
// docs/key-rotation.md says what each permission also allows. The vault must use Azure roles, not access policies. Deploy it
// separately to the vault's resource group.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Name of the vault.')
param keyVaultName string

resource keyVault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {
  name: keyVaultName
}

// The built-in role Key Vault Crypto Officer would suffice, but it can also delete keys, and decrypt and sign with them.
resource vaultKeyRotatorDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(keyVault.id, environmentName, 'Credential Lifecycle Vault Key Rotator')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Vault Key Rotator (${environmentName}, ${keyVaultName})'
    description: 'Rotates keys of a key vault and changes their rotation policies.'
    type: 'CustomRole'
    permissions: [
      {
        dataActions: [
          'Microsoft.KeyVault/vaults/keys/read'
          'Microsoft.KeyVault/vaults/keys/rotate/action'
          'Microsoft.KeyVault/vaults/keyrotationpolicies/read'
          'Microsoft.KeyVault/vaults/keyrotationpolicies/write'
        ]
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource vaultKeyRotatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(keyVault.id, principalId, 'Credential Lifecycle Vault Key Rotator')
  scope: keyVault
  properties: {
    roleDefinitionId: vaultKeyRotatorDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
