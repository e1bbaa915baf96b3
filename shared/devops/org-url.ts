import type { Config } from "../platform/config/config.ts";

/** Host names of Azure DevOps. The service's token is sent nowhere else. */
const DEVOPS = "https://dev.azure.com";

/** https://learn.microsoft.com/azure/devops/organizations/settings/naming-restrictions#organization-names */
const NAME = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?";
const ADDRESSES = [
  new RegExp(`^https://dev\\.azure\\.com/(${NAME})/?$`),
  new RegExp(`^https://(${NAME})\\.visualstudio\\.com/?$`),
];
const ORGANIZATION = new RegExp(`^/(${NAME})/?$`);

/**
 * Returns the base URL for requests to an organization, without a trailing slash. Undefined unless `orgUrl` is exactly
 * `https://dev.azure.com/{org}`, `https://{org}.visualstudio.com`, or below `AZURE_DEVOPS_ENDPOINT`. The comparison is literal,
 * because parsers can disagree about a URL. Both public host names are the same service, which `AZURE_DEVOPS_ENDPOINT` replaces
 * if it is set.
 */
export function organizationAddress(
  orgUrl: string,
  { AZURE_DEVOPS_ENDPOINT: endpoint }: Pick<Config, "AZURE_DEVOPS_ENDPOINT">,
): string | undefined {
  for (const address of ADDRESSES) {
    const organization = address.exec(orgUrl)?.[1];
    if (organization !== undefined) return `${endpoint ?? DEVOPS}/${organization}`;
  }
  if (endpoint === undefined || !orgUrl.startsWith(endpoint)) return undefined;
  const rest = orgUrl.slice(endpoint.length);
  if (rest === "" || rest === "/") return endpoint;
  const organization = ORGANIZATION.exec(rest)?.[1];
  return organization === undefined ? undefined : `${endpoint}/${organization}`;
}
