import type { Configuration as Client } from "openid-client";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { guardedFetch } from "../../platform/outgoing/guarded-fetch.ts";
import type { Outgoing } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { SsoConfiguration } from "../configuration.ts";
import type { Person } from "../person.ts";
import type { Protocol } from "../protocol.ts";
import type { SsoSecrets } from "../secrets.ts";
import { SignInRefused } from "../sign-in-refused.ts";
import { isIssuedWith } from "./access-token-hash.ts";
import {
  ACCEPTED_ALGORITHMS,
  algorithms,
  type Discovery,
  type DiscoveryDocument,
  isAcceptedAlgorithm,
  isUnreachable,
  NoDiscoveryDocument,
} from "./discovery.ts";

/** Tolerated clock difference to the provider, in seconds. */
const SKEW_SECONDS = 60;
/** Timeout of each request to the provider, in seconds. */
const TIMEOUT_SECONDS = 5;

/** Path of the `redirect_uri` (RFC 6749, 3.1.2) on the service's origin, to which the provider redirects the browser. */
export const CALLBACK_PATH = "/auth/sso/callback";

/**
 * Creates a client of the library openid-client. Each sign-in creates a client, so that it uses the provider's current keys.
 */
export async function openIdClient(
  document: DiscoveryDocument,
  client: { id: string; secret: string | undefined },
  deps: { outgoing: Outgoing; clock: Clock },
): Promise<Client> {
  const openid = await import("openid-client");
  // Makes the library, which reads the time of this machine, use the service's clock.
  const clockSkewSeconds = Math.round((deps.clock.now().getTime() - Date.now()) / 1000);
  const configuration = new openid.Configuration(
    // By default the library accepts every algorithm that the provider lists.
    { ...document, id_token_signing_alg_values_supported: algorithms(document) },
    client.id,
    { [openid.clockSkew]: clockSkewSeconds, [openid.clockTolerance]: SKEW_SECONDS },
    authentication(openid, document, client.secret),
  );
  configuration[openid.customFetch] = guardedFetch(deps.outgoing) as NonNullable<Client[typeof openid.customFetch]>;
  configuration.timeout = TIMEOUT_SECONDS;
  // `providerAddressRules` decides for each request whether plain HTTP is allowed.
  if (document.issuer.startsWith("http:")) openid.allowInsecureRequests(configuration);
  // Without this the library trusts the connection to the token endpoint and does not verify the ID token's signature.
  openid.enableNonRepudiationChecks(configuration);
  return configuration;
}

/** Returns the client authentication method of the document. The default is the header (OpenID Connect Core, 9). */
function authentication(
  openid: typeof import("openid-client"),
  { token_endpoint_auth_methods_supported: methods = ["client_secret_basic"] }: DiscoveryDocument,
  secret: string | undefined,
) {
  if (secret === undefined) return openid.None();
  const inBody = !methods.includes("client_secret_basic") && methods.includes("client_secret_post");
  return inBody ? openid.ClientSecretPost(secret) : openid.ClientSecretBasic(secret);
}

/**
 * OpenID Connect sign-in: authorization code flow with PKCE, state and nonce.
 * https://openid.net/specs/openid-connect-core-1_0.html
 */
export function createOidc(deps: {
  discovery: Discovery;
  secrets: Pick<SsoSecrets, "read">;
  outgoing: Outgoing;
  clock: Clock;
  /** Decides whether the service redirects browsers to an address of the provider. */
  isAllowedAddress: (address: string) => boolean;
}): Protocol {
  const { discovery, secrets } = deps;

  async function documentOf({ oidcIssuer }: SsoConfiguration): Promise<DiscoveryDocument> {
    try {
      return await discovery.documentOf(oidcIssuer!);
    } catch (error) {
      if (error instanceof NoDiscoveryDocument) throw new SignInRefused("badResponse", { code: "discovery" });
      if (isUnreachable(error)) throw new SignInRefused("providerUnreachable", { code: "discovery" });
      throw error;
    }
  }

  /** Returns the client secret. Undefined for a public client. @throws {SignInRefused} secretUnreadable */
  async function secretOf({ oidcClientSecret, oidcIssuer }: SsoConfiguration): Promise<string | undefined> {
    if (!oidcClientSecret) return undefined;
    let secret: string | undefined;
    try {
      secret = await secrets.read(oidcClientSecret, oidcIssuer!);
    } catch (error) {
      if (error instanceof CloudFailure) throw new SignInRefused("secretUnreadable", { code: error.code });
      throw error;
    }
    // A sign-in as a public client would fail, with a less clear error.
    if (secret === undefined) throw new SignInRefused("secretUnreadable", { code: "notFound" });
    return secret;
  }

  async function clientOf(config: SsoConfiguration, secret: string | undefined): Promise<Client> {
    return await openIdClient(await documentOf(config), { id: config.oidcClientId!, secret }, deps);
  }

  return {
    /** Builds the authentication request: OpenID Connect Core, 3.1.2.1, with the challenge of RFC 7636, 4.3. */
    async begin(config, request, origin) {
      // The URL contains no secret, so the key vault isn't read.
      const client = await clientOf(config, undefined);
      const { buildAuthorizationUrl, calculatePKCECodeChallenge } = await import("openid-client");
      return buildAuthorizationUrl(client, {
        redirect_uri: origin + CALLBACK_PATH,
        response_type: "code",
        response_mode: "query",
        scope: [...new Set(["openid", ...config.oidcScopes])].join(" "),
        state: request.id,
        nonce: request.derived("nonce"),
        code_challenge: await calculatePKCECodeChallenge(request.derived("verifier")),
        code_challenge_method: "S256",
        // OpenID Connect Core 3.1.2.1. With `max_age`, the provider must return `auth_time`.
        ...(request.reauthenticate && { prompt: "login", max_age: "0" }),
      });
    },

    /**
     * Verifies the authentication response (OpenID Connect Core, 3.1.2.5 and 3.1.2.6; RFC 9207, 2.4), exchanges the code
     * (3.1.3), verifies the ID token (3.1.3.7), and reads UserInfo for the same subject (5.3).
     */
    async complete(config, request, { parameters }, origin) {
      if (parameters.has("error"))
        throw new SignInRefused("providerRefused", { code: knownErrorCode(parameters.get("error")) });
      const client = await clientOf(config, await secretOf(config));
      const { authorizationCodeGrant, fetchUserInfo } = await import("openid-client");
      // The URL of the request is not used, because proxies in front of the service can change it.
      const currentUrl = new URL(`${origin}${CALLBACK_PATH}?${parameters}`);
      try {
        const tokens = await authorizationCodeGrant(client, currentUrl, {
          expectedState: request.id,
          expectedNonce: request.derived("nonce"),
          pkceCodeVerifier: request.derived("verifier"),
          idTokenExpected: true,
        });
        const claims = tokens.claims()!;
        const session = { issuer: claims.iss, ...sessionClaims(claims) };
        const { auth_time: authTime } = claims;
        const authenticatedAt = typeof authTime === "number" ? new Date(authTime * 1000) : undefined;
        const person = { issuer: claims.iss, subject: claims.sub, claims, session, authenticatedAt };
        requireValidClaims(person, config, deps.clock);
        if (!isIssuedWith(tokens.access_token, tokens.id_token!, claims.at_hash)) {
          throw new SignInRefused("badResponse", { code: "at_hash" });
        }
        // UserInfo is read only if the ID token lacks a claim that the sign-in needs.
        if (
          !client.serverMetadata().userinfo_endpoint ||
          neededClaims(config).every((name) => Object.hasOwn(claims, name))
        ) {
          return person;
        }
        const { email, email_verified, ...otherClaims } = await fetchUserInfo(client, tokens.access_token, claims.sub);
        // An email address and its verified flag must come from the same response.
        const emailClaims = Object.hasOwn(claims, "email") ? {} : { email, email_verified };
        return { ...person, claims: { ...otherClaims, ...emailClaims, ...claims } };
      } catch (error) {
        throw rejectionOf(error);
      }
    },

    /**
     * OpenID Connect RP-Initiated Logout 1.0, 2. The client is named by `client_id`: an `id_token_hint` would need an ID token,
     * which is not stored.
     */
    async logoutUrl({ oidcIssuer, oidcClientId }, { logoutHint }, origin) {
      let document: DiscoveryDocument;
      try {
        document = await discovery.documentOf(oidcIssuer!);
      } catch (error) {
        if (error instanceof NoDiscoveryDocument || isUnreachable(error)) return undefined;
        throw error;
      }
      const { end_session_endpoint: address } = document;
      if (address === undefined || !deps.isAllowedAddress(address)) return undefined;
      const url = new URL(address);
      url.searchParams.set("client_id", oidcClientId!);
      url.searchParams.set("post_logout_redirect_uri", `${origin}/`);
      if (logoutHint !== undefined) url.searchParams.set("logout_hint", logoutHint);
      return url;
    },
  };
}

/** Longer identifiers of a session are ignored. */
const MAX_SESSION_CLAIM_CHARACTERS = 512;

/** Returns the claims that identify the session at the provider. */
function sessionClaims({ sid, login_hint: hint }: Record<string, unknown>) {
  const isStored = (claim: unknown): claim is string =>
    typeof claim === "string" && claim !== "" && claim.length <= MAX_SESSION_CLAIM_CHARACTERS;
  return { ...(isStored(sid) && { sessionId: sid }), ...(isStored(hint) && { logoutHint: hint }) };
}

/** Returns the claims that a sign-in needs. If the ID token lacks one of them, UserInfo is requested. */
function neededClaims({ rolesClaim, roleMapping }: SsoConfiguration): string[] {
  // The first part of a JSON pointer is the name of the claim.
  const pointer = rolesClaim?.startsWith("/") ? rolesClaim.split("/")[1]! : rolesClaim;
  return ["email", "preferred_username", ...(roleMapping && pointer !== undefined ? [pointer] : [])];
}

/** Checks claims that the library does not check. @throws {SignInRefused} badResponse */
function requireValidClaims({ issuer, subject, claims }: Person, config: SsoConfiguration, clock: Clock): void {
  const rejection = (code: string) => new SignInRefused("badResponse", { code });
  if (issuer !== config.oidcIssuer) throw rejection("iss");
  // The library checks `azp` only if there are several audiences: OpenID Connect Core 3.1.3.7, 5.
  if (claims.azp !== undefined && claims.azp !== config.oidcClientId) throw rejection("azp");
  // OpenID Connect Core 2: at most 255 ASCII characters.
  if (!/^[\x20-\x7e]{1,255}$/.test(subject)) throw rejection("sub");
  if (typeof claims.iat !== "number" || claims.iat > clock.now().getTime() / 1000 + SKEW_SECONDS)
    throw rejection("iat");
}

/** Error codes of providers: https://www.iana.org/assignments/oauth-parameters (extensions errors). */
const ERROR_CODES: readonly string[] = [
  "access_denied",
  "account_selection_required",
  "consent_required",
  "interaction_required",
  "invalid_client",
  "invalid_grant",
  "invalid_request",
  "invalid_scope",
  "login_required",
  "server_error",
  "temporarily_unavailable",
  "unauthorized_client",
  "unsupported_response_type",
];
/** Returns the error code, or "other" for a text that is not a standard code and must not be recorded. */
const knownErrorCode = (error: unknown): string => (ERROR_CODES.includes(String(error)) ? String(error) : "other");

/** Returns the HTTP status of a token endpoint's error response. Undefined for other errors. */
export const statusOf = (error: unknown): number | undefined => (error as { status?: number }).status;

/**
 * Returns the error code of a token endpoint. It is in the body, or in the challenge that a rejected client gets (RFC 6749,
 * 5.2). After a challenge, the library does not read the body.
 */
export function errorCodeOf(error: unknown): unknown {
  const { code, error: errorCode, cause } = error as { code?: unknown; error?: unknown; cause?: unknown };
  if (code !== "OAUTH_WWW_AUTHENTICATE_CHALLENGE") return errorCode;
  const challenges = cause as readonly { parameters: { error?: string | undefined } }[];
  return challenges.find(({ parameters }) => parameters.error)?.parameters.error ?? "invalid_client";
}

/**
 * Converts the error of a failed exchange of the code. The library's errors contain tokens and text of the provider, which must
 * not be shown or logged.
 */
function rejectionOf(error: unknown): SignInRefused {
  if (error instanceof SignInRefused) return error;
  if (isUnreachable(error)) return new SignInRefused("providerUnreachable", { code: "request" });
  const { code, cause } = error as {
    code?: unknown;
    cause?: { status?: unknown; cause?: { header?: { alg?: unknown } } };
  };
  const errorCode = errorCodeOf(error);
  if (code === "OAUTH_TIMEOUT") return new SignInRefused("providerUnreachable", { code: "timeout" });
  if (code === "OAUTH_RESPONSE_IS_NOT_CONFORM" && Number(cause?.status) >= 500) {
    return new SignInRefused("providerUnreachable", { code: "status" });
  }
  if (errorCode === "invalid_client" || errorCode === "unauthorized_client") {
    return new SignInRefused("clientRefused", { code: errorCode });
  }
  if (code === "OAUTH_RESPONSE_BODY_ERROR")
    return new SignInRefused("badResponse", { code: knownErrorCode(errorCode) });
  const algorithm = cause?.cause?.header?.alg;
  // The name of an algorithm, for example HS256. Other texts are not recorded.
  if (typeof algorithm === "string" && /^([A-Z]{2}\d{3}K?|none)$/.test(algorithm) && !isAcceptedAlgorithm(algorithm))
    return new SignInRefused("badResponse", { code: "alg", algorithm, accepted: ACCEPTED_ALGORITHMS });
  const safeCode = typeof code === "string" && /^OAUTH_[A-Z_]{1,60}$/.test(code) ? code : "other";
  return new SignInRefused("badResponse", { code: safeCode });
}
