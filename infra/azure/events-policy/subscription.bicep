// An Azure Policy that makes every key vault of a subscription, existing and future, send its events to the service.
// docs/permissions.md lists the permissions.
targetScope = 'subscription'

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

resource subscriptionPolicy 'Microsoft.Authorization/policyDefinitions@2023-04-01' = {
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

resource subscriptionPolicyAssignment 'Microsoft.Authorization/policyAssignments@2023-04-01' = {
  name: 'evt-${environmentName}'
  location: location
  identity: { type: 'SystemAssigned' }
  properties: {
    displayName: 'Key vaults send their events to Credential Lifecycle (${environmentName})'
    policyDefinitionId: subscriptionPolicy.id
    parameters: {
      environmentName: { value: environmentName }
      storageAccountId: { value: storageAccountId }
      eventIdentityId: { value: eventIdentityId }
    }
  }
}

// Permits the policy to create Event Grid topics for the vaults.
resource subscriptionTopicsRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(subscription().id, subscriptionPolicyAssignment.name, 'EventGrid Contributor')
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '1e241071-0855-49ea-94dc-649edcd759de' // EventGrid Contributor
    )
    principalId: subscriptionPolicyAssignment.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

module roles 'roles.bicep' = {
  scope: az.resourceGroup(split(storageAccountId, '/')[2], split(storageAccountId, '/')[4])
  params: {
    environmentName: environmentName
    storageAccountId: storageAccountId
    eventIdentityId: eventIdentityId
    principalId: subscriptionPolicyAssignment.identity.principalId
  }
}

// Remediates existing vaults. The policy covers future vaults when they are created.
resource subscriptionPolicyRemediation 'Microsoft.PolicyInsights/remediations@2024-10-01' = {
  name: 'evt-${environmentName}'
  properties: {
    policyAssignmentId: subscriptionPolicyAssignment.id
    resourceDiscoveryMode: 'ReEvaluateCompliance'
  }
  dependsOn: [subscriptionTopicsRole, roles]
}
