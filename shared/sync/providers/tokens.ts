import { createHash, createPrivateKey } from "node:crypto";
import { SignJWT } from "jose";
import type { Clock } from "../../platform/runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../../platform/time.ts";

/** An access token, and for how many seconds it is good. */
export interface IssuedToken {
  token: string;
  seconds: number;
}

/** Access tokens that providers issued for configured credentials, kept in memory for the targets of all records. */
export interface Tokens {
  /** The one that is kept for these credentials, or one that is asked for. @param key all that it depends on. */
  get(key: readonly unknown[], ask: () => Promise<IssuedToken>): Promise<string>;
  /** It was refused: the next call asks anew. */
  forget(key: readonly unknown[], token: string): void;
}

/** More than there are providers; the one that was asked for first makes room. */
const MOST = 64;

export function createTokens(clock: Clock): Tokens {
  const kept = new Map<string, { issued: Promise<string>; token?: string; until: number }>();
  // The credentials themselves are kept nowhere.
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

/** What asks for tokens of one credential. */
export interface Account {
  tokens: Tokens;
  key: readonly unknown[];
  ask: () => Promise<IssuedToken>;
}

/** Sends with a kept token; where that one was refused, once more with a new one, for it may have been revoked since. */
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

/** Seconds before now that an assertion is good from: the other side's clock may be behind. */
const EARLIER_SECONDS = 60;
/** Both sides' limit is ten minutes or more. */
const GOOD_FOR_SECONDS = 8 * 60;

/** What a service account or an app signs to get a token, with RS256. */
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
