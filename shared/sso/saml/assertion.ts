import { SECOND_MS } from "../../platform/time.ts";
import { SamlRefused } from "./refused.ts";
import { allChildren, attribute, child, children, is, textOf } from "./xml.ts";

/** How far the identity provider's clock may be from ours. */
const SKEW_MS = 60 * SECOND_MS;
const BEARER = "urn:oasis:names:tc:SAML:2.0:cm:bearer";
const ENTITY = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity";
/** The only NameID that is made to stay the same for a person and to be given to nobody else (Core, 8.3.7). */
export const PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent";
/** https://learn.microsoft.com/entra/identity-platform/reference-saml-tokens */
const ENTRA_OBJECT_ID = "http://schemas.microsoft.com/identity/claims/objectidentifier";

/** What a response must say to be an answer to our request. */
export interface Expected {
  /** The identity provider's name of itself. */
  idpEntityId: string;
  /** PEM; several while it goes over to a new one. One of them must have signed. */
  certificates: readonly string[];
  /** Where the response was sent to: our assertion consumer service. */
  acsUrl: string;
  spEntityId: string;
  /** The id of our AuthnRequest. */
  requestId: string;
  now: Date;
  /** The private key that encrypted assertions are for, PEM. Without it they are refused. */
  decryptionKey?: string;
  /** The attribute that names a person. Without it Entra's object identifier, else a persistent NameID. */
  idAttribute?: string;
}

/** Who signed in, as the identity provider says. */
export interface VerifiedAssertion {
  /** The identity provider's entity id. */
  issuer: string;
  /** Names the person at this issuer for good. */
  subject: string;
  /** Attributes by name, each with all its values that are plain text. */
  attributes: ReadonlyMap<string, readonly string[]>;
  assertionId: string;
  /** From then on nobody takes this assertion any more, skew included. */
  endsAt: Date;
}

/**
 * Who an assertion is about, when it is for us, now, and an answer to our request (Profiles, 4.1.4.2 and 4.1.4.3).
 *
 * @param assertion - As its signature covers it.
 * @throws {SamlRefused}
 */
export function checkAssertion(assertion: Element, expected: Expected): VerifiedAssertion {
  const assertionId = attribute(assertion, "ID");
  if (assertionId === undefined || attribute(assertion, "Version") !== "2.0") throw new SamlRefused("malformed");
  requireIssuer(child(assertion, "assertion", "Issuer"), expected.idpEntityId);
  const subject = child(assertion, "assertion", "Subject");
  if (!subject) throw new SamlRefused("confirmation");
  const ends = [...checkConditions(assertion, expected), ...checkConfirmations(subject, expected)];
  checkStatements(assertion, expected.now);
  const attributes = attributesOf(assertion);
  return {
    issuer: expected.idpEntityId,
    subject: subjectOf(subject, attributes, expected),
    attributes,
    assertionId,
    endsAt: new Date(Math.min(...ends) + SKEW_MS),
  };
}

/** @throws {SamlRefused} issuer */
export function requireIssuer(issuer: Element | undefined, entityId: string): void {
  const format = issuer && attribute(issuer, "Format");
  if (textOf(issuer) !== entityId || (format !== undefined && format !== ENTITY)) throw new SamlRefused("issuer");
}

/** @returns the ends it sets, milliseconds since 1970. */
function checkConditions(assertion: Element, { spEntityId, now }: Expected): number[] {
  const conditions = child(assertion, "assertion", "Conditions");
  if (!conditions) throw new SamlRefused("audience");
  const ends = checkPeriod(conditions, now);
  const restrictions = children(conditions, "assertion", "AudienceRestriction");
  const named = restrictions.every((restriction) =>
    children(restriction, "assertion", "Audience").some((audience) => textOf(audience) === spEntityId),
  );
  if (restrictions.length === 0 || !named) throw new SamlRefused("audience");
  // A condition that is not understood makes an assertion invalid (Core, 2.5.1). Used once is what it is anyway.
  const understood = ["AudienceRestriction", "OneTimeUse", "ProxyRestriction"];
  const known = allChildren(conditions).every((one) => understood.some((name) => is(one, "assertion", name)));
  if (!known) throw new SamlRefused("malformed");
  return ends;
}

/** @returns the ends they set, milliseconds since 1970. */
function checkConfirmations(subject: Element, { acsUrl, requestId, now }: Expected): number[] {
  const bearer = children(subject, "assertion", "SubjectConfirmation").filter(
    (confirmation) => attribute(confirmation, "Method") === BEARER,
  );
  if (bearer.length === 0) throw new SamlRefused("confirmation");
  return bearer.flatMap((confirmation) => {
    const data = child(confirmation, "assertion", "SubjectConfirmationData");
    if (!data || attribute(data, "NotOnOrAfter") === undefined) throw new SamlRefused("confirmation");
    if (attribute(data, "Recipient") !== acsUrl) throw new SamlRefused("recipient");
    if (attribute(data, "InResponseTo") !== requestId) throw new SamlRefused("inResponseTo");
    return checkPeriod(data, now);
  });
}

/** Somebody must have signed in at the identity provider, in a session of it that is not over (Core, 2.7.2). */
function checkStatements(assertion: Element, now: Date): void {
  const statements = children(assertion, "assertion", "AuthnStatement");
  if (statements.length === 0) throw new SamlRefused("malformed");
  const ends = statements.map((statement) => instant(statement, "SessionNotOnOrAfter"));
  if (ends.some((end) => end !== undefined && end + SKEW_MS <= now.getTime())) throw new SamlRefused("expired");
}

/** `NotBefore` and `NotOnOrAfter` of an element. @returns the end, where it has one. */
function checkPeriod(element: Element, now: Date): number[] {
  const [start, end] = [instant(element, "NotBefore"), instant(element, "NotOnOrAfter")];
  if (start !== undefined && start - SKEW_MS > now.getTime()) throw new SamlRefused("notYetValid");
  if (end !== undefined && end + SKEW_MS <= now.getTime()) throw new SamlRefused("expired");
  return end === undefined ? [] : [end];
}

/** SAML's times are in UTC (Core, 1.3.3). */
function instant(element: Element, name: string): number | undefined {
  const text = attribute(element, name);
  if (text === undefined) return undefined;
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) throw new SamlRefused("malformed");
  return time;
}

function attributesOf(assertion: Element): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const statement of children(assertion, "assertion", "AttributeStatement")) {
    for (const one of children(statement, "assertion", "Attribute")) {
      const name = attribute(one, "Name");
      if (name === undefined) throw new SamlRefused("malformed");
      const values = children(one, "assertion", "AttributeValue").flatMap((value) => textOf(value) ?? []);
      found.set(name, [...(found.get(name) ?? []), ...values]);
    }
  }
  return found;
}

/**
 * What names the person: the attribute that was configured and nothing else, or without one Entra's object identifier, else a
 * persistent NameID of this issuer. Never a NameID that another person may have tomorrow: e-mail address, transient, unspecified.
 */
function subjectOf(subject: Element, attributes: ReadonlyMap<string, readonly string[]>, expected: Expected): string {
  const { idAttribute, idpEntityId, spEntityId } = expected;
  const values = attributes.get(idAttribute ?? ENTRA_OBJECT_ID);
  if (values !== undefined || idAttribute !== undefined) {
    const [value, ...more] = values ?? [];
    if (value === undefined || more.length > 0) throw new SamlRefused("noIdentity");
    return value;
  }
  const nameId = child(subject, "assertion", "NameID");
  const text = textOf(nameId);
  const qualifiers = [
    [nameId && attribute(nameId, "NameQualifier"), idpEntityId],
    [nameId && attribute(nameId, "SPNameQualifier"), spEntityId],
  ];
  const ours = qualifiers.every(([given, own]) => given === undefined || given === own);
  if (!nameId || text === undefined || attribute(nameId, "Format") !== PERSISTENT || !ours)
    throw new SamlRefused("noIdentity");
  return text;
}
