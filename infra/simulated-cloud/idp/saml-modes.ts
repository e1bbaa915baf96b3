// Misbehavior modes of the simulated SAML provider. `assertion` and `response` change a part of the correct message before it
// is signed, and `sent` changes the signed message. `signs` names the signed elements (default: the assertion).

import type { SamlMode } from "./saml-response.ts";
import { wrap } from "./saml-wrapping.ts";

const ELSEWHERE = "https://elsewhere.example/saml";

/** Replaces a text. Throws if the text does not occur, so that every mode changes the response. */
const change = (pattern: RegExp, to: string) => (xml: string) => {
  const changed = xml.replace(pattern, to);
  if (changed === xml) throw new Error(`The response does not contain ${pattern}.`);
  return changed;
};
const remove = (pattern: RegExp) => change(pattern, "");
/** Applies several changes in sequence. */
const inSequence =
  (...changes: ((xml: string) => string)[]) =>
  (xml: string) =>
    changes.reduce((text, one) => one(text), xml);
/**
 * Moves the time in an attribute of an element. The modes move a time at least two minutes past its limit, more than clocks may
 * differ. saml-response.ts contains the correct times.
 */
const moveTime = (element: string, attribute: string, minutes: number) => (xml: string) =>
  xml.replace(new RegExp(`(<saml:${element} [^>]*${attribute}=")([^"]+)`), (_all, before: string, time: string) => {
    return before + new Date(Date.parse(time) + minutes * 60_000).toISOString();
  });

const withoutObjectId = remove(/<saml:Attribute Name="[^"]*objectidentifier">.*?<\/saml:Attribute>/);
const nameId = (format: string) => change(/nameid-format:persistent/, format);
const UNSPECIFIED = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified";
const EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress";
const withFormat = (format: string) =>
  inSequence(withoutObjectId, change(/urn:oasis:names:tc:SAML:2\.0:nameid-format:persistent/, format));
/** A second, unsigned assertion. */
const ANOTHER_ASSERTION =
  '<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_another" Version="2.0"/>';

/** Modes whose response a service provider must accept. */
export const GOOD_SAML_MODES = {
  correct: {},
  responseSigned: { signs: "response" },
  bothSigned: { signs: "both" },
  sha512: { signature: { hash: "SHA-512" } },
  withComments: { signature: { transform: "exc-c14n-com" } },
  nameIdOnly: { assertion: withoutObjectId },
  /** Comments are not signed, so an attacker can insert one after signing. The comment must not shorten the NameID. */
  commentInNameId: { sent: change(/(<saml:NameID[^>]*>.{8})/, "$1<!-- -->") },
} satisfies Record<string, SamlMode>;

/**
 * Misbehavior modes of the SAML provider. Each mode makes one mistake of the provider or one change in transit. A service
 * provider must reject each.
 */
export const BAD_SAML_MODES = {
  wrongDestination: { response: change(/Destination="[^"]*"/, `Destination="${ELSEWHERE}"`) },
  wrongRecipient: { assertion: change(/Recipient="[^"]*"/, `Recipient="${ELSEWHERE}"`) },
  missingRecipient: { assertion: remove(/Recipient="[^"]*"/) },
  wrongAudience: { assertion: change(/<saml:Audience>[^<]*/, `<saml:Audience>${ELSEWHERE}`) },
  missingAudience: { assertion: remove(/<saml:AudienceRestriction>.*<\/saml:AudienceRestriction>/) },
  secondAudience: {
    assertion: change(
      /<\/saml:AudienceRestriction>/,
      `</saml:AudienceRestriction><saml:AudienceRestriction><saml:Audience>${ELSEWHERE}</saml:Audience></saml:AudienceRestriction>`,
    ),
  },
  missingConditions: { assertion: remove(/<saml:Conditions.*<\/saml:Conditions>/) },
  unknownCondition: { assertion: change(/<\/saml:Conditions>/, "<saml:Condition/></saml:Conditions>") },
  conditionsExpired: { assertion: moveTime("Conditions", "NotOnOrAfter", -62) },
  conditionsNotYetValid: { assertion: moveTime("Conditions", "NotBefore", 7) },
  missingConfirmation: { assertion: remove(/<saml:SubjectConfirmation .*<\/saml:SubjectConfirmation>/) },
  otherConfirmation: { assertion: change(/cm:bearer/, "cm:sender-vouches") },
  missingConfirmationData: { assertion: remove(/<saml:SubjectConfirmationData[^>]*\/>/) },
  confirmationExpired: { assertion: moveTime("SubjectConfirmationData", "NotOnOrAfter", -7) },
  missingConfirmationEnd: { assertion: remove(/ NotOnOrAfter="[^"]*"(?= Recipient)/) },
  sessionOver: {
    assertion: inSequence(
      change(/(<saml:AuthnStatement [^>]*AuthnInstant="([^"]+)")/, '$1 SessionNotOnOrAfter="$2"'),
      moveTime("AuthnStatement", "SessionNotOnOrAfter", -60),
    ),
  },
  missingStatement: { assertion: remove(/<saml:AuthnStatement.*<\/saml:AuthnStatement>/) },
  otherRequest: { response: change(/InResponseTo="[^"]*"/, 'InResponseTo="_another"') },
  otherRequestConfirmed: { assertion: change(/InResponseTo="[^"]*"/, 'InResponseTo="_another"') },
  unsolicited: { unsolicited: true },
  unsolicitedWithoutRequest: {
    assertion: remove(/InResponseTo="[^"]*"/),
    response: remove(/InResponseTo="[^"]*"/),
  },
  wrongAssertionIssuer: { assertion: change(/<saml:Issuer>[^<]*/, `<saml:Issuer>${ELSEWHERE}`) },
  wrongResponseIssuer: { response: change(/<saml:Issuer>[^<]*/, `<saml:Issuer>${ELSEWHERE}`) },
  // Only a signed response must have an issuer (SAML Profiles, section 4.1.4.2).
  missingResponseIssuer: { signs: "response", response: remove(/<saml:Issuer>[^<]*<\/saml:Issuer>/) },
  otherVersion: { response: change(/Version="2.0"/, 'Version="1.1"') },
  otherAssertionVersion: { assertion: change(/Version="2.0"/, 'Version="1.1"') },
  otherMessage: { response: change(/samlp:Response/g, "samlp:LogoutResponse") },
  failed: { response: change(/status:Success/, "status:Requester") },
  notSigned: { signs: "nothing" },
  foreignKey: { foreignKey: true },
  foreignKeyOfResponse: { signs: "response", foreignKey: true },
  // Replaces the person by Ada, an administrator.
  tampered: { sent: change(/0a11ce00-0000-4000-8000-\d{12}/g, "0a11ce00-0000-4000-8000-000000000001") },
  sha1: { signature: { hash: "SHA-1" } },
  sha1Digest: { signature: { digest: "SHA-1" } },
  sha1Signature: { signature: { hash: "SHA-1", digest: "SHA-256" } },
  otherTransform: { signature: { transform: "c14n" } },
  otherCanonicalization: { signature: { inclusive: true } },
  documentType: {
    response: (xml) => `<!DOCTYPE Response [<!ENTITY who "ada">]>${xml}`,
  },
  // `large` to `deep`: messages that cost a verifier much time or memory.
  large: { response: change(/<samlp:Status>/, `<!-- ${"x".repeat(256 * 1024)} --><samlp:Status>`) },
  wide: {
    response: change(/<samlp:Status>/, `<samlp:Extensions>${"<a/>".repeat(5000)}</samlp:Extensions><samlp:Status>`),
  },
  manyReferences: { sent: change(/(<ds:Reference .*?<\/ds:Reference>)/s, "$1".repeat(400)) },
  // Two enveloped-signature transforms and one canonicalization.
  threeTransforms: { signature: { enveloped: 2 } },
  manyTransforms: { sent: change(/(<ds:Transform [^>]*exc-c14n#"\s*\/>)/, "$1".repeat(400)) },
  deep: { response: change(/<samlp:Status>/, `${"<a>".repeat(1000)}${"</a>".repeat(1000)}<samlp:Status>`) },
  notWellFormed: { sent: change(/<samlp:Status>/, "<samlp:Status a=b>") },
  anotherBefore: { response: change(/<saml:Assertion/, `${ANOTHER_ASSERTION}<saml:Assertion`) },
  anotherAfter: { response: change(/<\/samlp:Response>/, `${ANOTHER_ASSERTION}</samlp:Response>`) },
  anotherNamespace: { response: change(/<\/samlp:Response>/, '<Assertion xmlns="urn:example"/></samlp:Response>') },
  signatureElsewhere: {
    response: change(
      /<samlp:Status>/,
      '<samlp:Extensions><Signature xmlns="urn:example"/></samlp:Extensions><samlp:Status>',
    ),
  },
  transientNameId: { assertion: inSequence(withoutObjectId, nameId("nameid-format:transient")) },
  unspecifiedNameId: { assertion: withFormat(UNSPECIFIED) },
  emailNameId: { assertion: withFormat(EMAIL) },
  foreignNameId: {
    assertion: inSequence(withoutObjectId, change(/<saml:NameID /, `<saml:NameID NameQualifier="${ELSEWHERE}" `)),
  },
  twoObjectIds: {
    assertion: change(/(<saml:AttributeValue>)/, "$1another</saml:AttributeValue><saml:AttributeValue>"),
  },
  elementInNameId: { assertion: inSequence(withoutObjectId, change(/(<saml:NameID[^>]*>.{8})/, "$1<x/>")) },
  // The signature wrapping attacks XSW1 to XSW8 (saml-wrapping.ts): a forged copy takes the place of the signed element.
  xsw1: { signs: "response", sent: (xml) => wrap(xml, 1) },
  xsw2: { signs: "response", sent: (xml) => wrap(xml, 2) },
  xsw3: { sent: (xml) => wrap(xml, 3) },
  xsw4: { sent: (xml) => wrap(xml, 4) },
  xsw5: { sent: (xml) => wrap(xml, 5) },
  xsw6: { sent: (xml) => wrap(xml, 6) },
  xsw7: { sent: (xml) => wrap(xml, 7) },
  xsw8: { sent: (xml) => wrap(xml, 8) },
} satisfies Record<string, SamlMode>;

export const SAML_MODES: Record<SamlModeName, SamlMode> = { ...GOOD_SAML_MODES, ...BAD_SAML_MODES };
export type SamlModeName = keyof typeof GOOD_SAML_MODES | keyof typeof BAD_SAML_MODES;

export const isSamlMode = (name: string): name is SamlModeName => Object.hasOwn(SAML_MODES, name);
