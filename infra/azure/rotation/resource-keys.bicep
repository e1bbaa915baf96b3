// Permissions of the service in one resource group, so that rotations regenerate the keys of its resources. docs/rotation-key-roles.md
// says what each permission also allows.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Kinds of keys that the service may read and regenerate, such as storage: the members of key-actions.json.')
@minLength(1)
param kinds string[]

// The actions of each kind are those of the table of kinds in shared/rotation/resource-keys. The template checks compare both.
var actionsByKind = loadJsonContent('key-actions.json')
var actionLists = [
  for kind in kinds: contains(actionsByKind, kind)
    ? actionsByKind[kind]
    : fail('Each of the kinds must be one of docs/rotation-key-roles.md.')
]

// Permits listing and regenerating keys (PRO). No built-in role suits all kinds: Storage Account Key Operator Service
// Role, for example, can't read the accounts, and most others can also change the resource.
resource keyRotatorDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Key Rotator')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Key Rotator (${environmentName}, ${subscription().subscriptionId}, ${resourceGroup().name})'
    description: 'Lists and regenerates keys of Azure resources.'
    type: 'CustomRole'
    permissions: [
      {
        // Two kinds can need the same action. The union has each action once.
        actions: union(flatten(actionLists), [])
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource keyRotatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(resourceGroup().id, principalId, 'Credential Lifecycle Key Rotator')
  properties: {
    roleDefinitionId: keyRotatorDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
