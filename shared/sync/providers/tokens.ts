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
  get(key: readonly unknown[], ask: () => Promise<IssuedToken>): Promise<string>;
  /** Drops a rejected token, so that the next call requests a new one. */
  forget(key: readonly unknown[], token: string): void;
}

/** Maximum number of cached tokens, more than there are providers. The oldest is dropped first. */
const MOST = 64;

export function createTokens(clock: Clock): Tokens {
  const kept = new Map<string, { issued: Promise<string>; token?: string; until: number }>();
  // Only a hash of the credentials is stored.
  const hashed = (key: readonly unknown[]) => createHash("sha256").update(JSON.stringify(key)).digest("base64");

  return {
    async get(key, ask) {
      const id = hashed(key);
      const before = kept.get(id);
      if (before && clock.now().getTime() < before.until) return await before.issued;
      const entry = { issued: Promise.resolve(""), token: "", until: Number.POSITIVE_INFINITY };
      entry.issued = ask().then(
        ({ token, seconds }) => {
          const ms = seconds * SECOND_MS;
          Object.assign(entry, { token, until: clock.now().getTime() + Math.max(0.8 * ms, ms - 5 * MINUTE_MS) });
          return token;
        },
        (error: unknown) => {
          if (kept.get(id) === entry) kept.delete(id);
          throw error;
        },
      );
      kept.delete(id);
      kept.set(id, entry);
      if (kept.size > MOST) kept.delete(kept.keys().next().value!);
      return await entry.issued;
    },

    forget(key, token) {
      const id = hashed(key);
      if (kept.get(id)?.token === token) kept.delete(id);
    },
  };
}

/** A credential with the function that requests its tokens. */
export interface Account {
  tokens: Tokens;
  key: readonly unknown[];
  ask: () => Promise<IssuedToken>;
}

/**
 * Sends a request with a cached token. If the token is rejected, for example because it was revoked, sends once more with a new
 * one.
 */
export async function withToken<Answer>(
  { tokens, key, ask }: Account,
  send: (token: string) => Promise<Answer>,
  isRefused: (answer: Answer, token: string) => boolean | Promise<boolean>,
): Promise<Answer> {
  const token = await tokens.get(key, ask);
  const answer = await send(token);
  if (!(await isRefused(answer, token))) return answer;
  tokens.forget(key, token);
  return await send(await tokens.get(key, ask));
}

/** Assertions are valid from this many seconds before now, because the other side's clock may be behind. */
const EARLIER_SECONDS = 60;
/** Lifetime of an assertion. Both Google and GitHub allow at least ten minutes. */
const GOOD_FOR_SECONDS = 8 * 60;

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
    .setIssuedAt(now - EARLIER_SECONDS)
    .setExpirationTime(now + GOOD_FOR_SECONDS)
    .sign(createPrivateKey(privateKey));
}
