import { createHmac } from "node:crypto";
import { errors, jwtVerify, SignJWT } from "jose";
import * as z from "zod";
import type { Config } from "../platform/config/config.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";

/** Lifetime of a token in seconds. */
export const TOKEN_SECONDS = 3600;

/** Chosen neither by the caller nor by the configuration: https://www.rfc-editor.org/rfc/rfc8725#section-3.1 */
const ALGORITHM = "HS256";
/** Distinguishes tokens from other texts with the same key: https://www.rfc-editor.org/rfc/rfc8725#section-3.11 */
const TYPE = "JWT";

/** The claims of a token. The role is not among them: it is read from the user's row. */
interface Claims {
  username: string;
  /** `uid` of the user: see `uidOf`. Absent from tokens of an earlier version. */
  uid: string | undefined;
  id: string;
  issuedAt: Date;
  expiresAt: Date;
}

/** The service's own access tokens: JSON Web Tokens that a password sign-in returns and that later requests send. */
export interface Tokens {
  /** Returns a token that is valid for one hour from `issuedAt`, signed with the first signing key. */
  issue(user: { username: string; uid: string }, issuedAt: Date): Promise<string>;
  /**
   * Returns the claims, or undefined if the text is not an unexpired token of this service, signed with any of the signing
   * keys. A token that is valid for more than one hour is invalid even if its signature is correct.
   */
  verify(token: string): Promise<Claims | undefined>;
}

/**
 * `iat` has a fraction, which RFC 7519 §2 allows. It distinguishes tokens from before and after a revocation in the same
 * second.
 */
const Payload = z.object({
  sub: z.string().min(1),
  uid: z.string().optional(),
  jti: z.string().min(1),
  iat: z.number(),
  exp: z.number(),
});

type TokenConfig = Pick<Config, "JWT_SIGNING_KEYS" | "JWT_ISSUER" | "JWT_AUDIENCE">;

export function createTokens(deps: { config: TokenConfig; clock: Clock; randomness: Randomness }): Tokens {
  const { config, clock, randomness } = deps;
  const signingKey = config.JWT_SIGNING_KEYS[0]!;
  // Reversed, so that the first of two keys with the same ID is used.
  const keys = new Map([...config.JWT_SIGNING_KEYS].reverse().map(({ kid, key }) => [kid, key]));

  return {
    async issue({ username, uid }, issuedAt) {
      const iat = issuedAt.getTime() / 1000;
      return await new SignJWT({ iat, exp: iat + TOKEN_SECONDS, uid })
        .setProtectedHeader({ alg: ALGORITHM, kid: signingKey.kid, typ: TYPE })
        .setIssuer(config.JWT_ISSUER)
        .setAudience(config.JWT_AUDIENCE)
        .setSubject(username)
        .setJti(randomness.ulid(issuedAt))
        .sign(signingKey.key);
    },

    async verify(token) {
      if (!token.split(".").every(isCanonicalBase64Url)) return undefined;
      try {
        const { payload } = await jwtVerify(
          token,
          ({ kid }) => {
            const key = kid === undefined ? undefined : keys.get(kid);
            if (!key) throw new errors.JWKSNoMatchingKey();
            return key;
          },
          {
            algorithms: [ALGORITHM],
            typ: TYPE,
            issuer: config.JWT_ISSUER,
            audience: config.JWT_AUDIENCE,
            currentDate: clock.now(),
          },
        );
        const claims = Payload.safeParse(payload);
        if (!claims.success) return undefined;
        const { sub, uid, jti, iat, exp } = claims.data;
        if (exp - iat > TOKEN_SECONDS + ROUNDING_SECONDS) return undefined;
        return { username: sub, uid, id: jti, issuedAt: fromSeconds(iat), expiresAt: fromSeconds(exp) };
      } catch (error) {
        if (error instanceof errors.JOSEError) return undefined;
        throw error;
      }
    },
  };
}

/** Times are numbers with fractions, so the difference of two of them is not exact. */
const ROUNDING_SECONDS = 0.001;

/** Returns false for text that other decoders read differently, such as padding or unused bits (RFC 4648, 3.5). */
const isCanonicalBase64Url = (text: string): boolean => Buffer.from(text, "base64url").toString("base64url") === text;

const fromSeconds = (seconds: number): Date => new Date(Math.round(seconds * 1000));

/**
 * Returns a keyed hash (HMAC) in hex. The prefix makes hashes for different purposes differ. Because it contains a NUL
 * character, no hash can equal the signature of a token.
 */
export function keyedHash(key: Uint8Array, purpose: string, text: string): string {
  return createHmac("sha256", key).update(`${purpose}\0${text}`).digest("hex");
}
