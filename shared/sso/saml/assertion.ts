import type { ProviderSession } from "../../access/user.ts";
import { SECOND_MS } from "../../platform/time.ts";
import { nameIdOf } from "./name-id.ts";
import { SamlRefused } from "./saml-refused.ts";
import { allChildren, attribute, child, children, isElement, textOf } from "./xml.ts";

/** Tolerated clock difference to the identity provider. */
const SKEW_MS = 60 * SECOND_MS;
// "Core" and "Profiles" in comments are parts of the SAML 2.0 standard: https://docs.oasis-open.org/security/saml/v2.0/

const BEARER = "urn:oasis:names:tc:SAML:2.0:cm:bearer";
const ENTITY = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity";
/** The only NameID format that is permanent for a person and never reassigned (Core, 8.3.7). */
export const PERSISTENT = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent";
/** https://learn.microsoft.com/entra/identity-platform/reference-saml-tokens */
const ENTRA_OBJECT_ID = "http://schemas.microsoft.com/identity/claims/objectidentifier";

/** Values that a valid response to the service's request must contain. */
export interface ExpectedValues {
  /** Entity id of the identity provider. */
  idpEntityId: string;
  /** Signing certificates, PEM; several during a rollover. The response must be signed with one of them. */
  certificates: readonly string[];
  /** Recipient of the response: the service's assertion consumer service. */
  acsUrl: string;
  /** Entity id of this service. */
  spEntityId: string;
  /** The id of the AuthnRequest. */
  requestId: string;
  now: Date;
  /** The private key for encrypted assertions, PEM. Without it they are rejected. */
  decryptionKey?: string;
  /** The attribute that identifies a person. Default: Entra's object identifier, else a persistent NameID. */
  idAttribute?: string;
}

/** The person who signed in, according to the identity provider. */
export interface VerifiedAssertion {
  /** Entity id of the identity provider. */
  issuer: string;
  /** Permanent identifier of the person at this issuer. */
  subject: string;
  /** Attributes by name, each with all its plain-text values. */
  attributes: ReadonlyMap<string, readonly string[]>;
  /** The NameID and the SessionIndex, which a logout request must repeat. */
  session: Omit<ProviderSession, "issuer">;
  /** The time at which the provider authenticated the person, if the first statement has a valid one. */
  authenticatedAt: Date | undefined;
  assertionId: string;
  /** The assertion expires at this time, clock tolerance included. */
  endsAt: Date;
}

/**
 * Returns the person of an assertion after checking that it is for this service, valid now, and a response to its request
 * (Profiles, 4.1.4.2 and 4.1.4.3). The caller has verified the signature, and records the assertion's ID so that it works once.
 *
 * @param assertion - The element that the signature covers.
 * @throws {SamlRefused}
 */
export function checkAssertion(assertion: Element, expected: ExpectedValues): VerifiedAssertion {
  const assertionId = attribute(assertion, "ID");
  if (assertionId === undefined || attribute(assertion, "Version") !== "2.0") throw new SamlRefused("malformed");
  requireIssuer(child(assertion, "assertion", "Issuer"), expected.idpEntityId);
  const subject = child(assertion, "assertion", "Subject");
  if (!subject) throw new SamlRefused("confirmation");
  // The list is not empty, because each confirmation must have an expiry time.
  const expiryTimes = [...checkConditions(assertion, expected), ...checkConfirmations(subject, expected)];
  const { sessionIndex, authenticatedAt } = checkStatements(assertion, expected.now);
  const attributes = attributesOf(assertion);
  return {
    issuer: expected.idpEntityId,
    subject: subjectOf(subject, attributes, expected),
    attributes,
    session: sessionOf(subject, sessionIndex),
    authenticatedAt,
    assertionId,
    endsAt: new Date(Math.min(...expiryTimes) + SKEW_MS),
  };
}

/** Requires that an Issuer element names the identity provider. @throws {SamlRefused} issuer */
export function requireIssuer(issuer: Element | undefined, entityId: string): void {
  const format = issuer && attribute(issuer, "Format");
  if (textOf(issuer) !== entityId || (format !== undefined && format !== ENTITY)) throw new SamlRefused("issuer");
}

/** @returns The expiry times in the conditions, milliseconds since 1970. */
function checkConditions(assertion: Element, { spEntityId, now }: ExpectedValues): number[] {
  const conditions = child(assertion, "assertion", "Conditions");
  if (!conditions) throw new SamlRefused("audience");
  const expiryTimes = checkPeriod(conditions, now);
  const restrictions = children(conditions, "assertion", "AudienceRestriction");
  const isAudience = restrictions.every((restriction) =>
    children(restriction, "assertion", "Audience").some((audience) => textOf(audience) === spEntityId),
  );
  if (restrictions.length === 0 || !isAudience) throw new SamlRefused("audience");
  // An unknown condition makes an assertion invalid (Core, 2.5.1). OneTimeUse is always enforced.
  const knownConditions = ["AudienceRestriction", "OneTimeUse", "ProxyRestriction"];
  const areAllKnown = allChildren(conditions).every((condition) =>
    knownConditions.some((name) => isElement(condition, "assertion", name)),
  );
  if (!areAllKnown) throw new SamlRefused("malformed");
  return expiryTimes;
}

/**
 * Requires that every bearer confirmation is valid. This is stricter than Profiles, 4.1.4.3, which requires one.
 *
 * @returns The expiry times of the confirmations, milliseconds since 1970.
 */
function checkConfirmations(subject: Element, { acsUrl, requestId, now }: ExpectedValues): number[] {
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

/**
 * Requires an authentication at the identity provider in a session that has not expired (Core, 2.7.2).
 *
 * @returns The SessionIndex and the time of the first statement about an authentication, if it has them.
 */
function checkStatements(
  assertion: Element,
  now: Date,
): { sessionIndex: string | undefined; authenticatedAt: Date | undefined } {
  const statements = children(assertion, "assertion", "AuthnStatement");
  if (statements.length === 0) throw new SamlRefused("malformed");
  const sessionEnds = statements.map((statement) => timeOf(statement, "SessionNotOnOrAfter"));
  if (sessionEnds.some((end) => end !== undefined && end + SKEW_MS <= now.getTime())) throw new SamlRefused("expired");
  const authenticatedMs = Date.parse(attribute(statements[0]!, "AuthnInstant") ?? "");
  return {
    sessionIndex: attribute(statements[0]!, "SessionIndex"),
    authenticatedAt: Number.isNaN(authenticatedMs) ? undefined : new Date(authenticatedMs),
  };
}

/** Longer identifiers of a session are ignored. */
const MAX_SESSION_CHARACTERS = 512;

/** Returns the identifiers of the session at the provider. Encrypted NameIDs are not read. */
function sessionOf(subject: Element, sessionIndex: string | undefined): VerifiedAssertion["session"] {
  const nameId = nameIdOf(subject);
  return {
    ...(sessionIndex !== undefined && sessionIndex.length <= MAX_SESSION_CHARACTERS && { sessionId: sessionIndex }),
    ...(nameId && JSON.stringify(nameId).length <= MAX_SESSION_CHARACTERS && { nameId }),
  };
}

/** Checks `NotBefore` and `NotOnOrAfter` of an element. @returns A list with the expiry time, or an empty one. */
function checkPeriod(element: Element, now: Date): number[] {
  const [start, end] = [timeOf(element, "NotBefore"), timeOf(element, "NotOnOrAfter")];
  if (start !== undefined && start - SKEW_MS > now.getTime()) throw new SamlRefused("notYetValid");
  if (end !== undefined && end + SKEW_MS <= now.getTime()) throw new SamlRefused("expired");
  return end === undefined ? [] : [end];
}

/** Returns a time in an attribute, in milliseconds since 1970. SAML's times are in UTC (Core, 1.3.3). */
function timeOf(element: Element, name: string): number | undefined {
  const text = attribute(element, name);
  if (text === undefined) return undefined;
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(time)) throw new SamlRefused("malformed");
  return time;
}

function attributesOf(assertion: Element): Map<string, string[]> {
  const attributes = new Map<string, string[]>();
  for (const statement of children(assertion, "assertion", "AttributeStatement")) {
    for (const element of children(statement, "assertion", "Attribute")) {
      const name = attribute(element, "Name");
      if (name === undefined) throw new SamlRefused("malformed");
      const values = children(element, "assertion", "AttributeValue").flatMap((value) => textOf(value) ?? []);
      attributes.set(name, [...(attributes.get(name) ?? []), ...values]);
    }
  }
  return attributes;
}

/**
 * Returns the identifier of the person: only the configured attribute if there is one, else Entra's object identifier, else a
 * persistent NameID of this issuer. Never a NameID that can be reassigned to another person: email address, transient,
 * unspecified.
 */
function subjectOf(
  subject: Element,
  attributes: ReadonlyMap<string, readonly string[]>,
  expected: ExpectedValues,
): string {
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
  const isForThisService = qualifiers.every(
    ([qualifier, expectedValue]) => qualifier === undefined || qualifier === expectedValue,
  );
  if (!nameId || text === undefined || attribute(nameId, "Format") !== PERSISTENT || !isForThisService)
    throw new SamlRefused("noIdentity");
  return text;
}
