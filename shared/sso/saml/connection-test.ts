import type { SsoConfiguration } from "../configuration.ts";
import type { Check } from "../protocol.ts";
import { expiryOf } from "./certificates.ts";

/**
 * Tests a SAML configuration without a browser. It covers only local checks, because the service itself never connects to the
 * identity provider.
 */
export function testSaml(config: SsoConfiguration, now: Date): Check[] {
  const { samlEntryPoint, samlIdpEntityId, samlIdpCertificates = [] } = config;
  const hasAddress = samlEntryPoint !== undefined && samlIdpEntityId !== undefined;
  const lastExpiryMs = Math.max(0, ...samlIdpCertificates.map((pem) => expiryOf(pem).getTime()));
  return [
    {
      name: "address",
      passed: hasAddress,
      detail: hasAddress
        ? `Browsers are redirected to ${samlEntryPoint}. Responses must be signed by ${samlIdpEntityId}.`
        : "Set samlIdpMetadataXml, or samlEntryPoint and samlIdpEntityId.",
    },
    {
      // The signing certificates of the identity provider. One that has not expired is enough.
      name: "keys",
      passed: lastExpiryMs > now.getTime(),
      detail: keysDetail(samlIdpCertificates.length, lastExpiryMs, now),
    },
  ];
}

function keysDetail(count: number, lastExpiryMs: number, now: Date): string {
  if (count === 0) return "Set samlIdpMetadataXml or samlIdpCertificates.";
  const day = new Date(lastExpiryMs).toISOString().slice(0, 10);
  if (lastExpiryMs > now.getTime()) return `Certificates: ${count}; the last one expires on ${day}.`;
  return `The last certificate expired on ${day}. Set the certificates with which the identity provider signs now.`;
}
