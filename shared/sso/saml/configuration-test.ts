import type { SsoConfiguration } from "../configuration.ts";
import type { Check } from "../protocol.ts";
import { expiryOf } from "./certificates.ts";

/**
 * Tests a SAML configuration without a browser. It covers only local checks, because the service itself never connects to the
 * identity provider.
 */
export function testSaml(config: SsoConfiguration, now: Date): Check[] {
  const { samlEntryPoint, samlIdpEntityId, samlIdpCertificates = [] } = config;
  const addressed = samlEntryPoint !== undefined && samlIdpEntityId !== undefined;
  const ends = Math.max(0, ...samlIdpCertificates.map((pem) => expiryOf(pem).getTime()));
  return [
    {
      name: "address",
      passed: addressed,
      detail: addressed
        ? `Browsers are sent to ${samlEntryPoint}, and ${samlIdpEntityId} must have signed what they come back with.`
        : "Give samlIdpMetadataXml, or samlEntryPoint and samlIdpEntityId.",
    },
    { name: "keys", passed: ends > now.getTime(), detail: keysDetail(samlIdpCertificates.length, ends, now) },
  ];
}

function keysDetail(count: number, ends: number, now: Date): string {
  if (count === 0) return "Give samlIdpMetadataXml, or samlIdpCertificates.";
  const day = new Date(ends).toISOString().slice(0, 10);
  if (ends > now.getTime()) return `Certificates: ${count}; the last one ends on ${day}.`;
  return `The last certificate ended on ${day}: give those that the identity provider signs with now.`;
}
