import { createHash, createPrivateKey } from "node:crypto";
import { SignJWT } from "jose";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";

/** An access token with its lifetime in seconds. */
export interface IssuedToken {
  token: string;
  seconds: number;
}

/** Cache of access tokens, in memory, shared by the targets of all records. */
export interface Tokens {
  /** Returns the cached token for these credentials, or requests one. @param key everything that the token depends on */
  get(key: readonly unknown[], requestToken: () => Promise<IssuedToken>): Promise<string>;
  /** Drops a rejected token, so that the next call requests a new one. */
  drop(key: readonly unknown[], token: string): void;
}

/** Maximum number of cached tokens, more than there are providers. The oldest is dropped first. */
const MAX_TOKENS = 64;

export function createTokens(clock: Clock): Tokens {
  /** `usedUntil`: Unix milliseconds until which the token is used. */
  const cache = new Map<string, { issued: Promise<string>; token?: string; usedUntil: number }>();
  // Only a hash of the credentials is stored.
  const hashOf = (key: readonly unknown[]) => createHash("sha256").update(JSON.stringify(key)).digest("base64");

  return {
    async get(key, requestToken) {
      const id = hashOf(key);
      const cached = cache.get(id);
      if (cached && clock.now().getTime() < cached.usedUntil) return await cached.issued;
      // The entry does not expire before the response arrives, so that concurrent callers wait for the same request.
      const entry = { issued: Promise.resolve(""), token: "", usedUntil: Number.POSITIVE_INFINITY };
      entry.issued = requestToken().then(
        ({ token, seconds }) => {
          const ms = seconds * SECOND_MS;
          // The token is used until five minutes before its expiry, or for 80 % of a short lifetime.
          Object.assign(entry, { token, usedUntil: clock.now().getTime() + Math.max(0.8 * ms, ms - 5 * MINUTE_MS) });
          return token;
        },
        (error: unknown) => {
          if (cache.get(id) === entry) cache.delete(id);
          throw error;
        },
      );
      cache.delete(id);
      cache.set(id, entry);
      if (cache.size > MAX_TOKENS) cache.delete(cache.keys().next().value!);
      return await entry.issued;
    },

    drop(key, token) {
      const id = hashOf(key);
      if (cache.get(id)?.token === token) cache.delete(id);
    },
  };
}

/** A credential with the function that requests its tokens. `key`: everything that a token depends on. */
export interface Account {
  tokens: Tokens;
  key: readonly unknown[];
  requestToken: () => Promise<IssuedToken>;
}

/**
 * Sends a request with a cached token. If the token is rejected, for example because it was revoked, sends once more with a new
 * one.
 */
export async function withToken<Answer>(
  { tokens, key, requestToken }: Account,
  send: (token: string) => Promise<Answer>,
  isTokenRejected: (answer: Answer, token: string) => boolean | Promise<boolean>,
): Promise<Answer> {
  const token = await tokens.get(key, requestToken);
  const answer = await send(token);
  if (!(await isTokenRejected(answer, token))) return answer;
  tokens.drop(key, token);
  return await send(await tokens.get(key, requestToken));
}

/** Assertions are valid from this many seconds before now, because the other side's clock may be behind. */
const CLOCK_TOLERANCE_SECONDS = 60;
/** Lifetime of an assertion. Both Google and GitHub allow at least ten minutes. */
const LIFETIME_SECONDS = 8 * 60;

/** Returns a JWT signed with RS256, with which a service account or app requests a token. */
export async function signedAssertion(
  claims: { iss: string; aud?: string; scope?: string },
  privateKey: string,
  clock: Clock,
  header: { kid?: string } = {},
): Promise<string> {
  const now = Math.floor(clock.now().getTime() / SECOND_MS);
  return await new SignJWT({ ...claims })
    .setProtectedHeader({ alg: "RS256", typ: "JWT", ...header })
    .setIssuedAt(now - CLOCK_TOLERANCE_SECONDS)
    .setExpirationTime(now + LIFETIME_SECONDS)
    .sign(createPrivateKey(privateKey));
}
