// Permissions of the service in one subscription to find settings of apps whose value is a copy of a secret in a vault.
// docs/permissions.md lists the Azure calls that need each permission.
targetScope = 'subscription'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Existing custom role Literal Scanner, as a resource id. Empty: creates it.')
param literalScannerRoleDefinitionId string = ''

// Permits reading the values of the secrets of every vault that uses Azure RBAC.
resource secretsUserRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subscription().id, principalId, 'Key Vault Secrets User')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// Permits reading the settings of apps with their values (PRO). The built-in roles Website Contributor and Container Apps
// Contributor would suffice, but they can also change and deploy apps.
resource literalScannerDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (empty(literalScannerRoleDefinitionId)) {
  name: guid(subscription().id, environmentName, 'Credential Lifecycle Literal Scanner')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Literal Scanner (${environmentName}, ${subscription().subscriptionId})'
    description: 'Lists the settings of web apps, function apps, Container Apps and jobs with their values.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.Web/sites/config/list/action'
          'Microsoft.Web/sites/slots/config/list/action'
          'Microsoft.App/containerApps/listSecrets/action'
          'Microsoft.App/jobs/listSecrets/action'
        ]
      }
    ]
    assignableScopes: [subscription().id]
  }
}

resource literalScannerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  // The role of an assignment can't change, so another role is another assignment.
  name: guid(
    subscription().id,
    principalId,
    empty(literalScannerRoleDefinitionId) ? 'Credential Lifecycle Literal Scanner' : literalScannerRoleDefinitionId
  )
  properties: {
    roleDefinitionId: empty(literalScannerRoleDefinitionId) ? literalScannerDefinition.id : literalScannerRoleDefinitionId
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
