import { invalidBody } from "../platform/http/problem.ts";
import type { OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import { issuerProblem } from "./allowed-addresses.ts";
import type { SsoChange } from "./api.ts";
import type { SsoConfiguration } from "./configuration.ts";
import { isEntraWithoutTenant, isMultiOrganizationIssuer } from "./issuers.ts";
import { checkSaml } from "./saml/settings.ts";

// Functions on a change of the SSO configuration, without storage: the result of the change and its validation.

/** Members that don't affect who can sign in or with which role. */
const OTHER_MEMBERS: readonly string[] = [
  "ssoOnlyMode",
  "loginButtonText",
  "oidcClientSecretExpiresOn",
  "samlLogoutUrl",
  "generation",
  "revision",
  "updatedAt",
  "updatedBy",
];

/** Returns a text of the members that decide who can sign in and with which role, for comparing two configurations. */
export const signInMembers = (config: SsoConfiguration): string =>
  JSON.stringify(
    Object.entries(config)
      .filter(([name]) => !OTHER_MEMBERS.includes(name))
      .sort(),
  );

/** Returns the configuration after a change, except for its secret. Null removes a member. */
export function withChange(config: SsoConfiguration, change: SsoChange): SsoConfiguration {
  const { oidcClientSecret: _, ...members } = change;
  const changed: Record<string, unknown> = { ...config };
  for (const [name, value] of Object.entries(members)) {
    if (value === null) delete changed[name];
    else if (value !== undefined) changed[name] = value;
  }
  // The expiry date of the earlier secret doesn't apply to a new secret.
  if (change.oidcClientSecret !== undefined && !change.oidcClientSecretExpiresOn)
    delete changed.oidcClientSecretExpiresOn;
  // The service's SAML key is deleted when requests are no longer signed. If they are signed again, a new key is created.
  if (!changed.samlSignRequests) for (const name of ["samlServiceKey", "samlServiceCertificate"]) delete changed[name];
  return changed as SsoConfiguration;
}

/**
 * Returns true if the configuration keeps its saved client secret. The secret is sent only to the issuer for which it was
 * entered.
 *
 * @throws {Problem} invalidRequest if the issuer changes and the secret is not entered again
 */
export function keepsSecret(before: SsoConfiguration, next: SsoConfiguration, change: SsoChange): boolean {
  if (change.oidcClientSecret !== undefined || !before.oidcClientSecret) return false;
  if (next.oidcIssuer === before.oidcIssuer) return true;
  if (next.oidcIssuer === undefined) return false;
  throw invalidBody(
    "oidcClientSecret",
    "is needed again for another issuer: the saved one is not sent there (null for none)",
  );
}

/**
 * Throws if the configuration is invalid, even if single sign-on is turned off.
 *
 * @throws {Problem} invalidRequest
 */
export function checkConfiguration(config: SsoConfiguration, addressRules: OutgoingOptions): void {
  const { providerType, isEnabled, oidcIssuer, oidcClientId, autoCreateUsers, allowedEmailDomains } = config;
  if ((config.rolesClaim === undefined) !== (config.roleMapping === undefined)) {
    const missing = config.rolesClaim === undefined ? "rolesClaim" : "roleMapping";
    throw invalidBody(missing, "is required: rolesClaim and roleMapping must be set together");
  }
  if (providerType === "oidc" && isEnabled) {
    if (oidcIssuer === undefined) throw invalidBody("oidcIssuer", "is required to turn single sign-on on");
    if (oidcClientId === undefined) throw invalidBody("oidcClientId", "is required to turn single sign-on on");
  }
  checkSaml(config, addressRules);
  if (oidcIssuer === undefined) return;
  checkIssuer(oidcIssuer, addressRules);
  if (isMultiOrganizationIssuer(oidcIssuer) && autoCreateUsers && !allowedEmailDomains) {
    throw invalidBody(
      "allowedEmailDomains",
      "is required with autoCreateUsers, because this issuer signs in people of more than one organization",
    );
  }
}

/** Throws if an issuer's address is not supported. @throws {Problem} invalidRequest */
export function checkIssuer(issuer: string, addressRules: OutgoingOptions): void {
  const problem = issuerProblem(issuer, addressRules);
  if (problem !== undefined) throw invalidBody("oidcIssuer", problem);
  if (isEntraWithoutTenant(new URL(issuer))) {
    throw invalidBody(
      "oidcIssuer",
      "must be the issuer of your tenant: https://login.microsoftonline.com/{your tenant's id}/v2.0, not common, organizations or consumers",
    );
  }
}
