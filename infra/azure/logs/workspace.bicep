// Permissions of the service in one Log Analytics workspace, to find out who reads the key vaults and which applications sign
// in. docs/permissions.md lists the Azure calls that need each permission. Deploy it separately to the workspace's resource group.
targetScope = 'resourceGroup'

@description('Object id of the identity of the service (output SERVICE_IDENTITY_PRINCIPAL_ID).')
param principalId string
param environmentName string

@description('Name of the workspace.')
param workspaceName string

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-02-01' existing = {
  name: workspaceName
}

// Permits queries of three tables (PRO). The built-in role Log Analytics Data Reader would suffice, but it can read every table
// of the workspace.
resource logReaderDefinition 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, environmentName, 'Credential Lifecycle Log Reader')
  properties: {
    // Role names must be unique in the tenant.
    roleName: 'Credential Lifecycle Log Reader (${environmentName}, ${subscription().subscriptionId}, ${resourceGroup().name})'
    description: 'Queries who reads key vaults and which applications sign in.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.OperationalInsights/workspaces/read'
          'Microsoft.OperationalInsights/workspaces/query/read'
          'Microsoft.OperationalInsights/workspaces/query/AZKVAuditLogs/read'
          'Microsoft.OperationalInsights/workspaces/query/AzureDiagnostics/read'
          'Microsoft.OperationalInsights/workspaces/query/AADServicePrincipalSignInLogs/read'
        ]
      }
    ]
    assignableScopes: [resourceGroup().id]
  }
}

resource logReaderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(workspace.id, principalId, 'Credential Lifecycle Log Reader')
  scope: workspace
  properties: {
    roleDefinitionId: logReaderDefinition.id
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}
