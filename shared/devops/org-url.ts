import type { Config } from "../platform/config/config.ts";

/** URL of Azure DevOps. The service sends its token only there or to the configured endpoint. */
const DEVOPS = "https://dev.azure.com";

/** https://learn.microsoft.com/azure/devops/organizations/settings/naming-restrictions#organization-names */
const ORGANIZATION_NAME = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?";
/** Match the two forms of an organization's URL, with the organization's name as the group. */
const URL_FORMS = [
  new RegExp(`^https://dev\\.azure\\.com/(${ORGANIZATION_NAME})/?$`),
  new RegExp(`^https://(${ORGANIZATION_NAME})\\.visualstudio\\.com/?$`),
];
const PATH_FORM = new RegExp(`^/(${ORGANIZATION_NAME})/?$`);

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
  for (const form of URL_FORMS) {
    const organization = form.exec(orgUrl)?.[1];
    if (organization !== undefined) return `${endpoint ?? DEVOPS}/${organization}`;
  }
  if (endpoint === undefined || !orgUrl.startsWith(endpoint)) return undefined;
  const pathAtEndpoint = orgUrl.slice(endpoint.length);
  if (pathAtEndpoint === "" || pathAtEndpoint === "/") return endpoint;
  const organization = PATH_FORM.exec(pathAtEndpoint)?.[1];
  return organization === undefined ? undefined : `${endpoint}/${organization}`;
}
