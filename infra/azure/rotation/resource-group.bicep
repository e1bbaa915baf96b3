// Permissions of the service in one resource group, so that its resources load a rotated value. docs/permissions.md lists the
// call for each.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

// Makes an app or a named value reload its secret (PRO). Website Contributor and API Management Service Contributor would
// suffice, but can also deploy, delete and read secrets. Reading is left to the Dependency Reader role.
resource rotationOperatorDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Rotation Operator')
  properties: {
    // Role names are unique in the tenant.
    roleName: 'Credential Lifecycle Rotation Operator (${environmentName}, ${subscription().subscriptionId}, ${resourceGroup().name})'
    description: 'Makes apps and named values of API Management load the current version of their secrets.'
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
