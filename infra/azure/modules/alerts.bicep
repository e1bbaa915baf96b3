// Alerts operators when the service itself has a problem. docs/operate.md explains how to respond to each alert.
param environmentName string
param location string
param tags object
param applicationInsightsId string
param operatorEmailAddresses string[]

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-${environmentName}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'lifecycle'
    enabled: true
    emailReceivers: [
      for (address, index) in operatorEmailAddresses: {
        name: 'operator-${index}'
        emailAddress: address
        useCommonAlertSchema: true
      }
    ]
  }
}

resource failedScansAlert 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: 'alert-${environmentName}-failed-scans'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'A scan failed or ran out of time'
    severity: 2
    enabled: true
    autoMitigate: true
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    scopes: [applicationInsightsId]
    criteria: {
      allOf: [
        {
          query: loadTextContent('../queries/failed-scans.kql')
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
        }
      ]
    }
    actions: { actionGroups: [actionGroup.id] }
  }
}

resource poisonQueuesAlert 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: 'alert-${environmentName}-poison-queues'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'A message failed for good'
    severity: 2
    enabled: true
    autoMitigate: true
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    scopes: [applicationInsightsId]
    criteria: {
      allOf: [
        {
          query: loadTextContent('../queries/poison-queues.kql')
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
        }
      ]
    }
    actions: { actionGroups: [actionGroup.id] }
  }
}

// The query returns one row with the number of scans, which is 0 if there was no scan. For a service that is younger than a day it
// returns no row, so the alert does not fire. To recognize such a service, the time range is two days, the maximum of Azure Monitor.
resource noScanAlert 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: 'alert-${environmentName}-no-scan'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'No scan has ended for a day'
    severity: 1
    enabled: true
    autoMitigate: true
    evaluationFrequency: 'PT1H'
    windowSize: 'P1D'
    overrideQueryTimeRange: 'P2D'
    scopes: [applicationInsightsId]
    criteria: {
      allOf: [
        {
          query: loadTextContent('../queries/no-scan.kql')
          timeAggregation: 'Total'
          metricMeasureColumn: 'scans'
          operator: 'LessThan'
          threshold: 1
        }
      ]
    }
    actions: { actionGroups: [actionGroup.id] }
  }
}

resource errorsAlert 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = {
  name: 'alert-${environmentName}-errors'
  location: location
  tags: tags
  kind: 'LogAlert'
  properties: {
    displayName: 'Many errors'
    severity: 2
    enabled: true
    autoMitigate: true
    evaluationFrequency: 'PT15M'
    windowSize: 'PT15M'
    scopes: [applicationInsightsId]
    criteria: {
      allOf: [
        {
          query: loadTextContent('../queries/errors.kql')
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 10
        }
      ]
    }
    actions: { actionGroups: [actionGroup.id] }
  }
}
