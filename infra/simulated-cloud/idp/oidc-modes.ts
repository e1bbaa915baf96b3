import type { Members } from "../jwt.ts";

/** Changes to the correct responses of the provider. */
export interface OidcMode {
  /** Creates the claims of the ID token from the correct claims. */
  claims?: (claims: Members) => Members;
  /**
   * Signs the ID token differently from RS256 with the provider's key. `foreignKey` uses an unpublished key under the
   * provider's key ID. `edDsa` uses a published Ed25519 key.
   */
  signature?: "none" | "clientSecretHmac" | "publicKeyHmac" | "foreignKey" | "edDsa";
  /** Changes the response of the token endpoint to a client that fails to authenticate, and its status (default 401). */
  rejectedClient?: (error: Members) => Members;
  rejectedClientStatus?: number;
  /** Changes the parameters of the redirect that carries the code. */
  callback?: (parameters: URLSearchParams) => void;
  /** Creates the discovery document from the correct document. */
  discovery?: (document: Members) => Members;
  /** Redirects requests for the discovery document to another address. */
  redirects?: true;
  /** Changes the response of the userinfo endpoint. */
  userinfo?: (claims: Members) => Members;
}

const ELSEWHERE = "https://login.elsewhere.example";
const addSeconds = (value: unknown, added: number): number => Number(value) + added;
const without = (members: Members, name: string): Members =>
  Object.fromEntries(Object.entries(members).filter(([one]) => one !== name));

/**
 * Misbehavior modes of the OIDC provider. Each mode makes one mistake, which a relying party must reject. `correct` makes none.
 * Delays and outages are faults as for every other service: `{ match: { operation: "oidc.*" }, action: { kind: "latency" |
 * "reset", … } }`.
 */
export const OIDC_MODES = {
  correct: {},
  // Keycloak's response to a wrong client secret: status 401 with another error code than RFC 6749, section 5.2.
  unauthorizedClient: { rejectedClient: (error) => ({ ...error, error: "unauthorized_client" }) },
  // Entra's response to a client that its tenant does not have: https://learn.microsoft.com/entra/identity-platform/reference-error-codes
  entraUnknownClient: {
    rejectedClient: () => ({
      error: "unauthorized_client",
      error_description: "AADSTS700016: Application was not found in the directory 'Acme'.",
      error_codes: [700016],
    }),
    rejectedClientStatus: 400,
  },
  // Entra's response to a wrong client secret.
  entraWrongSecret: {
    rejectedClient: () => ({
      error: "invalid_client",
      error_description: "AADSTS7000215: Invalid client secret provided.",
      error_codes: [7000215],
    }),
  },
  // Not a mistake: the ID token has a signature of Ed25519.
  edDsa: {
    signature: "edDsa",
    discovery: (document) => ({ ...document, id_token_signing_alg_values_supported: ["EdDSA", "RS256"] }),
  },
  noLogout: { discovery: (document) => without(document, "end_session_endpoint") },
  wrongIssuer: { claims: (claims) => ({ ...claims, iss: ELSEWHERE }) },
  wrongAudience: { claims: (claims) => ({ ...claims, aud: "another-client" }) },
  // The token has two audiences and was issued to the other one.
  wrongAuthorizedParty: {
    claims: (claims) => ({ ...claims, aud: [claims.aud, "another-client"], azp: "another-client" }),
  },
  // The audience is correct, but the token was issued to another client.
  otherAuthorizedParty: { claims: (claims) => ({ ...claims, azp: "another-client" }) },
  // The ID token was issued with another access token.
  wrongAccessTokenHash: { claims: (claims) => ({ ...claims, at_hash: "AAAAAAAAAAAAAAAAAAAAAA" }) },
  missingAccessTokenHash: { claims: (claims) => without(claims, "at_hash") },
  wrongNonce: { claims: (claims) => ({ ...claims, nonce: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" }) },
  missingNonce: { claims: (claims) => without(claims, "nonce") },
  missingSubject: { claims: (claims) => without(claims, "sub") },
  expired: {
    claims: (claims) => ({ ...claims, iat: addSeconds(claims.iat, -7200), exp: addSeconds(claims.exp, -7200) }),
  },
  missingExpiry: { claims: (claims) => without(claims, "exp") },
  issuedLater: {
    claims: (claims) => ({ ...claims, iat: addSeconds(claims.iat, 3600), exp: addSeconds(claims.exp, 3600) }),
  },
  notYetValid: { claims: (claims) => ({ ...claims, nbf: addSeconds(claims.iat, 3600) }) },
  algNone: { signature: "none" },
  clientSecretHmac: { signature: "clientSecretHmac" },
  publicKeyHmac: { signature: "publicKeyHmac" },
  foreignKey: { signature: "foreignKey" },
  wrongIssuerParameter: { callback: (parameters) => parameters.set("iss", ELSEWHERE) },
  missingIssuerParameter: { callback: (parameters) => parameters.delete("iss") },
  wrongState: { callback: (parameters) => parameters.set("state", "AAAAAAAAAAAAAAAAAAAAAAAAAA") },
  wrongUserinfoSubject: { userinfo: (claims) => ({ ...claims, sub: "somebody-else" }) },
  // The ID token has no verified address. The userinfo endpoint adds a verified address of another company.
  addressVouchedForElsewhere: {
    claims: (claims) => without(without(claims, "email_verified"), "preferred_username"),
    userinfo: (claims) => ({ ...claims, email: "somebody@elsewhere.example", email_verified: true }),
  },
  redirectingDiscovery: { redirects: true },
  largeDiscovery: { discovery: (document) => ({ ...document, padding: "x".repeat(1024 * 1024) }) },
  wrongDiscoveryIssuer: { discovery: (document) => ({ ...document, issuer: ELSEWHERE }) },
  templateIssuer: { discovery: (document) => ({ ...document, issuer: `${document.issuer}/{tenantid}` }) },
  // The address of the instance metadata service in all large clouds.
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
