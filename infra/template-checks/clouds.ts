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
  return differences(expected, content).map(finding);
}

/** Describes the values that differ, each with its path. */
export function differences(expected: unknown, actual: unknown, path = ""): string[] {
  if (typeof expected === "object" && expected !== null && typeof actual === "object" && actual !== null) {
    const [wanted, found] = [expected as Record<string, unknown>, actual as Record<string, unknown>];
    const keys = new Set([...Object.keys(wanted), ...Object.keys(found)]);
    return [...keys].flatMap((key) => differences(wanted[key], found[key], path === "" ? key : `${path}.${key}`));
  }
  const [must, is] = [expected, actual].map((value) => (value === undefined ? "not set" : JSON.stringify(value)));
  return must === is ? [] : [`${path} must be ${must}, but is ${is}`];
}
