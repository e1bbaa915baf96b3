import { X509Certificate } from "node:crypto";
import { decodeTime } from "ulid";
import type { SsoConfiguration } from "./configuration.ts";
import { fingerprintOf } from "./saml/certificates.ts";

/** A credential that single sign-on depends on, for alerts. Times are ISO 8601. */
export interface SsoCredential {
  id: string;
  what: string;
  name: string;
  createdAt: string;
  expiresAt: string;
}

/** Returns the valid credentials of the protocol in use that expire by a time. */
export function credentialsExpiring(config: SsoConfiguration, now: Date, by: Date): SsoCredential[] {
  const all = config.providerType === "oidc" ? clientSecret(config) : certificates(config);
  return all.filter(({ expiresAt }) => Date.parse(expiresAt) > now.getTime() && Date.parse(expiresAt) <= by.getTime());
}

function clientSecret(config: SsoConfiguration): SsoCredential[] {
  const { oidcClientSecret: secret, oidcClientSecretExpiresOn: expiresAt, oidcClientId: name = "" } = config;
  if (!secret || expiresAt === undefined) return [];
  const createdAt = new Date(decodeTime(secret.id.split("-")[0]!)).toISOString();
  return [{ id: `sso.${secret.id}`, what: "Client secret of single sign-on", name, createdAt, expiresAt }];
}

/**
 * The service's certificate, and the last-expiring certificate of the identity provider: during a rollover the others expire as
 * planned.
 */
function certificates(config: SsoConfiguration): SsoCredential[] {
  const { samlIdpEntityId = "", samlIdpCertificates = [], samlServiceCertificate: own } = config;
  const theirs = samlIdpCertificates.map((pem) =>
    described(pem, "SAML identity provider's certificate", samlIdpEntityId),
  );
  theirs.sort((one, other) => Date.parse(other.expiresAt) - Date.parse(one.expiresAt));
  const ours = own ? [described(own, "SAML service provider's certificate", "single sign-on")] : [];
  return [...theirs.slice(0, 1), ...ours];
}

function described(pem: string, what: string, name: string): SsoCredential {
  const { validFromDate, validToDate } = new X509Certificate(pem);
  const times = { createdAt: validFromDate.toISOString(), expiresAt: validToDate.toISOString() };
  return { id: `saml.${fingerprintOf(pem)}`, what, name, ...times };
}
