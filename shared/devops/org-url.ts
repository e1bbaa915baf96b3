import type { Config } from "../platform/config/config.ts";

/** Where DevOps is: the service's token is sent there and nowhere else. */
const DEVOPS = "https://dev.azure.com";

/** https://learn.microsoft.com/azure/devops/organizations/settings/naming-restrictions#organization-names */
const NAME = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?";
const ADDRESSES = [
  new RegExp(`^https://dev\\.azure\\.com/(${NAME})/?$`),
  new RegExp(`^https://(${NAME})\\.visualstudio\\.com/?$`),
];
const ORGANIZATION = new RegExp(`^/(${NAME})/?$`);

/**
 * The address that the requests of an organization go to, without a slash at the end; undefined unless `orgUrl` is
 * `https://dev.azure.com/{org}`, `https://{org}.visualstudio.com`, or lies at `AZURE_DEVOPS_ENDPOINT`, to the letter: an
 * address that has to be understood may be understood differently by two. Both names of the public service are one
 * service, for which the endpoint stands where it is set.
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
