// Permissions of the service in one subscription that it monitors. main.bicep deploys it for each one. docs/permissions.md lists
// the Azure calls that need each permission.
targetScope = 'subscription'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Existing custom role Inventory Reader, as a resource id. Empty: creates it.')
param inventoryReaderRoleDefinitionId string = ''

@description('Existing custom role Dependency Reader, as a resource id. Empty: creates it.')
param dependencyReaderRoleDefinitionId string = ''

// Permits reading vaults and the properties of their contents, but not the values of secrets.
resource keyVaultReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subscription().id, principalId, 'Key Vault Reader')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '21090545-7ca7-4776-b22c-e363652d74d2' // Key Vault Reader
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// A custom role, because the built-in roles that can read subscriptions or diagnostic settings can read everything in the
// subscription.
resource inventoryReaderDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (empty(inventoryReaderRoleDefinitionId)) {
  name: guid(subscription().id, environmentName, 'Credential Lifecycle Inventory Reader')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Inventory Reader (${environmentName}, ${subscription().subscriptionId})'
    description: 'Reads the subscription, its key vaults and the diagnostic settings of its resources.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.Resources/subscriptions/read'
          'Microsoft.KeyVault/vaults/read'
          'Microsoft.Insights/diagnosticSettings/read'
        ]
      }
    ]
    assignableScopes: [subscription().id]
  }
}

resource inventoryReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  // The role of an assignment can't change, so another role is another assignment.
  name: guid(
    subscription().id,
    principalId,
    empty(inventoryReaderRoleDefinitionId) ? 'Credential Lifecycle Inventory Reader' : inventoryReaderRoleDefinitionId
  )
  properties: {
    roleDefinitionId: empty(inventoryReaderRoleDefinitionId) ? inventoryReaderDefinition.id : inventoryReaderRoleDefinitionId
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

// Permits reading the consumers of the vaults, which are the apps and other resources that use their secrets (PRO), but not the
// values of settings and secrets. The built-in role Reader would suffice, but it can read everything in the subscription.
resource dependencyReaderDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (empty(dependencyReaderRoleDefinitionId)) {
  name: guid(subscription().id, environmentName, 'Credential Lifecycle Dependency Reader')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Dependency Reader (${environmentName}, ${subscription().subscriptionId})'
    description: 'Reads the resources that may use key vaults, and who may read which vault.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.ResourceGraph/resources/read'
          'Microsoft.Resources/changes/read'
          'Microsoft.Authorization/roleAssignments/read'
          'Microsoft.Authorization/roleDefinitions/read'
          'Microsoft.Web/sites/read'
          'Microsoft.Web/sites/slots/read'
          'Microsoft.Web/sites/config/read'
          'Microsoft.Web/sites/slots/config/read'
          'Microsoft.Web/certificates/read'
          'Microsoft.Web/connections/read'
          'Microsoft.Logic/workflows/read'
          'Microsoft.App/containerApps/read'
          'Microsoft.App/containerApps/revisions/read'
          'Microsoft.App/containerApps/revisions/replicas/read'
          'Microsoft.App/jobs/read'
          'Microsoft.App/managedEnvironments/certificates/read'
          'Microsoft.ApiManagement/service/read'
          'Microsoft.ApiManagement/service/namedValues/read'
          'Microsoft.ApiManagement/service/certificates/read'
          'Microsoft.Network/applicationGateways/read'
          'Microsoft.Cdn/profiles/read'
          'Microsoft.Cdn/profiles/secrets/read'
          'Microsoft.DataFactory/factories/read'
          'Microsoft.DataFactory/factories/linkedservices/read'
          'Microsoft.AppConfiguration/configurationStores/read'
          'Microsoft.Storage/storageAccounts/read'
          'Microsoft.Sql/servers/read'
          'Microsoft.Sql/servers/encryptionProtector/read'
          'Microsoft.Compute/diskEncryptionSets/read'
          'Microsoft.Compute/virtualMachines/read'
          'Microsoft.Compute/virtualMachines/extensions/read'
          'Microsoft.Compute/virtualMachineScaleSets/read'
          'Microsoft.ContainerService/managedClusters/read'
          'Microsoft.MachineLearningServices/workspaces/read'
          'Microsoft.ManagedIdentity/userAssignedIdentities/read'
          'Microsoft.Insights/metrics/read'
        ]
      }
    ]
    assignableScopes: [subscription().id]
  }
}

resource dependencyReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  // The role of an assignment can't change, so another role is another assignment.
  name: guid(
    subscription().id,
    principalId,
    empty(dependencyReaderRoleDefinitionId) ? 'Credential Lifecycle Dependency Reader' : dependencyReaderRoleDefinitionId
  )
  properties: {
    roleDefinitionId: empty(dependencyReaderRoleDefinitionId) ? dependencyReaderDefinition.id : dependencyReaderRoleDefinitionId
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
