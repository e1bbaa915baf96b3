// Permissions of the service in one resource group, so that its resources load a rotated value. docs/permissions.md lists the
// Azure calls that need each permission.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Existing custom role Rotation Operator, as a resource id. Empty: creates it.')
param rotationOperatorRoleDefinitionId string = ''

// Permits making an app or a named value of API Management load its secret again (PRO). The built-in roles Website Contributor
// and API Management Service Contributor would suffice, but they can also deploy, delete and read secrets. The permission to read
// these resources is in the Dependency Reader role (watch/subscription.bicep).
resource rotationOperatorDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (empty(rotationOperatorRoleDefinitionId)) {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Rotation Operator')
  properties: {
    // Role names must be unique in the tenant.
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
  // The role of an assignment can't change, so another role is another assignment.
  name: guid(
    resourceGroup().id,
    principalId,
    empty(rotationOperatorRoleDefinitionId) ? 'Credential Lifecycle Rotation Operator' : rotationOperatorRoleDefinitionId
  )
  properties: {
    roleDefinitionId: empty(rotationOperatorRoleDefinitionId) ? rotationOperatorDefinition.id : rotationOperatorRoleDefinitionId
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
