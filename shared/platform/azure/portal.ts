import type { Config } from "../config/config.ts";

/** Values that links to the Azure portal need. */
export interface Portal {
  /** https://portal.azure.com, or the portal of the sovereign cloud. */
  portal: string;
  tenantId: string | undefined;
  /** Domain of the vaults' addresses, such as `vault.azure.net`. */
  keyVaultSuffix: string;
}

/** Addresses of the portal: https://learn.microsoft.com/azure/azure-government/compare-azure-government-global-azure */
const PORTALS: Record<Config["AZURE_CLOUD"], string> = {
  AzureCloud: "https://portal.azure.com",
  AzureChinaCloud: "https://portal.azure.cn",
  AzureUSGovernment: "https://portal.azure.us",
};

/** Returns the values for links to the portal of the configured cloud. */
export const portalOf = (config: Pick<Config, "AZURE_CLOUD" | "AZURE_TENANT_ID" | "cloud">): Portal => ({
  portal: PORTALS[config.AZURE_CLOUD],
  tenantId: config.AZURE_TENANT_ID,
  keyVaultSuffix: config.cloud.keyVaultSuffix,
});

/** Encodes a text for one segment of a path. A lone surrogate becomes U+FFFD; `encodeURIComponent` alone throws. */
export const encodePathSegment = (text: string): string => encodeURIComponent(text.toWellFormed());

const tenantPrefix = ({ tenantId }: Portal): string => (tenantId ? `@${tenantId}` : "");

/** Returns the link to a vault's page in the portal, or to a list below it such as `secrets`. */
export function vaultLink(links: Portal, vaultId: string, list: string): string {
  const path = vaultId.split("/").map(encodePathSegment).join("/");
  return `${links.portal}/#${tenantPrefix(links)}/resource${path}${list ? `/${list}` : ""}`;
}

const PORTAL_KINDS = { secret: "Secret", key: "Key", certificate: "Certificate" } as const;

/** Returns the link to the page of a secret, key or certificate, by its address in the vault. */
export function assetLink(
  links: Portal,
  { type, name, vaultName }: { type: keyof typeof PORTAL_KINDS; name: string; vaultName: string },
): string {
  const address = `https://${encodePathSegment(vaultName)}.${links.keyVaultSuffix}/${type}s/${encodePathSegment(name)}`;
  return `${links.portal}/#${tenantPrefix(links)}/asset/Microsoft_Azure_KeyVault/${PORTAL_KINDS[type]}/${address}`;
}

/** Returns the link to an application's certificates and secrets, or to the tenant for other credentials of a B2C tenant. */
export function credentialsLink(
  { portal }: Portal,
  {
    kind = "application",
    appId,
    tenantDomain,
  }: { kind?: string | undefined; appId?: string | undefined; tenantDomain?: string | undefined },
): string {
  const directory = `${portal}/#${tenantDomain === undefined ? "" : `@${encodePathSegment(tenantDomain)}/`}view`;
  return kind === "application" && appId !== undefined
    ? `${directory}/Microsoft_AAD_RegisteredApps/ApplicationMenuBlade/~/Credentials/appId/${encodePathSegment(appId)}`
    : `${directory}/Microsoft_AAD_B2CAdmin/TenantManagementMenuBlade/~/overview`;
}
