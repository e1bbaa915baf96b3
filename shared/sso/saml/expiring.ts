import { X509Certificate } from "node:crypto";
import type { SsoConfiguration } from "../configuration.ts";
import { fingerprintOf } from "./certificates.ts";

/** A certificate that sign-in by SAML depends on, as alerts about what ends have it. */
export interface ExpiringCertificate {
  id: string;
  what: string;
  name: string;
  /** ISO 8601. */
  createdAt: string;
  expiresAt: string;
}

/**
 * The certificates that hold now and end by an instant: ours, and of the identity provider's the one that ends last, since the
 * others' end is what a roll-over is for.
 */
export function expiringCertificates(config: SsoConfiguration, now: Date, by: Date): ExpiringCertificate[] {
  if (config.providerType !== "saml" || !config.isEnabled) return [];
  const { samlIdpEntityId = "", samlIdpCertificates = [], samlServiceCertificate: own } = config;
  const lastFirst = samlIdpCertificates.map((pem) =>
    described(pem, "SAML identity provider's certificate", samlIdpEntityId),
  );
  lastFirst.sort((one, other) => Date.parse(other.expiresAt) - Date.parse(one.expiresAt));
  const found = [
    ...lastFirst.slice(0, 1),
    ...(own ? [described(own, "SAML service provider's certificate", "single sign-on")] : []),
  ];
  return found.filter(
    ({ expiresAt }) => Date.parse(expiresAt) > now.getTime() && Date.parse(expiresAt) <= by.getTime(),
  );
}

function described(pem: string, what: string, name: string): ExpiringCertificate {
  const { validFromDate, validToDate } = new X509Certificate(pem);
  const times = { createdAt: validFromDate.toISOString(), expiresAt: validToDate.toISOString() };
  return { id: `saml.${fingerprintOf(pem)}`, what, name, ...times };
}
