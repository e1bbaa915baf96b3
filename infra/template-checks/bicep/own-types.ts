import type { ObjectType, ResourceType, TypedProperty } from "./library.ts";

/**
 * Resource types that @azure/mcp has no schema for in the version that the templates need, with the properties that the
 * templates use. Source: Microsoft's reference of that version, https://learn.microsoft.com/azure/templates/<type>/<version>
 */
const p = (name: string, type: string, flags?: string): TypedProperty =>
  flags === undefined ? { name, type } : { name, type, flags };
const required = (name: string, type: string) => p(name, type, "Required");

function described(name: string, properties: TypedProperty[], objects: Record<string, TypedProperty[]>): ResourceType {
  const body: ObjectType = {
    name,
    properties: [required("name", "string"), p("id", "string", "ReadOnly"), ...properties],
  };
  const named = Object.entries(objects).map(([key, members]): [string, ObjectType] => [
    key,
    { name: key, properties: members },
  ]);
  const tags: ObjectType = { name: "Tags", properties: [], additionalPropertiesType: "string" };
  return { name, bodies: [body], objects: new Map([["Tags", tags], ...named]), variants: new Map() };
}

const LOCATED = [required("location", "string"), p("tags", "Tags")];

export const OWN_TYPES: ResourceType[] = [
  // The newest schema in @azure/mcp 2.0.5 is 2024-11-01, which Azure will retire (api-versions.ts).
  described("Microsoft.KeyVault/vaults@2026-02-01", [...LOCATED, required("properties", "VaultProperties")], {
    VaultProperties: [
      required("tenantId", "string"),
      required("sku", "Sku"),
      p("accessPolicies", "any"),
      p("vaultUri", "string"),
      p("hsmPoolResourceId", "string", "ReadOnly"),
      p("enabledForDeployment", "bool"),
      p("enabledForDiskEncryption", "bool"),
      p("enabledForTemplateDeployment", "bool"),
      p("enableSoftDelete", "bool"),
      { name: "softDeleteRetentionInDays", type: "int", modifiers: "minValue: 7, maxValue: 90" },
      p("enableRbacAuthorization", "bool"),
      p("createMode", "default | recover"),
      p("enablePurgeProtection", "bool"),
      p("networkAcls", "NetworkRuleSet"),
      p("publicNetworkAccess", "Enabled | Disabled | string"),
      p("provisioningState", "string", "ReadOnly"),
      p("privateEndpointConnections", "any", "ReadOnly"),
    ],
    Sku: [required("family", "A"), required("name", "premium | standard")],
    NetworkRuleSet: [
      p("bypass", "AzureServices | None | string"),
      p("defaultAction", "Allow | Deny | string"),
      p("ipRules", "IpRule[]"),
      p("virtualNetworkRules", "VirtualNetworkRule[]"),
    ],
    IpRule: [required("value", "string")],
    VirtualNetworkRule: [required("id", "string"), p("ignoreMissingVnetServiceEndpoint", "bool")],
  }),
  described(
    "Microsoft.Insights/diagnosticSettings@2021-05-01-preview",
    [p("scope", "any"), required("properties", "DiagnosticSettings")],
    {
      DiagnosticSettings: [
        p("workspaceId", "string"),
        p("storageAccountId", "string"),
        p("logAnalyticsDestinationType", "string"),
        p("logs", "LogSettings[]"),
        p("metrics", "MetricSettings[]"),
      ],
      LogSettings: [p("category", "string"), p("categoryGroup", "string"), required("enabled", "bool")],
      MetricSettings: [p("category", "string"), required("enabled", "bool")],
    },
  ),
  described("Microsoft.Insights/actionGroups@2023-01-01", [...LOCATED, p("properties", "ActionGroup")], {
    ActionGroup: [
      { name: "groupShortName", type: "string", flags: "Required", modifiers: "maxLength: 12" },
      required("enabled", "bool"),
      p("emailReceivers", "EmailReceiver[]"),
    ],
    EmailReceiver: [required("name", "string"), required("emailAddress", "string"), p("useCommonAlertSchema", "bool")],
  }),
  described(
    "Microsoft.Insights/scheduledQueryRules@2023-12-01",
    [
      ...LOCATED,
      p("kind", "LogAlert | LogToMetric | EventLogAlert | SimpleLogAlert | string"),
      required("properties", "ScheduledQueryRule"),
    ],
    {
      ScheduledQueryRule: [
        p("displayName", "string"),
        p("description", "string"),
        { name: "severity", type: "int", modifiers: "minValue: 0, maxValue: 4" },
        p("enabled", "bool"),
        p("scopes", "string[]"),
        p("evaluationFrequency", "string"),
        p("windowSize", "string"),
        p("overrideQueryTimeRange", "string"),
        p("autoMitigate", "bool"),
        p("skipQueryValidation", "bool"),
        p("criteria", "Criteria"),
        p("actions", "Actions"),
        p("isLegacyLogAnalyticsRule", "bool", "ReadOnly"),
        p("createdWithApiVersion", "string", "ReadOnly"),
      ],
      Criteria: [p("allOf", "Condition[]")],
      Condition: [
        p("query", "string"),
        p("timeAggregation", "Count | Average | Minimum | Maximum | Total | string"),
        p("metricMeasureColumn", "string"),
        p("resourceIdColumn", "string"),
        p("operator", "Equals | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | string"),
        p("threshold", "int"),
        p("failingPeriods", "FailingPeriods"),
      ],
      FailingPeriods: [p("numberOfEvaluationPeriods", "int"), p("minFailingPeriodsToAlert", "int")],
      Actions: [p("actionGroups", "string[]")],
    },
  ),
  described("Microsoft.Authorization/policyDefinitions@2023-04-01", [p("properties", "PolicyDefinition")], {
    PolicyDefinition: [
      p("displayName", "string"),
      p("description", "string"),
      p("policyType", "BuiltIn | Custom | NotSpecified | Static | string"),
      // Azure's type is string. These are the modes of Azure Resource Manager.
      p("mode", "All | Indexed | string"),
      p("metadata", "any"),
      p("parameters", "any"),
      p("policyRule", "any"),
    ],
  }),
  described(
    "Microsoft.Authorization/policyAssignments@2023-04-01",
    [p("location", "string"), p("identity", "Identity"), p("properties", "PolicyAssignment")],
    {
      Identity: [
        p("type", "None | SystemAssigned | UserAssigned | string"),
        p("principalId", "string", "ReadOnly"),
        p("tenantId", "string", "ReadOnly"),
        p("userAssignedIdentities", "any"),
      ],
      PolicyAssignment: [
        p("displayName", "string"),
        p("description", "string"),
        p("policyDefinitionId", "string"),
        p("parameters", "any"),
        p("enforcementMode", "Default | DoNotEnforce | string"),
        p("metadata", "any"),
        p("notScopes", "string[]"),
        p("nonComplianceMessages", "any"),
        p("scope", "string", "ReadOnly"),
      ],
    },
  ),
  described("Microsoft.Network/privateDnsZones@2024-06-01", LOCATED, {}),
  described(
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01",
    [p("parent", "any"), ...LOCATED, p("properties", "VirtualNetworkLink")],
    {
      VirtualNetworkLink: [
        p("registrationEnabled", "bool"),
        p("resolutionPolicy", "Default | NxDomainRedirect | string"),
        p("virtualNetwork", "SubResource"),
        p("provisioningState", "string", "ReadOnly"),
      ],
      SubResource: [p("id", "string")],
    },
  ),
];
