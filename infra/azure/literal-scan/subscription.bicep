// What the service may read in one subscription to find copies of secrets in settings. docs/permissions.md says for which call.
targetScope = 'subscription'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

// The values of the secrets of every vault that goes by roles.
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

// The settings of apps with their values (PRO). Website Contributor and Container Apps Contributor would do, but may also
// change and deploy them.
resource literalScannerDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(subscription().id, environmentName, 'Credential Lifecycle Literal Scanner')
  properties: {
    // Unique in the tenant.
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
  name: guid(subscription().id, principalId, 'Credential Lifecycle Literal Scanner')
  properties: {
    roleDefinitionId: literalScannerDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
