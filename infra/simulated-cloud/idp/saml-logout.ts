// Creates the SAML provider's logout messages.

import { createPrivateKey, sign } from "node:crypto";
import { deflateRawSync } from "node:zlib";
import type { SamlKey } from "./saml-signature.ts";
import { escapeHtml } from "./sign-in-page.ts";

/** A LogoutRequest of the provider. */
export interface SamlLogoutRequest {
  nameId: string;
  sessionIndexes: readonly string[];
  /** Changes the message before it is signed. */
  change?: (xml: string) => string;
  /** Default: the provider's key. `foreignKey`: an unpublished key. `none`: no signature. */
  signature?: "foreignKey" | "none";
  /** `none`: the URL has no RelayState. */
  relayState?: "none";
}

const RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const NAMESPACES =
  'xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"';

/** Returns the LogoutRequest as XML: SAML Core, section 3.7.1. */
export function logoutRequest(
  { nameId, sessionIndexes }: SamlLogoutRequest,
  { id, issuer, destination }: { id: string; issuer: string; destination: string },
): string {
  const indexes = sessionIndexes
    .map((index) => `<samlp:SessionIndex>${escapeHtml(index)}</samlp:SessionIndex>`)
    .join("");
  return `<samlp:LogoutRequest ${NAMESPACES} ID="${id}" Version="2.0" IssueInstant="${new Date().toISOString()}" Destination="${escapeHtml(destination)}"><saml:Issuer>${escapeHtml(issuer)}</saml:Issuer><saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">${escapeHtml(nameId)}</saml:NameID>${indexes}</samlp:LogoutRequest>`;
}

/** Returns a successful LogoutResponse as XML: SAML Core, section 3.7.2. */
export const logoutResponse = ({
  id,
  issuer,
  destination,
  inResponseTo,
}: Record<"id" | "issuer" | "destination" | "inResponseTo", string>) =>
  `<samlp:LogoutResponse ${NAMESPACES} ID="${id}" Version="2.0" IssueInstant="${new Date().toISOString()}" Destination="${escapeHtml(destination)}" InResponseTo="${escapeHtml(inResponseTo)}"><saml:Issuer>${escapeHtml(issuer)}</saml:Issuer><samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/></samlp:Status></samlp:LogoutResponse>`;

/**
 * Returns the URL that carries a message by HTTP-Redirect (SAML Bindings, section 3.4).
 * @param key - Undefined: unsigned.
 */
export function redirectUrl(
  destination: string,
  parameter: "SAMLRequest" | "SAMLResponse",
  xml: string,
  key: SamlKey | undefined,
  relayState?: string,
): string {
  const pairs: [string, string][] = [[parameter, deflateRawSync(xml).toString("base64")]];
  if (relayState !== undefined) pairs.push(["RelayState", relayState]);
  if (key) pairs.push(["SigAlg", RSA_SHA256]);
  const query = pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  if (!key) return `${destination}?${query}`;
  const privateKey = createPrivateKey({ key: key.privateKey as never, format: "jwk" });
  const signature = sign("sha256", Buffer.from(query), privateKey).toString("base64");
  return `${destination}?${query}&Signature=${encodeURIComponent(signature)}`;
}
