import {
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  errors,
  type JWTPayload,
  jwtVerify,
  type RemoteJWKSet,
} from "jose";
import { type Fetch, guardedFetch } from "../../platform/outgoing/guarded-fetch.ts";
import type { Outgoing } from "../../platform/outgoing/outgoing.ts";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";
import type { SsoConfiguration } from "../configuration.ts";
import { LogoutRefused } from "../logout-refused.ts";
import { algorithms, type Discovery, isUnreachable, NoDiscoveryDocument } from "./discovery.ts";

// Sections in comments are those of OpenID Connect Back-Channel Logout 1.0.

/** Tolerated clock difference to the provider, in seconds. */
const SKEW_SECONDS = 60;
/** Maximum age of a token. Providers send tokens at once; a retry after an outage may be some minutes late. */
const MAX_AGE_SECONDS = 10 * 60;
/** Maximum length of a token, as in the schema of the endpoint. */
const MAX_TOKEN_CHARACTERS = 16_384;
/** The member of `events` that makes a token a logout token (section 2.4). */
const LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout";
/**
 * Values of the header `typ`. `logout+jwt` is recommended (section 2.4). Providers from before the recommendation send `JWT` or
 * none; `events` and the absence of `nonce` then distinguish the token from an ID token.
 */
const TYPES: readonly unknown[] = ["logout+jwt", "application/logout+jwt", "JWT", undefined];

/** A verified logout token. At least one of `subject` and `sessionId` is set. */
export interface LogoutToken {
  issuer: string;
  id: string;
  subject: string | undefined;
  sessionId: string | undefined;
  /** The token expires at this time, clock tolerance included. */
  endsAt: Date;
}

/** Verifies logout tokens of the configured OpenID Connect provider. */
export interface LogoutTokens {
  /** @throws {LogoutRefused} with the name of the failed check, or `providerUnreachable` if the keys can't be read. */
  verify(token: string, config: SsoConfiguration): Promise<LogoutToken>;
}

/**
 * Verifies logout tokens as OpenID Connect Back-Channel Logout 1.0, section 2.6 requires, except that the caller checks that a
 * token is used only once. https://openid.net/specs/openid-connect-backchannel-1_0.html
 */
export function createLogoutTokens(deps: { discovery: Discovery; outgoing: Outgoing; clock: Clock }): LogoutTokens {
  const { discovery, outgoing, clock } = deps;
  let cached: { address: string; keys: RemoteJWKSet } | undefined;

  /** Returns the provider's key set. An unknown key causes another read, at most every 30 seconds. */
  function keySetAt(address: string): RemoteJWKSet {
    if (cached?.address !== address) {
      const fetchKeys = guardedFetch(outgoing);
      const keys = createRemoteJWKSet(new URL(address), {
        cooldownDuration: 30 * SECOND_MS,
        cacheMaxAge: 10 * MINUTE_MS,
        // jose passes `Headers`, and `guardedFetch` takes an object.
        [customFetch]: (url, { headers, method, signal }) =>
          fetchKeys(url, { method, headers: Object.fromEntries(headers), signal } satisfies Parameters<Fetch>[1]),
      });
      cached = { address, keys };
    }
    return cached.keys;
  }

  return {
    async verify(token, { oidcIssuer, oidcClientId }) {
      // Checked first, so that a token of another issuer causes no request to the provider.
      if (claimedIssuer(token) !== oidcIssuer) throw new LogoutRefused("iss");
      try {
        const document = await discovery.documentOf(oidcIssuer!);
        const { payload, protectedHeader } = await jwtVerify(token, keySetAt(document.jwks_uri), {
          algorithms: algorithms(document),
          issuer: oidcIssuer!,
          audience: oidcClientId!,
          currentDate: clock.now(),
          clockTolerance: SKEW_SECONDS,
          maxTokenAge: MAX_AGE_SECONDS,
          requiredClaims: ["iss", "aud", "iat", "exp", "jti", "events"],
        });
        if (!TYPES.includes(protectedHeader.typ)) throw new LogoutRefused("typ");
        return logoutTokenOf(payload);
      } catch (error) {
        throw rejectionOf(error);
      }
    },
  };
}

/** Returns the issuer that a token claims, before its signature is verified. @throws {LogoutRefused} malformed */
function claimedIssuer(token: string): string | undefined {
  if (token.length > MAX_TOKEN_CHARACTERS) throw new LogoutRefused("malformed");
  try {
    return decodeJwt(token).iss;
  } catch {
    throw new LogoutRefused("malformed");
  }
}

/** Checks the claims that `jwtVerify` does not check (sections 2.4 and 2.6). @throws {LogoutRefused} */
function logoutTokenOf({ iss, jti, sub, sid, exp, events, nonce }: JWTPayload): LogoutToken {
  const event = isObject(events) ? events[LOGOUT_EVENT] : undefined;
  if (!isObject(event)) throw new LogoutRefused("events");
  if (nonce !== undefined) throw new LogoutRefused("nonce");
  if (typeof jti !== "string" || jti === "") throw new LogoutRefused("jti");
  // The reason `sub` stands for both claims, of which a token needs one.
  for (const claim of [sub, sid]) {
    if (claim !== undefined && (typeof claim !== "string" || claim === "")) throw new LogoutRefused("sub");
  }
  if (sub === undefined && sid === undefined) throw new LogoutRefused("sub");
  return {
    issuer: iss!,
    id: jti,
    subject: sub,
    sessionId: sid as string | undefined,
    endsAt: new Date((exp! + SKEW_SECONDS) * SECOND_MS),
  };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Converts an error of the library or of a request to the provider. Returns any other error unchanged. */
function rejectionOf(error: unknown): unknown {
  if (error instanceof NoDiscoveryDocument || isUnreachable(error) || error instanceof errors.JWKSTimeout)
    return new LogoutRefused("providerUnreachable");
  if (error instanceof errors.JWTClaimValidationFailed || error instanceof errors.JWTExpired)
    // `claim` is the name of the missing or wrong claim.
    return new LogoutRefused(error.claim);
  if (error instanceof errors.JWSSignatureVerificationFailed || error instanceof errors.JWKSNoMatchingKey)
    return new LogoutRefused("signature");
  if (error instanceof errors.JOSEAlgNotAllowed) return new LogoutRefused("alg");
  // jose throws its base error for a key set that does not arrive with status 200.
  if (error instanceof errors.JOSEError && error.code === "ERR_JOSE_GENERIC")
    return new LogoutRefused("providerUnreachable");
  return error instanceof errors.JOSEError ? new LogoutRefused("malformed") : error;
}
