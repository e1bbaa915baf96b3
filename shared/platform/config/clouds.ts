/** Addresses of one Azure cloud, without trailing slashes. */
export interface CloudEndpoints {
  authorityHost: string;
  /** Start of the `iss` claim of Entra's access tokens, by token version. */
  issuers: { v1: string; v2: string };
  resourceManager: string;
  graph: string;
  /** Address of Log Analytics queries, and audience of their tokens. */
  logAnalytics: string;
  /**
   * Audience of tokens that Entra exchanges for one of an application:
   * https://learn.microsoft.com/entra/workload-id/workload-identity-federation-config-app-trust-managed-identity
   */
  tokenExchangeAudience: string;
  /** Domain of key vault addresses, such as `vault.azure.net`. */
  keyVaultSuffix: string;
  /** Domain of App Configuration addresses, such as `azconfig.io`. */
  appConfigurationSuffix: string;
  /** Domain of storage account addresses, such as `core.windows.net`. */
  storageSuffix: string;
  /** Domains that the address of a resource must be in before a request with one of its keys is sent there. */
  resourceDomains: ResourceDomains;
  /** Audience of Entra tokens for PostgreSQL and MySQL flexible servers. */
  databaseAudience: string;
  /** Audience of Entra tokens for the Logs Ingestion API. */
  logsIngestionAudience: string;
  /** Address of Azure Maps, which is the same for all accounts. Undefined in clouds without Azure Maps. */
  maps?: string;
}

/** Domains of resources by the kind of service. */
export interface ResourceDomains {
  storage: readonly string[];
  cosmos: readonly string[];
  messaging: readonly string[];
  aiServices: readonly string[];
  search: readonly string[];
  signalr: readonly string[];
  webPubSub: readonly string[];
  batch: readonly string[];
  containerRegistry: readonly string[];
  postgresql: readonly string[];
  /** Data collection endpoints of Azure Monitor. */
  logsIngestion: readonly string[];
}

/**
 * Sources: https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure and the Azure China guide.
 * The issuers are from the discovery documents of each cloud's Entra.
 */
const CLOUDS: Record<string, CloudEndpoints> = {
  AzureCloud: {
    authorityHost: "https://login.microsoftonline.com",
    issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.com" },
    resourceManager: "https://management.azure.com",
    graph: "https://graph.microsoft.com",
    logAnalytics: "https://api.loganalytics.io",
    tokenExchangeAudience: "api://AzureADTokenExchange",
    keyVaultSuffix: "vault.azure.net",
    appConfigurationSuffix: "azconfig.io",
    storageSuffix: "core.windows.net",
    resourceDomains: {
      // The second domain is that of accounts with DNS zone endpoints.
      storage: ["core.windows.net", "storage.azure.net"],
      cosmos: ["documents.azure.com"],
      messaging: ["servicebus.windows.net"],
      aiServices: [
        "openai.azure.com",
        "cognitiveservices.azure.com",
        "services.ai.azure.com",
        "api.cognitive.microsoft.com",
      ],
      search: ["search.windows.net"],
      signalr: ["service.signalr.net"],
      webPubSub: ["webpubsub.azure.com"],
      batch: ["batch.azure.com"],
      containerRegistry: ["azurecr.io"],
      postgresql: ["postgres.database.azure.com"],
      logsIngestion: ["ingest.monitor.azure.com"],
    },
    databaseAudience: "https://ossrdbms-aad.database.windows.net",
    logsIngestionAudience: "https://monitor.azure.com",
    maps: "https://atlas.microsoft.com",
  },
  AzureChinaCloud: {
    authorityHost: "https://login.chinacloudapi.cn",
    issuers: { v1: "https://sts.chinacloudapi.cn", v2: "https://login.partner.microsoftonline.cn" },
    resourceManager: "https://management.chinacloudapi.cn",
    graph: "https://microsoftgraph.chinacloudapi.cn",
    logAnalytics: "https://api.loganalytics.azure.cn",
    tokenExchangeAudience: "api://AzureADTokenExchangeChina",
    keyVaultSuffix: "vault.azure.cn",
    appConfigurationSuffix: "azconfig.azure.cn",
    storageSuffix: "core.chinacloudapi.cn",
    resourceDomains: {
      storage: ["core.chinacloudapi.cn"],
      cosmos: ["documents.azure.cn"],
      messaging: ["servicebus.chinacloudapi.cn"],
      aiServices: ["openai.azure.cn", "cognitiveservices.azure.cn", "api.cognitive.azure.cn"],
      search: ["search.azure.cn"],
      signalr: ["signalr.azure.cn"],
      webPubSub: ["webpubsub.azure.cn"],
      batch: ["batch.chinacloudapi.cn"],
      containerRegistry: ["azurecr.cn"],
      postgresql: ["postgres.database.chinacloudapi.cn"],
      logsIngestion: ["ingest.monitor.azure.cn"],
    },
    databaseAudience: "https://ossrdbms-aad.database.chinacloudapi.cn",
    logsIngestionAudience: "https://monitor.azure.cn",
  },
  AzureUSGovernment: {
    authorityHost: "https://login.microsoftonline.us",
    issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.us" },
    resourceManager: "https://management.usgovcloudapi.net",
    graph: "https://graph.microsoft.us",
    logAnalytics: "https://api.loganalytics.us",
    tokenExchangeAudience: "api://AzureADTokenExchangeUSGov",
    keyVaultSuffix: "vault.usgovcloudapi.net",
    appConfigurationSuffix: "azconfig.azure.us",
    storageSuffix: "core.usgovcloudapi.net",
    resourceDomains: {
      storage: ["core.usgovcloudapi.net"],
      cosmos: ["documents.azure.us"],
      messaging: ["servicebus.usgovcloudapi.net"],
      aiServices: ["openai.azure.us", "cognitiveservices.azure.us", "api.cognitive.microsoft.us"],
      search: ["search.azure.us"],
      signalr: ["signalr.azure.us"],
      webPubSub: ["webpubsub.azure.us"],
      batch: ["batch.usgovcloudapi.net"],
      containerRegistry: ["azurecr.us"],
      postgresql: ["postgres.database.usgovcloudapi.net"],
      logsIngestion: ["ingest.monitor.azure.us"],
    },
    databaseAudience: "https://ossrdbms-aad.database.usgovcloudapi.net",
    logsIngestionAudience: "https://monitor.azure.us",
    maps: "https://atlas.azure.us",
  },
};

/** Returns the addresses of the selected cloud. Settings can replace most of them. */
export function cloudEndpoints(env: {
  AZURE_CLOUD: keyof typeof CLOUDS;
  AZURE_AUTHORITY_HOST?: string | undefined;
  AZURE_RESOURCE_MANAGER_ENDPOINT?: string | undefined;
  AZURE_GRAPH_ENDPOINT?: string | undefined;
  LOG_ANALYTICS_ENDPOINT?: string | undefined;
  AZURE_KEY_VAULT_SUFFIX?: string | undefined;
  AZURE_APP_CONFIGURATION_SUFFIX?: string | undefined;
  AZURE_RESOURCE_DOMAINS?: readonly string[] | undefined;
  AZURE_MAPS_ENDPOINT?: string | undefined;
}): CloudEndpoints {
  const defaults = CLOUDS[env.AZURE_CLOUD]!;
  const authorityHost = env.AZURE_AUTHORITY_HOST ?? defaults.authorityHost;
  // Another authority issues v2 tokens under its own address. v1 tokens name the cloud's token service, which has no setting.
  const isDefaultHost = authorityHost === defaults.authorityHost;
  const maps = env.AZURE_MAPS_ENDPOINT ?? defaults.maps;
  const domains = env.AZURE_RESOURCE_DOMAINS;
  return {
    authorityHost,
    issuers: { v1: defaults.issuers.v1, v2: isDefaultHost ? defaults.issuers.v2 : authorityHost },
    resourceManager: env.AZURE_RESOURCE_MANAGER_ENDPOINT ?? defaults.resourceManager,
    graph: env.AZURE_GRAPH_ENDPOINT ?? defaults.graph,
    logAnalytics: env.LOG_ANALYTICS_ENDPOINT ?? defaults.logAnalytics,
    tokenExchangeAudience: defaults.tokenExchangeAudience,
    keyVaultSuffix: env.AZURE_KEY_VAULT_SUFFIX ?? defaults.keyVaultSuffix,
    appConfigurationSuffix: env.AZURE_APP_CONFIGURATION_SUFFIX ?? defaults.appConfigurationSuffix,
    storageSuffix: defaults.storageSuffix,
    databaseAudience: defaults.databaseAudience,
    logsIngestionAudience: defaults.logsIngestionAudience,
    resourceDomains: domains === undefined ? defaults.resourceDomains : sameForAll(defaults.resourceDomains, domains),
    ...(maps !== undefined && { maps }),
  };
}

const sameForAll = (all: ResourceDomains, domains: readonly string[]): ResourceDomains =>
  Object.fromEntries(Object.keys(all).map((name) => [name, domains])) as unknown as ResourceDomains;
