import { cloudEndpoints } from "../../shared/platform/config/clouds.ts";
import type { Finding } from "./expression.ts";
import type { InfraFiles } from "./files.ts";

const FILE = "infra/azure/clouds.json";

/** Domains of apps: https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure */
const APP_DOMAINS: Record<string, string> = {
  AzureCloud: "azurewebsites.net",
  AzureUSGovernment: "azurewebsites.us",
  AzureChinaCloud: "chinacloudsites.cn",
};

/**
 * Checks the domains and private DNS zones of each cloud, which both languages read, against the addresses that the service
 * calls. A zone has the name of the public domain with `privatelink` before it:
 * https://learn.microsoft.com/azure/private-link/private-endpoint-dns
 */
export function checkClouds(files: InfraFiles): Finding[] {
  const expected = Object.fromEntries(
    Object.entries(APP_DOMAINS).map(([cloud, appDomain]) => {
      const { storageSuffix, keyVaultSuffix, appConfigurationSuffix } = cloudEndpoints({ AZURE_CLOUD: cloud });
      const values = {
        appDomain,
        storageDomain: storageSuffix,
        vaultDomain: keyVaultSuffix,
        vaultZone: `privatelink.${keyVaultSuffix.replace(/^vault\./, "vaultcore.")}`,
        appConfigurationZone: `privatelink.${appConfigurationSuffix}`,
      };
      return [cloud, values];
    }),
  );
  const finding = (message: string): Finding => ({ file: FILE, line: 1, message });
  let content: unknown;
  try {
    content = JSON.parse(files.text.get(FILE) ?? "");
  } catch {
    return [finding("is not JSON")];
  }
  const differs = JSON.stringify(content) !== JSON.stringify(expected);
  return differs ? [finding(`must be ${JSON.stringify(expected)}`)] : [];
}
