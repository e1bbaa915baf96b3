// What the service may do in one resource group, so that what is in it takes a rotated value. docs/permissions.md says for which call.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

// What has an app or a named value read its secret again (PRO). Website Contributor and API Management Service Contributor would
// do, but may also deploy, delete and read secrets. It reads nothing: that is what the Dependency Reader may do.
resource rotationOperatorDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Rotation Operator')
  properties: {
    // Unique in the tenant.
    roleName: 'Credential Lifecycle Rotation Operator (${environmentName}, ${subscription().subscriptionId}, ${resourceGroup().name})'
    description: 'Has apps and named values of API Management take the current version of their secrets.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.Web/sites/config/write'
          'Microsoft.Web/sites/slots/config/write'
          'Microsoft.Web/sites/restart/action'
          'Microsoft.Web/sites/slots/restart/action'
          'Microsoft.ApiManagement/service/namedValues/refreshSecret/action'
        ]
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource rotationOperatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(resourceGroup().id, principalId, 'Credential Lifecycle Rotation Operator')
  properties: {
    roleDefinitionId: rotationOperatorDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
