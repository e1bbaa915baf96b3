import type { Members } from "../jwt.ts";

/** What is done to the answers of a provider that is otherwise correct. */
export interface OidcMode {
  /** Makes the ID token's claims from the correct ones. */
  claims?: (claims: Members) => Members;
  /** Signs the ID token in another way than RS256 with the provider's key. `foreignKey` has the provider's key id. */
  signature?: "none" | "clientSecretHmac" | "publicKeyHmac" | "foreignKey";
  /** Changes the parameters of the redirect that brings the code. */
  callback?: (parameters: URLSearchParams) => void;
  /** Makes the discovery document from the correct one. */
  discovery?: (document: Members) => Members;
  /** The discovery document is at another address, to which it redirects. */
  redirects?: true;
  /** Changes what the userinfo endpoint answers. */
  userinfo?: (claims: Members) => Members;
}

const ELSEWHERE = "https://login.elsewhere.example";
const seconds = (value: unknown, added: number): number => Number(value) + added;
const without = (members: Members, name: string): Members =>
  Object.fromEntries(Object.entries(members).filter(([one]) => one !== name));

/**
 * Ways in which a provider lies, one mistake each; a relying party must refuse all but `correct`. One that is slow or down
 * is a fault as for every other service: `{ match: { operation: "oidc.*" }, action: { kind: "latency" | "reset", … } }`.
 */
export const OIDC_MODES = {
  correct: {},
  wrongIssuer: { claims: (claims) => ({ ...claims, iss: ELSEWHERE }) },
  wrongAudience: { claims: (claims) => ({ ...claims, aud: "another-client" }) },
  wrongAuthorizedParty: {
    claims: (claims) => ({ ...claims, aud: [claims.aud, "another-client"], azp: "another-client" }),
  },
  otherAuthorizedParty: { claims: (claims) => ({ ...claims, azp: "another-client" }) },
  wrongNonce: { claims: (claims) => ({ ...claims, nonce: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" }) },
  missingNonce: { claims: (claims) => without(claims, "nonce") },
  missingSubject: { claims: (claims) => without(claims, "sub") },
  expired: {
    claims: (claims) => ({ ...claims, iat: seconds(claims.iat, -7200), exp: seconds(claims.exp, -7200) }),
  },
  missingExpiry: { claims: (claims) => without(claims, "exp") },
  issuedLater: {
    claims: (claims) => ({ ...claims, iat: seconds(claims.iat, 3600), exp: seconds(claims.exp, 3600) }),
  },
  notYetValid: { claims: (claims) => ({ ...claims, nbf: seconds(claims.iat, 3600) }) },
  algNone: { signature: "none" },
  clientSecretHmac: { signature: "clientSecretHmac" },
  publicKeyHmac: { signature: "publicKeyHmac" },
  foreignKey: { signature: "foreignKey" },
  wrongIssuerParameter: { callback: (parameters) => parameters.set("iss", ELSEWHERE) },
  missingIssuerParameter: { callback: (parameters) => parameters.delete("iss") },
  wrongState: { callback: (parameters) => parameters.set("state", "AAAAAAAAAAAAAAAAAAAAAAAAAA") },
  wrongUserinfoSubject: { userinfo: (claims) => ({ ...claims, sub: "somebody-else" }) },
  addressVouchedForElsewhere: {
    claims: (claims) => without(without(claims, "email_verified"), "preferred_username"),
    userinfo: (claims) => ({ ...claims, email: "somebody@elsewhere.example", email_verified: true }),
  },
  redirectingDiscovery: { redirects: true },
  largeDiscovery: { discovery: (document) => ({ ...document, padding: "x".repeat(1024 * 1024) }) },
  wrongDiscoveryIssuer: { discovery: (document) => ({ ...document, issuer: ELSEWHERE }) },
  templateIssuer: { discovery: (document) => ({ ...document, issuer: `${document.issuer}/{tenantid}` }) },
  // The address at which virtual machines of every large cloud ask for their own credentials.
  metadataAddressKeys: {
    discovery: (document) => ({ ...document, jwks_uri: "http://169.254.169.254/metadata/identity" }),
  },
  metadataAddressToken: {
    discovery: (document) => ({ ...document, token_endpoint: "http://169.254.169.254/metadata/identity" }),
  },
} satisfies Record<string, OidcMode>;

export type OidcModeName = keyof typeof OIDC_MODES;

export function isOidcMode(name: string): name is OidcModeName {
  return Object.hasOwn(OIDC_MODES, name);
}
