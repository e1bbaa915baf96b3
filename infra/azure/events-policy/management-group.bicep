// An Azure Policy that makes every key vault below a management group send its events to the service. It applies to new vaults
// when they are created. Existing vaults need a remediation, which docs/deploy.md explains: Azure does not evaluate a new policy of
// a management group immediately. docs/permissions.md lists the permissions.
targetScope = 'managementGroup'

@description('The environmentName of the service\'s deployment, at most 20 characters.')
@maxLength(20)
param environmentName string

@description('Region of the identity that the policy deploys with.')
param location string

@description('Storage account of the service, as an id (output SERVICE_STORAGE_ACCOUNT_ID).')
param storageAccountId string

@description('Identity with which topics deliver, as an id (output SERVICE_EVENT_IDENTITY_ID).')
param eventIdentityId string

var policy = loadJsonContent('policy.json')

resource managementGroupPolicy 'Microsoft.Authorization/policyDefinitions@2023-04-01' = {
  name: 'vault-events-${environmentName}'
  properties: {
    policyType: 'Custom'
    mode: 'Indexed'
    displayName: 'Key vaults send their events to Credential Lifecycle (${environmentName})'
    description: 'Creates an Event Grid topic for each key vault, which delivers to the queue of the service with one identity.'
    parameters: policy.parameters
    policyRule: policy.policyRule
  }
}

resource managementGroupPolicyAssignment 'Microsoft.Authorization/policyAssignments@2023-04-01' = {
  name: 'evt-${environmentName}'
  location: location
  identity: { type: 'SystemAssigned' }
  properties: {
    displayName: 'Key vaults send their events to Credential Lifecycle (${environmentName})'
    policyDefinitionId: managementGroupPolicy.id
    parameters: {
      environmentName: { value: environmentName }
      storageAccountId: { value: storageAccountId }
      eventIdentityId: { value: eventIdentityId }
    }
  }
}

// Permits the policy to create Event Grid topics for the vaults.
resource managementGroupTopicsRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(managementGroup().id, managementGroupPolicyAssignment.name, 'EventGrid Contributor')
  properties: {
    roleDefinitionId: tenantResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '1e241071-0855-49ea-94dc-649edcd759de' // EventGrid Contributor
    )
    principalId: managementGroupPolicyAssignment.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

module roles 'roles.bicep' = {
  scope: az.resourceGroup(split(storageAccountId, '/')[2], split(storageAccountId, '/')[4])
  params: {
    environmentName: environmentName
    storageAccountId: storageAccountId
    eventIdentityId: eventIdentityId
    principalId: managementGroupPolicyAssignment.identity.principalId
  }
}
