/** A resource type that the simulated Azure Resource Manager supports. */
export interface ResourceType {
  /** The type in Azure's spelling. */
  type: string;
  /** Base of the operation names, such as `arm.getSite` and `arm.listSites`. */
  noun: string;
  /** Accepted API versions. */
  versions: readonly string[];
  /**
   * Whether the table `resources` of Resource Graph contains the type:
   * https://learn.microsoft.com/azure/governance/resource-graph/reference/supported-tables-resources
   */
  graph: boolean;
}

export const WEB_VERSIONS = [
  "2022-03-01",
  "2022-09-01",
  "2023-01-01",
  "2023-12-01",
  "2024-04-01",
  "2024-11-01",
  "2025-03-01",
  "2025-05-01",
];
export const APP_VERSIONS = ["2023-05-01", "2024-03-01", "2025-01-01", "2025-07-01"];
export const API_MANAGEMENT_VERSIONS = ["2022-08-01", "2024-05-01"];
const NETWORK_VERSIONS = ["2023-09-01", "2023-11-01", "2024-01-01", "2024-05-01", "2024-07-01"];
const CDN_VERSIONS = ["2023-05-01", "2024-02-01", "2024-09-01", "2025-04-15"];
const COMPUTE_VERSIONS = ["2023-03-01", "2023-09-01", "2024-03-01", "2024-07-01", "2024-11-01"];
const DISK_VERSIONS = ["2023-04-02", "2024-03-02", "2025-01-02"];
const REDIS_ENTERPRISE_VERSIONS = ["2024-10-01", "2025-04-01", "2025-07-01"];
/** Nouns of the entities of a namespace, for names of operations. */
const ENTITY_NOUNS: Record<string, string> = { queues: "Queue", topics: "Topic", eventhubs: "Hub" };
const SQL_VERSIONS = ["2021-11-01", "2023-08-01"];

const supportedType = (type: string, noun: string, versions: readonly string[], graph = true): ResourceType => ({
  type,
  noun,
  versions,
  graph,
});

const TYPES = [
  supportedType("Microsoft.Web/sites", "Site", WEB_VERSIONS),
  supportedType("Microsoft.Web/sites/slots", "Slot", WEB_VERSIONS),
  supportedType("Microsoft.Web/certificates", "AppServiceCertificate", WEB_VERSIONS),
  supportedType("Microsoft.Web/connections", "ApiConnection", ["2016-06-01", "2018-07-01-preview"]),
  supportedType("Microsoft.Logic/workflows", "Workflow", ["2016-06-01", "2019-05-01"]),
  supportedType("Microsoft.App/containerApps", "ContainerApp", APP_VERSIONS),
  supportedType("Microsoft.App/jobs", "ContainerAppJob", APP_VERSIONS),
  supportedType("Microsoft.App/managedEnvironments", "ContainerAppsEnvironment", APP_VERSIONS),
  supportedType("Microsoft.App/managedEnvironments/certificates", "EnvironmentCertificate", APP_VERSIONS),
  supportedType("Microsoft.ApiManagement/service", "ApiManagementService", API_MANAGEMENT_VERSIONS),
  supportedType("Microsoft.ApiManagement/service/namedValues", "NamedValue", API_MANAGEMENT_VERSIONS, false),
  supportedType(
    "Microsoft.ApiManagement/service/certificates",
    "ApiManagementCertificate",
    API_MANAGEMENT_VERSIONS,
    false,
  ),
  supportedType("Microsoft.ApiManagement/service/backends", "ApiManagementBackend", API_MANAGEMENT_VERSIONS, false),
  supportedType("Microsoft.Network/applicationGateways", "ApplicationGateway", NETWORK_VERSIONS),
  supportedType("Microsoft.Network/virtualNetworks", "VirtualNetwork", NETWORK_VERSIONS),
  supportedType("Microsoft.Network/virtualNetworks/subnets", "Subnet", NETWORK_VERSIONS, false),
  supportedType("Microsoft.Network/privateDnsZones", "PrivateDnsZone", ["2020-06-01", "2024-06-01"]),
  supportedType(
    "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
    "VirtualNetworkLink",
    ["2020-06-01", "2024-06-01"],
    false,
  ),
  supportedType("Microsoft.ManagedIdentity/userAssignedIdentities", "UserAssignedIdentity", [
    "2023-01-31",
    "2024-11-30",
  ]),
  supportedType("Microsoft.OperationalInsights/workspaces", "LogAnalyticsWorkspace", [
    "2022-10-01",
    "2023-09-01",
    "2025-02-01",
  ]),
  supportedType("Microsoft.Cdn/profiles", "FrontDoorProfile", CDN_VERSIONS),
  supportedType("Microsoft.Cdn/profiles/secrets", "FrontDoorSecret", CDN_VERSIONS, false),
  supportedType("Microsoft.DataFactory/factories", "DataFactory", ["2018-06-01"]),
  supportedType("Microsoft.DataFactory/factories/linkedservices", "LinkedService", ["2018-06-01"], false),
  supportedType("Microsoft.AppConfiguration/configurationStores", "ConfigurationStore", [
    "2023-03-01",
    "2024-05-01",
    "2024-06-01",
  ]),
  supportedType("Microsoft.Storage/storageAccounts", "StorageAccount", [
    "2023-01-01",
    "2023-05-01",
    "2024-01-01",
    "2025-01-01",
    "2025-06-01",
  ]),
  supportedType("Microsoft.DocumentDB/databaseAccounts", "CosmosAccount", ["2024-11-15", "2025-04-15", "2025-10-15"]),
  ...["ServiceBus", "EventHub"].flatMap((service) => {
    const [versions, type] = [["2021-11-01", "2024-01-01"], `Microsoft.${service}/namespaces`];
    const entities = service === "ServiceBus" ? ["queues", "topics"] : ["eventhubs"];
    return [
      supportedType(type, `${service}Namespace`, versions),
      supportedType(`${type}/authorizationRules`, `${service}NamespaceRule`, versions, false),
      ...entities.flatMap((entity) => [
        supportedType(`${type}/${entity}`, `${service}${ENTITY_NOUNS[entity]}`, versions, false),
        supportedType(`${type}/${entity}/authorizationRules`, `${service}${ENTITY_NOUNS[entity]}Rule`, versions, false),
      ]),
    ];
  }),
  supportedType("Microsoft.Cache/redis", "Redis", ["2023-08-01", "2024-03-01", "2024-11-01"]),
  supportedType("Microsoft.Cache/redisEnterprise", "ManagedRedis", REDIS_ENTERPRISE_VERSIONS),
  supportedType("Microsoft.Cache/redisEnterprise/databases", "ManagedRedisDatabase", REDIS_ENTERPRISE_VERSIONS, false),
  supportedType("Microsoft.CognitiveServices/accounts", "AiServicesAccount", [
    "2023-05-01",
    "2024-10-01",
    "2025-09-01",
  ]),
  supportedType("Microsoft.Search/searchServices", "SearchService", ["2023-11-01", "2025-05-01"]),
  supportedType("Microsoft.SignalRService/SignalR", "SignalR", ["2023-02-01", "2024-03-01"]),
  supportedType("Microsoft.SignalRService/WebPubSub", "WebPubSub", ["2023-02-01", "2024-03-01"]),
  supportedType("Microsoft.Maps/accounts", "MapsAccount", ["2023-06-01"]),
  supportedType("Microsoft.EventGrid/topics", "EventGridTopic", ["2022-06-15", "2025-02-15"]),
  supportedType("Microsoft.Batch/batchAccounts", "BatchAccount", ["2023-11-01", "2024-07-01"]),
  supportedType("Microsoft.ContainerRegistry/registries", "ContainerRegistry", ["2023-07-01", "2025-11-01"]),
  supportedType("Microsoft.Devices/IotHubs", "IotHub", ["2023-06-30"]),
  supportedType("Microsoft.DBforPostgreSQL/flexibleServers", "PostgresServer", ["2024-08-01"]),
  supportedType("Microsoft.Sql/servers", "SqlServer", SQL_VERSIONS),
  supportedType("Microsoft.Sql/servers/encryptionProtector", "EncryptionProtector", SQL_VERSIONS, false),
  supportedType("Microsoft.Compute/diskEncryptionSets", "DiskEncryptionSet", DISK_VERSIONS),
  supportedType("Microsoft.Compute/virtualMachines", "VirtualMachine", COMPUTE_VERSIONS),
  supportedType("Microsoft.Compute/virtualMachineScaleSets", "VirtualMachineScaleSet", COMPUTE_VERSIONS),
  supportedType("Microsoft.Compute/virtualMachines/extensions", "VirtualMachineExtension", COMPUTE_VERSIONS),
  supportedType("Microsoft.ContainerService/managedClusters", "ManagedCluster", [
    "2023-10-01",
    "2024-09-01",
    "2025-05-01",
  ]),
  supportedType("Microsoft.MachineLearningServices/workspaces", "MachineLearningWorkspace", [
    "2023-10-01",
    "2024-10-01",
    "2025-06-01",
  ]),
];

const TYPES_BY_NAME = new Map(TYPES.map((one) => [one.type.toLowerCase(), one]));

/** Returns the supported type with this name. Undefined if there is none. */
export function resourceType(type: string): ResourceType | undefined {
  return TYPES_BY_NAME.get(type.toLowerCase());
}
