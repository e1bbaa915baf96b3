import { expect, test } from "vitest";
import { cloudEndpoints } from "../../shared/platform/config/clouds.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { DEFINITIONS, type Definition } from "../../shared/settings/definitions.ts";

// Tests of the configuration that the service reads from environment variables at its start.

/** The settings without which the service does not start. */
const requiredSettings = {
  AzureWebJobsStorage:
    "DefaultEndpointsProtocol=http;AccountName=test;AccountKey=cGxhbnRlZC1hY2NvdW50LWtleQ==;TableEndpoint=http://127.0.0.1:9/test;QueueEndpoint=http://127.0.0.1:9/test",
  JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaWduaW5nLWtleS1vZi0zMi1ieXRlcy0uLi4uLi4u",
};

/** Loads a configuration with these settings. Returns the message of the error, or an empty text if there is none. */
function loadingError(settings: Record<string, string>): string {
  try {
    loadConfig({ ...requiredSettings, ...settings });
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

/** Returns the names of the rejected settings. */
const rejectedSettings = (settings: Record<string, string>): string[] =>
  [...loadingError(settings).matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name!);

/*
 * https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure
 * https://learn.microsoft.com/azure/china/resources-developer-guide
 */
test.each([
  [
    "AzureCloud",
    {
      authorityHost: "https://login.microsoftonline.com",
      issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.com" },
      resourceManager: "https://management.azure.com",
      graph: "https://graph.microsoft.com",
      databaseAudience: "https://ossrdbms-aad.database.windows.net",
      tokenExchangeAudience: "api://AzureADTokenExchange",
      logAnalytics: "https://api.loganalytics.io",
      logsIngestionAudience: "https://monitor.azure.com",
      keyVaultSuffix: "vault.azure.net",
      appConfigurationSuffix: "azconfig.io",
      storageSuffix: "core.windows.net",
      resourceDomains: expect.objectContaining({ cosmos: ["documents.azure.com"], search: ["search.windows.net"] }),
      maps: "https://atlas.microsoft.com",
    },
  ],
  [
    "AzureChinaCloud",
    {
      authorityHost: "https://login.chinacloudapi.cn",
      issuers: { v1: "https://sts.chinacloudapi.cn", v2: "https://login.partner.microsoftonline.cn" },
      resourceManager: "https://management.chinacloudapi.cn",
      graph: "https://microsoftgraph.chinacloudapi.cn",
      databaseAudience: "https://ossrdbms-aad.database.chinacloudapi.cn",
      tokenExchangeAudience: "api://AzureADTokenExchangeChina",
      logAnalytics: "https://api.loganalytics.azure.cn",
      logsIngestionAudience: "https://monitor.azure.cn",
      keyVaultSuffix: "vault.azure.cn",
      appConfigurationSuffix: "azconfig.azure.cn",
      storageSuffix: "core.chinacloudapi.cn",
      // Azure China has no Azure Maps.
      resourceDomains: expect.objectContaining({ cosmos: ["documents.azure.cn"], search: ["search.azure.cn"] }),
    },
  ],
  [
    "AzureUSGovernment",
    {
      authorityHost: "https://login.microsoftonline.us",
      issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.us" },
      resourceManager: "https://management.usgovcloudapi.net",
      graph: "https://graph.microsoft.us",
      databaseAudience: "https://ossrdbms-aad.database.usgovcloudapi.net",
      tokenExchangeAudience: "api://AzureADTokenExchangeUSGov",
      logAnalytics: "https://api.loganalytics.us",
      logsIngestionAudience: "https://monitor.azure.us",
      keyVaultSuffix: "vault.usgovcloudapi.net",
      appConfigurationSuffix: "azconfig.azure.us",
      storageSuffix: "core.usgovcloudapi.net",
      resourceDomains: expect.objectContaining({ cosmos: ["documents.azure.us"], search: ["search.azure.us"] }),
      maps: "https://atlas.azure.us",
    },
  ],
])("the cloud %s has the documented addresses", (name, endpoints) => {
  expect(cloudEndpoints(loadConfig({ ...requiredSettings, AZURE_CLOUD: name }))).toEqual(endpoints);
});

test.each([
  [
    "AZURE_RESOURCE_MANAGER_ENDPOINT",
    "https://manager.contoso.com",
    { resourceManager: "https://manager.contoso.com" },
  ],
  ["AZURE_GRAPH_ENDPOINT", "https://graph.contoso.com", { graph: "https://graph.contoso.com" }],
  ["LOG_ANALYTICS_ENDPOINT", "https://logs.contoso.com", { logAnalytics: "https://logs.contoso.com" }],
  ["AZURE_KEY_VAULT_SUFFIX", "vault.contoso.com", { keyVaultSuffix: "vault.contoso.com" }],
  ["AZURE_APP_CONFIGURATION_SUFFIX", "azconfig.contoso.com", { appConfigurationSuffix: "azconfig.contoso.com" }],
  ["AZURE_MAPS_ENDPOINT", "https://maps.contoso.com", { maps: "https://maps.contoso.com" }],
  [
    "AZURE_AUTHORITY_HOST",
    "https://login.contoso.com",
    {
      authorityHost: "https://login.contoso.com",
      issuers: { v1: "https://sts.windows.net", v2: "https://login.contoso.com" },
    },
  ],
  [
    "AZURE_RESOURCE_DOMAINS",
    "one.contoso.com, two.contoso.com",
    {
      resourceDomains: Object.fromEntries(
        Object.keys(cloudEndpoints(loadConfig(requiredSettings)).resourceDomains).map((name) => [
          name,
          ["one.contoso.com", "two.contoso.com"],
        ]),
      ),
    },
  ],
])("%s replaces only its own address of the cloud", (name, value, changed) => {
  expect(cloudEndpoints(loadConfig({ ...requiredSettings, [name]: value }))).toEqual({
    ...cloudEndpoints(loadConfig(requiredSettings)),
    ...changed,
  });
});

test.each([
  ["AzureWebJobsStorage__tableServiceUri", "AzureWebJobsStorage__queueServiceUri", "https://storage.example"],
  ["BOOTSTRAP_ADMIN_USERNAME", "BOOTSTRAP_ADMIN_PASSWORD", "administrator"],
  ["ENTRA_API_CLIENT_ID", "ENTRA_TENANT_IDS", "0b9f8a7e-1111-4222-8333-944455556666"],
])("%s and %s must be set together", (first, second, value) => {
  const messagesWithOnly = (name: string) =>
    loadingError({ [name]: value })
      .split("\n")
      .slice(1);
  expect(messagesWithOnly(first)).toEqual([`  ${second}: must be set together with ${first}`]);
  expect(messagesWithOnly(second)).toEqual([`  ${first}: must be set together with ${second}`]);
  expect(rejectedSettings({ [first]: value, [second]: value })).toEqual([]);
});

test("the environment accepts the same values of each runtime setting as the API", () => {
  let rejectedValues = 0;
  for (const definition of Object.values<Definition>(DEFINITIONS)) {
    const { environmentVariable: name } = definition;
    const values = valuesOf(definition);
    // The critical days must be fewer than the warning days.
    const rejectedWith = (value: string) => rejectedSettings({ WARNING_EXPIRY_DAYS: "730", [name]: value });
    for (const value of values.valid) expect(rejectedWith(value), `${name}=${value}`).not.toContain(name);
    for (const value of values.invalid) expect(rejectedWith(value), `${name}=${value}`).toContain(name);
    rejectedValues += values.invalid.length;
  }
  expect(rejectedValues).toBeGreaterThan(25);
});

function valuesOf(definition: Definition): { valid: string[]; invalid: string[] } {
  if (definition.type === "boolean") return { valid: ["true", "false"], invalid: ["maybe"] };
  if (definition.type === "string") return { valid: [...definition.allowed], invalid: [`${definition.allowed[0]}x`] };
  const { minimum, maximum } = definition;
  return { valid: [minimum, maximum].map(String), invalid: [minimum - 1, maximum + 1].map(String) };
}
