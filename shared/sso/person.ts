/** Somebody as an identity provider vouches for them. */
export interface Person {
  /** OIDC's issuer, SAML's entity id. */
  issuer: string;
  /** Who it is there; never an e-mail address. */
  subject: string;
  /** Claims by their names, or attributes: text or lists of it, and for OIDC any JSON. */
  claims: Readonly<Record<string, unknown>>;
}

/** Names under which providers say what somebody is called; the first that is there counts. */
const NAMES = [
  "preferred_username",
  "upn",
  "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name",
  "email",
  "name",
];
const EMAILS = ["email", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress"];

const EMAIL = /^[^\s@]{1,64}@[^\s@]{1,255}$/;

/** What the provider calls somebody; of an address the part before the @. */
export const nameOf = (person: Person): string | undefined => first(person, NAMES)?.replace(/@.*$/, "");

export function emailOf(person: Person): string | undefined {
  const found = first(person, EMAILS);
  return found !== undefined && EMAIL.test(found) ? found : undefined;
}

/**
 * The domain of an address that the provider says it has verified. Without that anybody could have written it:
 * https://learn.microsoft.com/entra/identity-platform/optional-claims-reference (xms_edov)
 */
export function verifiedDomainOf(person: Person): string | undefined {
  const { email_verified: verified, xms_edov: domainOwner } = person.claims;
  const vouched = [verified, domainOwner].some((claim) => ["true", "1"].includes(String([claim].flat()[0])));
  return vouched ? emailOf(person)?.split("@")[1]?.toLowerCase() : undefined;
}

function first({ claims }: Person, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = Object.hasOwn(claims, name) ? [claims[name]].flat()[0] : undefined;
    if (typeof value === "string" && value !== "") return value;
  }
  return undefined;
}
