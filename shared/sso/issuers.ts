// Issuers (OpenID Connect providers) whose users don't all belong to one organization.

/** Issuers with which anyone can have an account, or that serve many organizations under one name. */
const MULTI_ORGANIZATION_ISSUERS: ReadonlySet<string> = new Set([
  "https://accounts.google.com",
  "https://appleid.apple.com",
  "https://gitlab.com",
  "https://www.linkedin.com",
  "https://www.linkedin.com/oauth",
  "https://www.facebook.com",
  "https://login.salesforce.com",
  "https://test.salesforce.com",
  "https://slack.com",
  "https://id.twitch.tv/oauth2",
  "https://www.paypal.com",
  "https://api.login.yahoo.com",
  "https://auth.atlassian.com",
  "https://account.xero.com",
  "https://identity.xero.com",
  "https://oauth.id.jumpcloud.com",
  "https://login.docker.com",
  "https://discord.com",
]);

/**
 * Returns true if the issuer serves more than one organization, so that its users don't all belong to this organization.
 * The list is maintained by hand, because discovery documents don't contain this property.
 */
export const isMultiOrganizationIssuer = (issuer: string): boolean =>
  MULTI_ORGANIZATION_ISSUERS.has(issuer.replace(/\/+$/, ""));

/** Sign-in hosts of Entra in every cloud: https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud */
const ENTRA_HOSTS: ReadonlySet<string> = new Set([
  "login.microsoftonline.com",
  "login.microsoft.com",
  "login.windows.net",
  "sts.windows.net",
  "login.microsoftonline.us",
  "login.partner.microsoftonline.cn",
  "login.chinacloudapi.cn",
  "sts.chinacloudapi.cn",
]);
/** The tenant of personal accounts: https://learn.microsoft.com/entra/identity-platform/id-token-claims-reference (tid) */
const PERSONAL_TENANT = "9188040d-6c67-4c5b-b112-36a304b66dad";
/** Matches a tenant ID, a GUID. */
const TENANT = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Returns true for an issuer of Entra that does not name one organization by its ID: `common`, `organizations`, a domain,
 * `{tenantid}`, or the tenant of personal accounts.
 */
export function isEntraWithoutTenant(issuer: URL): boolean {
  if (!ENTRA_HOSTS.has(issuer.hostname)) return false;
  const tenant = issuer.pathname.split("/")[1] ?? "";
  return !TENANT.test(tenant) || tenant.toLowerCase() === PERSONAL_TENANT;
}
