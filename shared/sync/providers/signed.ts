import { createPrivateKey } from "node:crypto";
import { SignJWT } from "jose";
import type { Clock } from "../../runtime.ts";
import { MINUTE_MS, SECOND_MS } from "../../time.ts";

/** Seconds before now that an assertion is good from: the other side's clock may be behind. */
const EARLIER_SECONDS = 60;

/** What a service account or an app signs to get a token: RS256, good for minutes. */
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
    .setExpirationTime(now + 8 * 60)
    .sign(createPrivateKey(privateKey));
}

/** A token that is asked for when it is needed, and again a little before it ends. */
export function keptToken(
  clock: Clock,
  ask: (signal: AbortSignal | undefined) => Promise<{ token: string; seconds: number }>,
): { get(signal?: AbortSignal): Promise<string>; forget(): void } {
  let kept: { token: string; until: number } | undefined;
  return {
    async get(signal) {
      const now = clock.now().getTime();
      if (kept && now < kept.until) return kept.token;
      const { token, seconds } = await ask(signal);
      kept = { token, until: now + Math.max(0.8 * seconds * SECOND_MS, seconds * SECOND_MS - 5 * MINUTE_MS) };
      return token;
    },
    forget() {
      kept = undefined;
    },
  };
}
