// Logs and metrics of the service, and a workbook to view them. The service writes them with its identity,
// because local authentication is off.
param environmentName string
param location string
param tags object
param logRetentionDays int
// Empty: creates a workspace.
param logAnalyticsWorkspaceResourceId string
param diagnosticSettingsEnabled bool
param monitoringPublicNetworkAccessEnabled bool
param principalId string

var workspaceId = empty(logAnalyticsWorkspaceResourceId) ? logAnalyticsWorkspace.id : logAnalyticsWorkspaceResourceId

resource logAnalyticsWorkspace 'Microsoft.OperationalInsights/workspaces@2025-02-01' = if (empty(logAnalyticsWorkspaceResourceId)) {
  name: 'log-${environmentName}'
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: logRetentionDays
    publicNetworkAccessForIngestion: monitoringPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'
    publicNetworkAccessForQuery: monitoringPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'
    features: {
      disableLocalAuth: true
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

// Logs each query of the workspace with the person who ran it. For an existing workspace, its owner decides about such logs.
resource workspaceDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled && empty(logAnalyticsWorkspaceResourceId)) {
  name: 'all-logs'
  scope: logAnalyticsWorkspace
  properties: {
    workspaceId: logAnalyticsWorkspace.id
    logs: [
      {
        categoryGroup: 'allLogs'
        enabled: true
      }
    ]
  }
}

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = {
  name: 'appi-${environmentName}'
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspaceId
    DisableLocalAuth: true
    publicNetworkAccessForIngestion: monitoringPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'
    publicNetworkAccessForQuery: monitoringPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'
  }
}

resource telemetryRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(applicationInsights.id, principalId, 'Monitoring Metrics Publisher')
  scope: applicationInsights
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '3913510d-42f4-4e42-8a64-420c390055eb' // Monitoring Metrics Publisher
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(applicationInsights.id, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Credential and Secret Lifecycle Service'
    category: 'workbook'
    sourceId: toLower(applicationInsights.id)
    serializedData: loadTextContent('../workbook.json')
  }
}

output logAnalyticsWorkspaceId string = workspaceId
output applicationInsightsId string = applicationInsights.id
// With local authentication off, this text is only an address and no credential.
output applicationInsightsConnectionString string = applicationInsights.properties.ConnectionString
