// Creates signed SAML responses.

import type { Person } from "./people.ts";
import { type SamlKey, type SignatureOptions, signXml } from "./saml-signature.ts";
import { escapeHtml } from "./sign-in-page.ts";

/** The request to which a response belongs. */
export interface SamlRequest {
  id: string;
  issuer: string;
  /** URL to which the response is sent. */
  acsUrl: string;
}

/** Changes to a correct response. Each function changes a whole document as text, before or after signing. */
export interface SamlMode {
  /** Changes the assertion before it is signed. */
  assertion?: (xml: string) => string;
  /** Changes the response around the assertion before it is signed. */
  response?: (xml: string) => string;
  /** The signed elements. Default: only the assertion. */
  signs?: "assertion" | "response" | "both" | "nothing";
  signature?: SignatureOptions;
  /** Signs with an unpublished key. */
  foreignKey?: true;
  /** Changes the document after signing. */
  sent?: (xml: string) => string;
  /** Sends a response to a request that was never sent. */
  unsolicited?: true;
}

/**
 * The response to a canceled sign-in: a failure status without an assertion. SAML Core, section 3.2.2.2. Its message contains
 * markup, which the service must escape when it shows the message.
 */
export const CANCELED_SIGN_IN: SamlMode = {
  signs: "response",
  response: (xml) =>
    xml
      .replace(/<saml:Assertion.*<\/saml:Assertion>/, "")
      .replace(
        /<samlp:StatusCode [^>]*>/,
        '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Responder"><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:AuthnFailed"/></samlp:StatusCode><samlp:StatusMessage>&lt;b&gt;Nobody&lt;/b&gt; was chosen</samlp:StatusMessage>',
      ),
};

const MINUTE_MS = 60_000;

/**
 * Returns a signed Response about a person in Entra's format: a persistent NameID, and attributes with Entra's names.
 * https://learn.microsoft.com/entra/identity-platform/reference-saml-tokens
 */
export async function samlResponse(
  entityId: string,
  request: SamlRequest,
  person: Person,
  key: SamlKey,
  { now, id, sessionIndex, mode = {} }: { now: Date; id: () => string; sessionIndex?: string; mode?: SamlMode },
): Promise<string> {
  const timeAfter = (minutes: number) => new Date(now.getTime() + minutes * MINUTE_MS).toISOString();
  const {
    signs = "assertion",
    assertion: changeAssertion = unchanged,
    response: changeResponse = unchanged,
    sent = unchanged,
  } = mode;
  const inResponseTo = mode.unsolicited ? id() : request.id;
  const issuer = `<saml:Issuer>${escapeHtml(entityId)}</saml:Issuer>`;
  const unsignedAssertion = changeAssertion(
    [
      `<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="${id()}" Version="2.0" IssueInstant="${timeAfter(0)}">`,
      issuer,
      `<saml:Subject><saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">${person.objectId}</saml:NameID>`,
      `<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData InResponseTo="${escapeHtml(inResponseTo)}" NotOnOrAfter="${timeAfter(5)}" Recipient="${escapeHtml(request.acsUrl)}"/></saml:SubjectConfirmation></saml:Subject>`,
      `<saml:Conditions NotBefore="${timeAfter(-5)}" NotOnOrAfter="${timeAfter(60)}"><saml:AudienceRestriction><saml:Audience>${escapeHtml(request.issuer)}</saml:Audience></saml:AudienceRestriction></saml:Conditions>`,
      `<saml:AuthnStatement AuthnInstant="${timeAfter(-1)}" SessionIndex="${sessionIndex ?? id()}"><saml:AuthnContext><saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>`,
      `<saml:AttributeStatement>${attributes(person)}</saml:AttributeStatement></saml:Assertion>`,
    ].join(""),
  );
  const sign = (xml: string) => signXml(xml, key, mode.signature);
  const assertion = signs === "assertion" || signs === "both" ? await sign(unsignedAssertion) : unsignedAssertion;
  const response = changeResponse(
    [
      `<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="${id()}" Version="2.0" IssueInstant="${timeAfter(0)}" Destination="${escapeHtml(request.acsUrl)}" InResponseTo="${escapeHtml(inResponseTo)}">`,
      issuer,
      `<samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/></samlp:Status>`,
      assertion,
      "</samlp:Response>",
    ].join(""),
  );
  return sent(signs === "response" || signs === "both" ? await sign(response) : response);
}

const unchanged = (xml: string): string => xml;

const ENTRA = "http://schemas.microsoft.com";
const CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims";

function attributes({ objectId, name, email, emailVerified, groups, roles }: Person): string {
  const values: Record<string, readonly string[]> = {
    [`${ENTRA}/identity/claims/objectidentifier`]: [objectId],
    [`${ENTRA}/identity/claims/displayname`]: [name],
    // Entra's default for this claim is the user principal name, which looks like an address.
    [`${CLAIMS}/name`]: [email],
    [`${CLAIMS}/emailaddress`]: [email],
    email_verified: [String(emailVerified)],
    [`${ENTRA}/ws/2008/06/identity/claims/groups`]: groups,
    [`${ENTRA}/ws/2008/06/identity/claims/role`]: roles,
  };
  return Object.entries(values)
    .filter(([, attributeValues]) => attributeValues.length > 0)
    .map(([attribute, attributeValues]) => {
      const list = attributeValues.map((value) => `<saml:AttributeValue>${escapeHtml(value)}</saml:AttributeValue>`);
      return `<saml:Attribute Name="${attribute}">${list.join("")}</saml:Attribute>`;
    })
    .join("");
}
