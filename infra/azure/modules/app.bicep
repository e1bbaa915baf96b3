// The function app on Flex Consumption, and its settings (shared/platform/config/config.ts).
param environmentName string
param suffix string
param location string
param tags object
param identityId string
param identityClientId string
param blobEndpoint string
param queueEndpoint string
param tableEndpoint string
param deploymentContainerUrl string
param vaultName string
param applicationInsightsConnectionString string
param mailEnabled bool
param communicationEndpoint string
param alertSenderAddress string
param alertOwnerDomains string
param mailPerMinute string
param mailPerHour string
param appConfigurationEnabled bool
param appConfigurationEndpoint string
param allowedIpRanges string[]
param appPublicNetworkAccessEnabled bool
param zoneRedundant bool
param diagnosticSettingsEnabled bool
param logAnalyticsWorkspaceId string
param networkEnabled bool
param functionSubnetId string
param natGatewayCreated bool
param ipAddress string
param watchedSubscriptionIds string[]
param bootstrapAdminUsername string
param deployerObjectId string
param operatorEmailAddresses string[]
param instanceMemoryMb int
param maximumInstanceCount int
param alwaysReadyInstances int
param nodeVersion string
param licenseSecretName string
param entraApiClientId string
param entraApiScope string
param furtherEntraTenantIds string[]
param publicBaseUrl string
param logAnalyticsWorkspaceIds string[]
param telemetryEndpoint string
param telemetryHeadersSecretName string
param additionalSettings object
param privateTargetHosts string
param handoverKeyVaultUrl string
param literalScanSubscriptionIds string[]
param acmeDnsZoneIds string[]

var name = 'func-${environmentName}-${suffix}'

// Domains and zones of each cloud.
var cloud = loadJsonContent('../clouds.json')[environment().name]
var serviceUrl = 'https://${name}.${cloud.appDomain}'

resource vault 'Microsoft.KeyVault/vaults@2026-02-01' existing = {
  name: vaultName
}

resource plan 'Microsoft.Web/serverfarms@2024-11-01' = {
  name: 'plan-${environmentName}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    tier: 'FlexConsumption'
    name: 'FC1'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

// The service calls Azure with the user-assigned identity. The platform uses the app's system-assigned identity only to read the
// secrets that app settings refer to.
resource functionApp 'Microsoft.Web/sites@2024-11-01' = {
  name: name
  location: location
  tags: union(tags, { 'azd-service-name': 'api' })
  kind: 'functionapp,linux'
  identity: {
    type: 'SystemAssigned, UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    publicNetworkAccess: appPublicNetworkAccessEnabled ? 'Enabled' : 'Disabled'
    virtualNetworkSubnetId: networkEnabled ? functionSubnetId : null
    siteConfig: {
      minTlsVersion: '1.2'
      ipSecurityRestrictionsDefaultAction: empty(allowedIpRanges) ? 'Allow' : 'Deny'
      ipSecurityRestrictions: [
        for (range, index) in allowedIpRanges: {
          name: 'allowed-${index}'
          ipAddress: range
          action: 'Allow'
          priority: 100 + index
        }
      ]
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: deploymentContainerUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'node'
        version: nodeVersion
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMb
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReadyInstances == 0 ? [] : [{ name: 'http', instanceCount: alwaysReadyInstances }]
      }
    }
  }
}

resource appDiagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (diagnosticSettingsEnabled) {
  name: 'all-logs'
  scope: functionApp
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

resource publishingPolicy 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-11-01' = {
  parent: functionApp
  name: 'scm'
  properties: { allow: false }
}

resource vaultReferenceRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, functionApp.id, 'Key Vault Secrets User')
  scope: vault
  properties: {
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      '4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User
    )
    principalId: functionApp.identity.principalId
    principalType: 'ServicePrincipal'
  }
}

resource appSettings 'Microsoft.Web/sites/config@2024-11-01' = {
  parent: functionApp
  name: 'appsettings'
  properties: union(
    additionalSettings,
    {
      // Two limits of the C library's memory allocator. Without them, it keeps freed memory of its threads: a tenth of the memory of
      // an instance with 512 MB (BENCHMARKS.md).
      MALLOC_ARENA_MAX: '2'
      MALLOC_TRIM_THRESHOLD_: '131072'
      AzureWebJobsStorage__blobServiceUri: blobEndpoint
      AzureWebJobsStorage__queueServiceUri: queueEndpoint
      AzureWebJobsStorage__tableServiceUri: tableEndpoint
      AzureWebJobsStorage__credential: 'managedidentity'
      AzureWebJobsStorage__clientId: identityClientId
      APPLICATIONINSIGHTS_CONNECTION_STRING: applicationInsightsConnectionString
      APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
      AZURE_CLOUD: environment().name
      AZURE_TENANT_ID: subscription().tenantId
      AZURE_CLIENT_ID: identityClientId
      AZURE_SUBSCRIPTION_IDS: join(watchedSubscriptionIds, ',')
      WATCH_ALL: empty(join(watchedSubscriptionIds, ',')) ? 'true' : 'false'
      SERVICE_KEY_VAULT_URL: vault.properties.vaultUri
      PUBLIC_BASE_URL: empty(publicBaseUrl) ? serviceUrl : publicBaseUrl
      JWT_SIGNING_KEYS: '@Microsoft.KeyVault(SecretUri=${vault.properties.vaultUri}secrets/jwt-signing-keys)'
      AUDIT_SIGNING_KEYS: '@Microsoft.KeyVault(SecretUri=${vault.properties.vaultUri}secrets/audit-signing-keys)'
      DEPLOYER_OBJECT_ID: deployerObjectId
      OPERATOR_ADDRESSES_SET: empty(operatorEmailAddresses) ? 'false' : 'true'
      SERVICE_KEY_VAULT_ID: vault.id
      BOOTSTRAP_ADMIN_USERNAME: bootstrapAdminUsername
      BOOTSTRAP_ADMIN_PASSWORD: '@Microsoft.KeyVault(SecretUri=${vault.properties.vaultUri}secrets/bootstrap-admin-password)'
    },
    mailEnabled
      ? {
          COMMUNICATION_ENDPOINT: communicationEndpoint
          ALERT_SENDER_ADDRESS: alertSenderAddress
        }
      : {},
    empty(alertOwnerDomains) ? {} : { ALERT_OWNER_DOMAINS: alertOwnerDomains },
    empty(mailPerMinute) ? {} : { MAIL_PER_MINUTE: mailPerMinute },
    empty(mailPerHour) ? {} : { MAIL_PER_HOUR: mailPerHour },
    appConfigurationEnabled ? { APP_CONFIGURATION_ENDPOINT: appConfigurationEndpoint } : {},
    empty(licenseSecretName)
      ? {}
      : { LICENSE_KEY: '@Microsoft.KeyVault(SecretUri=${vault.properties.vaultUri}secrets/${licenseSecretName})' },
    empty(entraApiClientId)
      ? {}
      : {
          ENTRA_API_CLIENT_ID: entraApiClientId
          ENTRA_TENANT_IDS: join(concat([subscription().tenantId], furtherEntraTenantIds), ',')
        },
    empty(entraApiScope) ? {} : { ENTRA_API_SCOPE: entraApiScope },
    empty(logAnalyticsWorkspaceIds) ? {} : { LOG_ANALYTICS_WORKSPACE_IDS: join(logAnalyticsWorkspaceIds, ',') },
    empty(telemetryEndpoint) ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT: telemetryEndpoint },
    empty(telemetryHeadersSecretName)
      ? {}
      : {
          OTEL_EXPORTER_OTLP_HEADERS: '@Microsoft.KeyVault(SecretUri=${vault.properties.vaultUri}secrets/${telemetryHeadersSecretName})'
        },
    natGatewayCreated ? { OUTBOUND_IP_ADDRESS: ipAddress } : {},
    networkEnabled && !natGatewayCreated ? { OUTBOUND_SUBNET_ID: functionSubnetId } : {},
    empty(privateTargetHosts) ? {} : { PRIVATE_TARGET_HOSTS: privateTargetHosts },
    empty(handoverKeyVaultUrl) ? {} : { HANDOVER_KEY_VAULT_URL: handoverKeyVaultUrl },
    empty(literalScanSubscriptionIds) ? {} : { DEPENDENCY_LITERAL_SCAN: 'true' },
    empty(acmeDnsZoneIds) ? {} : { ACME_DNS_ZONE_IDS: join(acmeDnsZoneIds, ',') }
  )
  dependsOn: [vaultReferenceRole]
}

output functionAppId string = functionApp.id
output functionAppName string = functionApp.name
output serviceUrl string = serviceUrl
