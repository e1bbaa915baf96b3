// Communication Services, with which the service sends mail from a domain that Azure manages (DoNotReply@….azurecomm.net). The
// service signs in with its identity.
param name string
param tags object
param mailDataLocation string
param diagnosticSettingsEnabled bool
param logAnalyticsWorkspaceId string
param principalId string

resource emailService 'Microsoft.Communication/emailServices@2025-05-01' = {
  name: name
  location: 'global'
  tags: tags
  properties: { dataLocation: mailDataLocation }
}

resource emailDomain 'Microsoft.Communication/emailServices/domains@2025-05-01' = {
  parent: emailService
  name: 'AzureManagedDomain'
  location: 'global'
  tags: tags
  properties: {
    domainManagement: 'AzureManaged'
    userEngagementTracking: 'Disabled'
  }
}

resource communicationService 'Microsoft.Communication/communicationServices@2025-05-01' = {
  name: name
  location: 'global'
  tags: tags
  properties: {
    dataLocation: mailDataLocation
    linkedDomains: [emailDomain.id]
  }
}

resource communicationDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: communicationService
  properties: {
    workspaceId: logAnalyticsWorkspaceId
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
  }
}

// This role permits more than sending mail: the resource supports no custom role, and no built-in role is narrower. The role is
// assigned for this resource only.
resource mailRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(communicationService.id, principalId, 'Communication and Email Service Owner')
  scope: communicationService
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '09976791-48a7-449e-bb21-39d1a415f350' // Communication and Email Service Owner
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output communicationEndpoint string = 'https://${communicationService.properties.hostName}'
output alertSenderAddress string = 'DoNotReply@${emailDomain.properties.mailFromSenderDomain}'
