import type { ObjectType, ResourceType, TypedProperty } from "./library.ts";

// Resource types for the type library that are maintained here, because the package @azure/mcp (see types.ts) has no schema of
// the version that the templates need.

const property = (name: string, type: string, flags?: string): TypedProperty =>
  flags === undefined ? { name, type } : { name, type, flags };
const required = (name: string, type: string) => property(name, type, "Required");

function resourceType(
  name: string,
  properties: TypedProperty[],
  objects: Record<string, TypedProperty[]>,
): ResourceType {
  const body: ObjectType = {
    name,
    properties: [required("name", "string"), property("id", "string", "ReadOnly"), ...properties],
  };
  const named = Object.entries(objects).map(([key, members]): [string, ObjectType] => [
    key,
    { name: key, properties: members },
  ]);
  const tags: ObjectType = { name: "Tags", properties: [], additionalPropertiesType: "string" };
  return { name, bodies: [body], objects: new Map([["Tags", tags], ...named]), variants: new Map() };
}

const LOCATED = [required("location", "string"), property("tags", "Tags")];

/**
 * The resource types, with the properties that the templates use. Source:
 * https://learn.microsoft.com/azure/templates/<type>/<version>
 */
export const OWN_TYPES: ResourceType[] = [
  // Only named, by the role assignment on it.
  resourceType("Microsoft.Network/dnsZones@2018-05-01", LOCATED, {}),
  // The newest schema in @azure/mcp 2.0.5 is 2024-11-01, which Azure will retire (api-versions.ts).
  resourceType("Microsoft.KeyVault/vaults@2026-02-01", [...LOCATED, required("properties", "VaultProperties")], {
    VaultProperties: [
      required("tenantId", "string"),
      required("sku", "Sku"),
      property("accessPolicies", "any"),
      property("vaultUri", "string"),
      property("hsmPoolResourceId", "string", "ReadOnly"),
      property("enabledForDeployment", "bool"),
      property("enabledForDiskEncryption", "bool"),
      property("enabledForTemplateDeployment", "bool"),
      property("enableSoftDelete", "bool"),
      { name: "softDeleteRetentionInDays", type: "int", modifiers: "minValue: 7, maxValue: 90" },
      property("enableRbacAuthorization", "bool"),
      property("createMode", "default | recover"),
      property("enablePurgeProtection", "bool"),
      property("networkAcls", "NetworkRuleSet"),
      property("publicNetworkAccess", "Enabled | Disabled | string"),
      property("provisioningState", "string", "ReadOnly"),
      property("privateEndpointConnections", "any", "ReadOnly"),
    ],
    Sku: [required("family", "A"), required("name", "premium | standard")],
    NetworkRuleSet: [
      property("bypass", "AzureServices | None | string"),
      property("defaultAction", "Allow | Deny | string"),
      property("ipRules", "IpRule[]"),
      property("virtualNetworkRules", "VirtualNetworkRule[]"),
    ],
    IpRule: [required("value", "string")],
    VirtualNetworkRule: [required("id", "string"), property("ignoreMissingVnetServiceEndpoint", "bool")],
  }),
  resourceType("Microsoft.Authorization/locks@2020-05-01", [property("scope", "any"), required("properties", "Lock")], {
    Lock: [
      required("level", "CanNotDelete | NotSpecified | ReadOnly | string"),
      property("notes", "string"),
      property("owners", "any"),
    ],
  }),
  resourceType(
    "Microsoft.Insights/diagnosticSettings@2021-05-01-preview",
    [property("scope", "any"), required("properties", "DiagnosticSettings")],
    {
      DiagnosticSettings: [
        property("workspaceId", "string"),
        property("storageAccountId", "string"),
        property("logAnalyticsDestinationType", "string"),
        property("logs", "LogSettings[]"),
        property("metrics", "MetricSettings[]"),
      ],
      LogSettings: [property("category", "string"), property("categoryGroup", "string"), required("enabled", "bool")],
      MetricSettings: [property("category", "string"), required("enabled", "bool")],
    },
  ),
  resourceType("Microsoft.Insights/actionGroups@2023-01-01", [...LOCATED, property("properties", "ActionGroup")], {
    ActionGroup: [
      { name: "groupShortName", type: "string", flags: "Required", modifiers: "maxLength: 12" },
      required("enabled", "bool"),
      property("emailReceivers", "EmailReceiver[]"),
    ],
    EmailReceiver: [
      required("name", "string"),
      required("emailAddress", "string"),
      property("useCommonAlertSchema", "bool"),
    ],
  }),
  resourceType(
    "Microsoft.Insights/scheduledQueryRules@2023-12-01",
    [
      ...LOCATED,
      property("kind", "LogAlert | LogToMetric | EventLogAlert | SimpleLogAlert | string"),
      required("properties", "ScheduledQueryRule"),
    ],
    {
      ScheduledQueryRule: [
        property("displayName", "string"),
        property("description", "string"),
        { name: "severity", type: "int", modifiers: "minValue: 0, maxValue: 4" },
        property("enabled", "bool"),
        property("scopes", "string[]"),
        property("evaluationFrequency", "string"),
        property("windowSize", "string"),
        property("overrideQueryTimeRange", "string"),
        property("autoMitigate", "bool"),
        property("skipQueryValidation", "bool"),
        property("criteria", "Criteria"),
        property("actions", "Actions"),
        property("isLegacyLogAnalyticsRule", "bool", "ReadOnly"),
        property("createdWithApiVersion", "string", "ReadOnly"),
      ],
      Criteria: [property("allOf", "Condition[]")],
      Condition: [
        property("query", "string"),
        property("timeAggregation", "Count | Average | Minimum | Maximum | Total | string"),
        property("metricMeasureColumn", "string"),
        property("resourceIdColumn", "string"),
        property("operator", "Equals | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | string"),
        property("threshold", "int"),
        property("failingPeriods", "FailingPeriods"),
      ],
      FailingPeriods: [property("numberOfEvaluationPeriods", "int"), property("minFailingPeriodsToAlert", "int")],
      Actions: [property("actionGroups", "string[]")],
    },
  ),
  resourceType("Microsoft.Authorization/policyDefinitions@2023-04-01", [property("properties", "PolicyDefinition")], {
    PolicyDefinition: [
      property("displayName", "string"),
      property("description", "string"),
      property("policyType", "BuiltIn | Custom | NotSpecified | Static | string"),
      // Azure's type is string. These are the modes of Azure Resource Manager.
      property("mode", "All | Indexed | string"),
      property("metadata", "any"),
      property("parameters", "any"),
      property("policyRule", "any"),
    ],
  }),
  resourceType(
    "Microsoft.Authorization/policyAssignments@2023-04-01",
    [property("location", "string"), property("identity", "Identity"), property("properties", "PolicyAssignment")],
    {
      Identity: [
        property("type", "None | SystemAssigned | UserAssigned | string"),
        property("principalId", "string", "ReadOnly"),
        property("tenantId", "string", "ReadOnly"),
        property("userAssignedIdentities", "any"),
      ],
      PolicyAssignment: [
        property("displayName", "string"),
        property("description", "string"),
        property("policyDefinitionId", "string"),
        property("parameters", "any"),
        property("enforcementMode", "Default | DoNotEnforce | string"),
        property("metadata", "any"),
        property("notScopes", "string[]"),
        property("nonComplianceMessages", "any"),
        property("scope", "string", "ReadOnly"),
      ],
    },
  ),
  resourceType("Microsoft.Network/privateDnsZones@2024-06-01", LOCATED, {}),
  resourceType(
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01",
    [property("parent", "any"), ...LOCATED, property("properties", "VirtualNetworkLink")],
    {
      VirtualNetworkLink: [
        property("registrationEnabled", "bool"),
        property("resolutionPolicy", "Default | NxDomainRedirect | string"),
        property("virtualNetwork", "SubResource"),
        property("provisioningState", "string", "ReadOnly"),
      ],
      SubResource: [property("id", "string")],
    },
  ),
  // @azure/mcp has no schema of data collection.
  resourceType(
    "Microsoft.Insights/dataCollectionEndpoints@2023-03-11",
    [...LOCATED, property("kind", "Linux | Windows | string"), required("properties", "EndpointProperties")],
    {
      EndpointProperties: [
        property("description", "string"),
        property("immutableId", "string"),
        property("logsIngestion", "LogsIngestion", "ReadOnly"),
        property("networkAcls", "NetworkAcls"),
      ],
      LogsIngestion: [property("endpoint", "string", "ReadOnly")],
      NetworkAcls: [property("publicNetworkAccess", "Disabled | Enabled | SecuredByPerimeter | string")],
    },
  ),
  resourceType(
    "Microsoft.Insights/dataCollectionRules@2023-03-11",
    [...LOCATED, property("kind", "Linux | Windows | string"), required("properties", "RuleProperties")],
    {
      RuleProperties: [
        property("description", "string"),
        property("immutableId", "string", "ReadOnly"),
        property("dataCollectionEndpointId", "string"),
        property("streamDeclarations", "any"),
        property("dataSources", "any"),
        property("destinations", "Destinations"),
        property("dataFlows", "DataFlow[]"),
      ],
      Destinations: [property("logAnalytics", "LogAnalytics[]"), property("azureMonitorMetrics", "any")],
      LogAnalytics: [property("name", "string"), property("workspaceResourceId", "string")],
      DataFlow: [
        property("streams", "string[]"),
        property("destinations", "string[]"),
        property("outputStream", "string"),
        property("transformKql", "string"),
      ],
    },
  ),
];
