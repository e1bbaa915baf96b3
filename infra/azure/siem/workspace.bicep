// A table for audit streams in one Log Analytics workspace, and the data collection rule through which the service fills it. See
// docs/siem.md. Deploy it separately to the workspace's resource group, only if you want a stream to Log Analytics.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Region of the workspace.')
param location string

@description('Name of the workspace.')
param workspaceName string

var columns = [
  {
    name: 'TimeGenerated'
    type: 'datetime'
  }
  {
    name: 'OccurredAt'
    type: 'datetime'
  }
  {
    name: 'EventId'
    type: 'string'
  }
  {
    name: 'EventType'
    type: 'string'
  }
  {
    name: 'Sequence'
    type: 'string'
  }
  {
    name: 'StreamId'
    type: 'string'
  }
  {
    name: 'Actor'
    type: 'string'
  }
  {
    name: 'Action'
    type: 'string'
  }
  {
    name: 'Outcome'
    type: 'string'
  }
  {
    name: 'Target'
    type: 'string'
  }
  {
    name: 'Data'
    type: 'string'
  }
  {
    name: 'DataPart2'
    type: 'string'
  }
  {
    name: 'DataPart3'
    type: 'string'
  }
]

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-02-01' existing = {
  name: workspaceName
}

resource streamTable 'Microsoft.OperationalInsights/workspaces/tables@2025-02-01' = {
  parent: workspace
  name: 'CredentialLifecycle_CL'
  properties: {
    schema: {
      name: 'CredentialLifecycle_CL'
      columns: columns
    }
  }
}

resource streamEndpoint 'Microsoft.Insights/dataCollectionEndpoints@2023-03-11' = {
  name: 'dce-${environmentName}'
  location: location
  properties: {
    networkAcls: { publicNetworkAccess: 'Enabled' }
  }
}

resource streamRule 'Microsoft.Insights/dataCollectionRules@2023-03-11' = {
  name: 'dcr-${environmentName}'
  location: location
  properties: {
    dataCollectionEndpointId: streamEndpoint.id
    streamDeclarations: {
      'Custom-CredentialLifecycle_CL': { columns: columns }
    }
    destinations: {
      logAnalytics: [
        {
          name: 'workspace'
          workspaceResourceId: workspace.id
        }
      ]
    }
    dataFlows: [
      {
        streams: ['Custom-CredentialLifecycle_CL']
        destinations: ['workspace']
        outputStream: 'Custom-${streamTable.name}'
        transformKql: 'source'
      }
    ]
  }
}

resource streamRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(streamRule.id, principalId, 'Monitoring Metrics Publisher')
  scope: streamRule
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '3913510d-42f4-4e42-8a64-420c390055eb' // Monitoring Metrics Publisher
    )
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

@description('Member `endpoint` of the stream.')
output STREAM_ENDPOINT string = streamEndpoint.properties.logsIngestion.endpoint
@description('Member `ruleId` of the stream.')
output STREAM_RULE_ID string = streamRule.properties.immutableId
