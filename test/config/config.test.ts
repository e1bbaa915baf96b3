import { expect, test } from "vitest";
import { cloudEndpoints } from "../../shared/platform/config/clouds.ts";
import { loadConfig } from "../../shared/platform/config/config.ts";
import { DEFINITIONS, type Definition } from "../../shared/settings/definitions.ts";

const needed = {
  AzureWebJobsStorage:
    "DefaultEndpointsProtocol=http;AccountName=test;AccountKey=cGxhbnRlZC1hY2NvdW50LWtleQ==;TableEndpoint=http://127.0.0.1:9/test;QueueEndpoint=http://127.0.0.1:9/test",
  JWT_SIGNING_KEYS: "test:cGxhbnRlZC1zaWduaW5nLWtleS1vZi0zMi1ieXRlcy0uLi4uLi4u",
};

function failureOf(settings: Record<string, string>): { message: string } {
  try {
    loadConfig({ ...needed, ...settings });
    return { message: "" };
  } catch (error) {
    return error as Error;
  }
}

/** Returns the names of the rejected settings. */
const refused = (settings: Record<string, string>): string[] =>
  [...failureOf(settings).message.matchAll(/^ {2}(\w+):/gm)].map(([, name]) => name!);

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
      logAnalytics: "https://api.loganalytics.io",
      keyVaultSuffix: "vault.azure.net",
      appConfigurationSuffix: "azconfig.io",
      storageSuffix: "core.windows.net",
    },
  ],
  [
    "AzureChinaCloud",
    {
      authorityHost: "https://login.chinacloudapi.cn",
      issuers: { v1: "https://sts.chinacloudapi.cn", v2: "https://login.partner.microsoftonline.cn" },
      resourceManager: "https://management.chinacloudapi.cn",
      graph: "https://microsoftgraph.chinacloudapi.cn",
      logAnalytics: "https://api.loganalytics.azure.cn",
      keyVaultSuffix: "vault.azure.cn",
      appConfigurationSuffix: "azconfig.azure.cn",
      storageSuffix: "core.chinacloudapi.cn",
    },
  ],
  [
    "AzureUSGovernment",
    {
      authorityHost: "https://login.microsoftonline.us",
      issuers: { v1: "https://sts.windows.net", v2: "https://login.microsoftonline.us" },
      resourceManager: "https://management.usgovcloudapi.net",
      graph: "https://graph.microsoft.us",
      logAnalytics: "https://api.loganalytics.us",
      keyVaultSuffix: "vault.usgovcloudapi.net",
      appConfigurationSuffix: "azconfig.azure.us",
      storageSuffix: "core.usgovcloudapi.net",
    },
  ],
])("%s has the documented addresses", (name, endpoints) => {
  expect(cloudEndpoints(loadConfig({ ...needed, AZURE_CLOUD: name }))).toEqual(endpoints);
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
  [
    "AZURE_AUTHORITY_HOST",
    "https://login.contoso.com",
    {
      authorityHost: "https://login.contoso.com",
      issuers: { v1: "https://sts.windows.net", v2: "https://login.contoso.com" },
    },
  ],
])("%s can be replaced individually", (name, value, changed) => {
  expect(cloudEndpoints(loadConfig({ ...needed, [name]: value }))).toEqual({
    ...cloudEndpoints(loadConfig(needed)),
    ...changed,
  });
});

test.each([
  ["AzureWebJobsStorage__tableServiceUri", "AzureWebJobsStorage__queueServiceUri", "https://storage.example"],
  ["BOOTSTRAP_ADMIN_USERNAME", "BOOTSTRAP_ADMIN_PASSWORD", "administrator"],
  ["ENTRA_API_CLIENT_ID", "ENTRA_TENANT_IDS", "0b9f8a7e-1111-4222-8333-944455556666"],
])("of %s and %s, setting only one is rejected with the name of the missing one", (one, other, value) => {
  const alone = (name: string) =>
    failureOf({ [name]: value })
      .message.split("\n")
      .slice(1);
  expect(alone(one)).toEqual([`  ${other}: must be set together with ${one}`]);
  expect(alone(other)).toEqual([`  ${one}: must be set together with ${other}`]);
  expect(refused({ [one]: value, [other]: value })).toEqual([]);
});

test("the environment accepts the same values of each runtime setting as the API", () => {
  let bounds = 0;
  for (const definition of Object.values<Definition>(DEFINITIONS)) {
    const { environmentVariable: name } = definition;
    const taken = valuesOf(definition);
    // The critical days must be fewer than the warning days.
    const refusal = (value: string) => refused({ WARNING_EXPIRY_DAYS: "730", [name]: value });
    for (const value of taken.good) expect(refusal(value), `${name}=${value}`).not.toContain(name);
    for (const value of taken.bad) expect(refusal(value), `${name}=${value}`).toContain(name);
    bounds += taken.bad.length;
  }
  expect(bounds).toBeGreaterThan(25);
});

function valuesOf(definition: Definition): { good: string[]; bad: string[] } {
  if (definition.type === "boolean") return { good: ["true", "false"], bad: ["maybe"] };
  if (definition.type === "string")
    return { good: [...definition.allowed], bad: [definition.allowed[0]!.toLowerCase()] };
  const { minimum, maximum } = definition;
  return { good: [minimum, maximum].map(String), bad: [minimum - 1, maximum + 1].map(String) };
}
