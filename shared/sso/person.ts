import type { ProviderSession } from "../access/user.ts";

// Reads the name and email address of a person from the claims or attributes that an identity provider sent.

/** A person whom an identity provider authenticated. */
export interface Person {
  /** Issuer in OIDC, entity id in SAML. */
  issuer: string;
  /** Identifier of the person at the issuer. Never an email address. */
  subject: string;
  /** Claims or attributes by name: text or lists of text, and for OIDC any JSON. */
  claims: Readonly<Record<string, unknown>>;
}

/** A person who just signed in at the identity provider. */
export interface SignedInPerson extends Person {
  /** The session at the provider. */
  session: ProviderSession;
  /** The time at which the provider authenticated the person, if it says so. */
  authenticatedAt?: Date | undefined;
}

const CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims";
/**
 * Claims and attributes with the email address: first of OIDC, Entra and ADFS, then LDAP's `mail` and PKCS#9's `emailAddress`,
 * each by name and object identifier. Keycloak, Okta, Ping and Shibboleth send the latter two.
 */
const EMAIL_CLAIMS = [
  "email",
  `${CLAIMS}/emailaddress`,
  "mail",
  "urn:oid:0.9.2342.19200300.100.1.3",
  "emailAddress",
  "urn:oid:1.2.840.113549.1.9.1",
];
/**
 * Claims and attributes that may contain the person's name. The first one present is used: sign-in names before full names, because
 * the username of a new user is derived from it. The names with `urn:oid:` are the object identifiers of LDAP attributes.
 */
const NAME_CLAIMS = [
  "preferred_username",
  "upn",
  `${CLAIMS}/upn`,
  `${CLAIMS}/name`,
  "username",
  "uid",
  "urn:oid:0.9.2342.19200300.100.1.1",
  ...EMAIL_CLAIMS,
  "name",
  "displayName",
  "urn:oid:2.16.840.1.113730.3.1.241",
  "http://schemas.microsoft.com/identity/claims/displayname",
  "http://schemas.xmlsoap.org/claims/CommonName",
  "cn",
  "urn:oid:2.5.4.3",
];
const GIVEN_NAME_CLAIMS = ["given_name", "givenName", `${CLAIMS}/givenname`, "urn:oid:2.5.4.42", "firstName"];
const SURNAME_CLAIMS = ["family_name", "sn", "surname", `${CLAIMS}/surname`, "urn:oid:2.5.4.4", "lastName"];

/** Longer names and addresses are ignored, as if the provider had not sent the claim. */
const MAX_CLAIM_CHARACTERS = 1024;

const EMAIL_FORMAT = /^[^\s@]{1,64}@[^\s@]{1,255}$/;

/**
 * Returns the person's name according to the provider: a sign-in name or full name, or given name and surname. If the name is an
 * email address, returns the part before the @.
 */
export function nameOf(person: Person): string | undefined {
  const parts = [GIVEN_NAME_CLAIMS, SURNAME_CLAIMS].flatMap((names) => firstClaim(person, names) ?? []);
  const name = firstClaim(person, NAME_CLAIMS) ?? (parts.length > 0 ? parts.join(" ") : undefined);
  const end = name?.indexOf("@") ?? -1;
  return end < 0 ? name : name?.slice(0, end);
}

/** Returns the person's email address, verified or not. */
export function emailOf(person: Person): string | undefined {
  const email = firstClaim(person, EMAIL_CLAIMS);
  return email !== undefined && EMAIL_FORMAT.test(email) ? email : undefined;
}

/**
 * Returns the domain of an email address that the provider has verified. An unverified address could be anyone's:
 * https://learn.microsoft.com/entra/identity-platform/optional-claims-reference (xms_edov)
 */
export function verifiedDomainOf(person: Person): string | undefined {
  // OIDC sends a boolean, 1 or text, and SAML a list of texts.
  const { email_verified: verified, xms_edov: domainOwner } = person.claims;
  const isVerified = [verified, domainOwner].some((claim) => ["true", "1"].includes(String([claim].flat()[0])));
  return isVerified ? emailOf(person)?.split("@")[1]?.toLowerCase() : undefined;
}

/** Returns the first of these claims that is a text and not too long. Of a list, the first item counts. */
function firstClaim({ claims }: Person, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = Object.hasOwn(claims, name) ? [claims[name]].flat()[0] : undefined;
    if (typeof value === "string" && value !== "" && value.length <= MAX_CLAIM_CHARACTERS) return value;
  }
  return undefined;
}
