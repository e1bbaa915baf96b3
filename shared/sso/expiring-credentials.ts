import { X509Certificate } from "node:crypto";
import { decodeTime } from "ulid";
import type { SsoConfiguration } from "./configuration.ts";
import { fingerprintOf } from "./saml/certificates.ts";

/** A credential that single sign-on depends on, for alerts. Times are ISO 8601. */
export interface SsoCredential {
  id: string;
  /** Kind of the credential, as alerts show it. */
  what: string;
  name: string;
  createdAt: string;
  expiresAt: string;
}

/**
 * Returns the credentials of the configured protocol that expire after `now` and not later than `latest`. An OIDC client secret is
 * included only if an administrator entered its expiry date, because providers don't publish it.
 */
export function credentialsExpiring(config: SsoConfiguration, now: Date, latest: Date): SsoCredential[] {
  const credentials = config.providerType === "oidc" ? clientSecret(config) : certificates(config);
  return credentials.filter(
    ({ expiresAt }) => Date.parse(expiresAt) > now.getTime() && Date.parse(expiresAt) <= latest.getTime(),
  );
}

function clientSecret(config: SsoConfiguration): SsoCredential[] {
  const { oidcClientSecret: secret, oidcClientSecretExpiresOn: expiresAt, oidcClientId: name = "" } = config;
  if (!secret || expiresAt === undefined) return [];
  // The secret's id starts with a ULID, which contains the time when the secret was stored.
  const createdAt = new Date(decodeTime(secret.id.split("-")[0]!)).toISOString();
  return [{ id: `sso.${secret.id}`, what: "Client secret of single sign-on", name, createdAt, expiresAt }];
}

/**
 * Returns the service's certificate, and of the identity provider's certificates the one that expires last: during a rollover
 * the others expire as planned.
 */
function certificates(config: SsoConfiguration): SsoCredential[] {
  const { samlIdpEntityId = "", samlIdpCertificates = [], samlServiceCertificate: serviceCertificate } = config;
  const providerCredentials = samlIdpCertificates.map((pem) =>
    describeCertificate(pem, "SAML identity provider's certificate", samlIdpEntityId),
  );
  providerCredentials.sort((first, second) => Date.parse(second.expiresAt) - Date.parse(first.expiresAt));
  const serviceCredentials = serviceCertificate
    ? [describeCertificate(serviceCertificate, "SAML service provider's certificate", "single sign-on")]
    : [];
  return [...providerCredentials.slice(0, 1), ...serviceCredentials];
}

function describeCertificate(pem: string, what: string, name: string): SsoCredential {
  const { validFromDate, validToDate } = new X509Certificate(pem);
  const times = { createdAt: validFromDate.toISOString(), expiresAt: validToDate.toISOString() };
  return { id: `saml.${fingerprintOf(pem)}`, what, name, ...times };
}
