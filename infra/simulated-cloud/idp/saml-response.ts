// Creates signed SAML responses.

import type { Person } from "./people.ts";
import { type SamlKey, type SignatureOptions, signXml } from "./saml-signature.ts";
import { escapeHtml } from "./sign-in-page.ts";

/** ID of the request that the response answers. */
export interface SamlRequest {
  id: string;
  issuer: string;
  /** URL to which the response is sent. */
  acsUrl: string;
}

/** Changes to an otherwise correct response. Each function changes a whole document as text, before or after signing. */
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
  /** Answers a request ID that was never sent. */
  unsolicited?: true;
}

/** Returns a response for a canceled sign-in: a failure status without an assertion. SAML Core, section 3.2.2.2. */
export const FAILED: SamlMode = {
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
 * Returns a signed Response to a request about a person in Entra's format: a persistent NameID and attributes under Entra's
 * names. https://learn.microsoft.com/entra/identity-platform/reference-saml-tokens
 */
export async function samlResponse(
  entityId: string,
  request: SamlRequest,
  person: Person,
  key: SamlKey,
  { now, id, mode = {} }: { now: Date; id: () => string; mode?: SamlMode },
): Promise<string> {
  const at = (minutes: number) => new Date(now.getTime() + minutes * MINUTE_MS).toISOString();
  const { signs = "assertion", assertion: changeAssertion = same, response: changeResponse = same, sent = same } = mode;
  const answered = mode.unsolicited ? id() : request.id;
  const issuer = `<saml:Issuer>${escapeHtml(entityId)}</saml:Issuer>`;
  const plain = changeAssertion(
    [
      `<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="${id()}" Version="2.0" IssueInstant="${at(0)}">`,
      issuer,
      `<saml:Subject><saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">${person.objectId}</saml:NameID>`,
      `<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"><saml:SubjectConfirmationData InResponseTo="${escapeHtml(answered)}" NotOnOrAfter="${at(5)}" Recipient="${escapeHtml(request.acsUrl)}"/></saml:SubjectConfirmation></saml:Subject>`,
      `<saml:Conditions NotBefore="${at(-5)}" NotOnOrAfter="${at(60)}"><saml:AudienceRestriction><saml:Audience>${escapeHtml(request.issuer)}</saml:Audience></saml:AudienceRestriction></saml:Conditions>`,
      `<saml:AuthnStatement AuthnInstant="${at(-1)}" SessionIndex="${id()}"><saml:AuthnContext><saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>`,
      `<saml:AttributeStatement>${attributes(person)}</saml:AttributeStatement></saml:Assertion>`,
    ].join(""),
  );
  const sign = (xml: string) => signXml(xml, key, mode.signature);
  const assertion = signs === "assertion" || signs === "both" ? await sign(plain) : plain;
  const response = changeResponse(
    [
      `<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="${id()}" Version="2.0" IssueInstant="${at(0)}" Destination="${escapeHtml(request.acsUrl)}" InResponseTo="${escapeHtml(answered)}">`,
      issuer,
      `<samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/></samlp:Status>`,
      assertion,
      "</samlp:Response>",
    ].join(""),
  );
  return sent(signs === "response" || signs === "both" ? await sign(response) : response);
}

const same = (xml: string): string => xml;

const ENTRA = "http://schemas.microsoft.com";
const CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims";

function attributes({ objectId, name, email, emailVerified, groups, roles }: Person): string {
  const values: Record<string, readonly string[]> = {
    [`${ENTRA}/identity/claims/objectidentifier`]: [objectId],
    [`${ENTRA}/identity/claims/displayname`]: [name],
    [`${CLAIMS}/name`]: [email],
    [`${CLAIMS}/emailaddress`]: [email],
    email_verified: [String(emailVerified)],
    [`${ENTRA}/ws/2008/06/identity/claims/groups`]: groups,
    [`${ENTRA}/ws/2008/06/identity/claims/role`]: roles,
  };
  return Object.entries(values)
    .filter(([, of]) => of.length > 0)
    .map(([attribute, of]) => {
      const list = of.map((value) => `<saml:AttributeValue>${escapeHtml(value)}</saml:AttributeValue>`);
      return `<saml:Attribute Name="${attribute}">${list.join("")}</saml:Attribute>`;
    })
    .join("");
}
