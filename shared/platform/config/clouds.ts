/** Addresses of one Azure cloud, without trailing slashes. */
export interface CloudEndpoints {
  authorityHost: string;
  /** Start of the `iss` claim of Entra's access tokens, by token version. */
  issuers: { v1: string; v2: string };
  resourceManager: string;
  graph: string;
  /** Address of Log Analytics queries, and audience of their tokens. */
  logAnalytics: string;
  /** Domain of key vault addresses, such as `vault.azure.net`. */
  keyVaultSuffix: string;
  /** Domain of App Configuration addresses, such as `azconfig.io`. */
  appConfigurationSuffix: string;
  /** Domain of storage account addresses, such as `core.windows.net`. */
  storageSuffix: string;
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
    keyVaultSuffix: "vault.azure.net",
    appConfigurationSuffix: "azconfig.io",
    storageSuffix: "core.windows.net",
  },
  AzureChinaCloud: {
    authorityHost: "https://login.chinacloudapi.cn",
    issuers: { v1: "https://sts.chinacloudapi.cn", v2: "https://login.partner.microsoftonline.cn" },
    resourceManager: "https://management.chinacloudapi.cn",
    graph: "https://microsoftgraph.chinacloudapi.cn",
    logAnalytics: "https://api.loganalytics.azure.cn",
    keyVaultSuffix: "vault.azure.cn",
    appConfigurationSuffix: "azconfig.azure.cn",
    storageSuffix: "core.chinacloudapi.cn",
  },
  AzureUSGovernment: {
    authorityHost: "https://login.microsoftonline.us",
    issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.us" },
    resourceManager: "https://management.usgovcloudapi.net",
    graph: "https://graph.microsoft.us",
    logAnalytics: "https://api.loganalytics.us",
    keyVaultSuffix: "vault.usgovcloudapi.net",
    appConfigurationSuffix: "azconfig.azure.us",
    storageSuffix: "core.usgovcloudapi.net",
  },
};

/** Returns the addresses of the selected cloud. Settings can replace each of them. */
export function cloudEndpoints(env: {
  AZURE_CLOUD: keyof typeof CLOUDS;
  AZURE_AUTHORITY_HOST?: string | undefined;
  AZURE_RESOURCE_MANAGER_ENDPOINT?: string | undefined;
  AZURE_GRAPH_ENDPOINT?: string | undefined;
  LOG_ANALYTICS_ENDPOINT?: string | undefined;
  AZURE_KEY_VAULT_SUFFIX?: string | undefined;
  AZURE_APP_CONFIGURATION_SUFFIX?: string | undefined;
}): CloudEndpoints {
  const defaults = CLOUDS[env.AZURE_CLOUD]!;
  const authorityHost = env.AZURE_AUTHORITY_HOST ?? defaults.authorityHost;
  const isDefaultHost = authorityHost === defaults.authorityHost;
  return {
    authorityHost,
    issuers: { v1: defaults.issuers.v1, v2: isDefaultHost ? defaults.issuers.v2 : authorityHost },
    resourceManager: env.AZURE_RESOURCE_MANAGER_ENDPOINT ?? defaults.resourceManager,
    graph: env.AZURE_GRAPH_ENDPOINT ?? defaults.graph,
    logAnalytics: env.LOG_ANALYTICS_ENDPOINT ?? defaults.logAnalytics,
    keyVaultSuffix: env.AZURE_KEY_VAULT_SUFFIX ?? defaults.keyVaultSuffix,
    appConfigurationSuffix: env.AZURE_APP_CONFIGURATION_SUFFIX ?? defaults.appConfigurationSuffix,
    storageSuffix: defaults.storageSuffix,
  };
}
