import { invalidBody } from "../platform/http/problem.ts";
import type { OutgoingOptions } from "../platform/outgoing/outgoing.ts";
import { issuerProblem } from "./allowed-addresses.ts";
import type { SsoChange } from "./api.ts";
import type { SsoConfiguration } from "./configuration.ts";
import { isEntraWithoutTenant, isMultiOrganizationIssuer } from "./issuers.ts";
import { checkSaml } from "./saml/settings.ts";

/** Members that don't affect who can sign in, or with which role. */
const OTHER_MEMBERS: readonly string[] = [
  "ssoOnlyMode",
  "loginButtonText",
  "oidcClientSecretExpiresOn",
  "generation",
  "revision",
  "updatedAt",
  "updatedBy",
];

/** Returns the members that decide who can sign in and with which role, for a comparison. */
export const signInMembers = (config: SsoConfiguration): string =>
  JSON.stringify(
    Object.entries(config)
      .filter(([name]) => !OTHER_MEMBERS.includes(name))
      .sort(),
  );

/** Returns the configuration after a change, except for its secret. Null removes a member. */
export function withChange(config: SsoConfiguration, given: SsoChange): SsoConfiguration {
  const { oidcClientSecret: _, ...members } = given;
  const next: Record<string, unknown> = { ...config };
  for (const [name, value] of Object.entries(members)) {
    if (value === null) delete next[name];
    else if (value !== undefined) next[name] = value;
  }
  // The details of the earlier secret don't apply to a new one.
  if (given.oidcClientSecret !== undefined && !given.oidcClientSecretExpiresOn) delete next.oidcClientSecretExpiresOn;
  // The service's key is deleted when it is no longer used. It is created anew if needed again.
  if (!next.samlSignRequests) for (const name of ["samlServiceKey", "samlServiceCertificate"]) delete next[name];
  return next as SsoConfiguration;
}

/**
 * Returns true if the saved client secret stays. It is sent only to the issuer for which it was entered.
 *
 * @throws {Problem} invalidRequest
 */
export function keepsSecret(before: SsoConfiguration, next: SsoConfiguration, given: SsoChange): boolean {
  if (given.oidcClientSecret !== undefined || !before.oidcClientSecret) return false;
  if (next.oidcIssuer === before.oidcIssuer) return true;
  if (next.oidcIssuer === undefined) return false;
  throw invalidBody(
    "oidcClientSecret",
    "is needed again for another issuer: the saved one is not sent there (null for none)",
  );
}

/**
 * Rejects an invalid configuration, even if single sign-on is turned off.
 *
 * @throws {Problem} invalidRequest
 */
export function checkConfiguration(config: SsoConfiguration, targets: OutgoingOptions): void {
  const { providerType, isEnabled, oidcIssuer, oidcClientId, autoCreateUsers, allowedEmailDomains } = config;
  if ((config.rolesClaim === undefined) !== (config.roleMapping === undefined)) {
    const missing = config.rolesClaim === undefined ? "rolesClaim" : "roleMapping";
    throw invalidBody(missing, "is needed: rolesClaim and roleMapping mean something only together");
  }
  if (providerType === "oidc" && isEnabled) {
    if (oidcIssuer === undefined) throw invalidBody("oidcIssuer", "is required to turn single sign-on on");
    if (oidcClientId === undefined) throw invalidBody("oidcClientId", "is required to turn single sign-on on");
  }
  checkSaml(config, targets);
  if (oidcIssuer === undefined) return;
  checkIssuer(oidcIssuer, targets);
  if (isMultiOrganizationIssuer(oidcIssuer) && autoCreateUsers && !allowedEmailDomains) {
    throw invalidBody(
      "allowedEmailDomains",
      "is required with autoCreateUsers, because this issuer signs in people of more than one organization",
    );
  }
}

/** @throws {Problem} invalidRequest for an address at which no supported issuer can be */
export function checkIssuer(issuer: string, targets: OutgoingOptions): void {
  const problem = issuerProblem(issuer, targets);
  if (problem !== undefined) throw invalidBody("oidcIssuer", problem);
  if (isEntraWithoutTenant(new URL(issuer))) {
    throw invalidBody(
      "oidcIssuer",
      "must be your tenant's: https://login.microsoftonline.com/{your tenant's id}/v2.0, not common, organizations or consumers",
    );
  }
}
