import * as z from "zod";
import type { Config } from "../config/config.ts";
import { requestToken, SIGN_IN_REFUSALS } from "./token-endpoint.ts";

/**
 * What one attempt to sign an application in with a secret says about the secret.
 * - `accepted`: it signs in.
 * - `notYet`: it is wrong, or not everybody knows it yet.
 * - `expired`: the application's secrets are expired; seen also while the newest is not known yet.
 * - `impossible`: this application can't sign in here with any secret.
 * - `unclear`: the answer says nothing about the secret.
 */
export type SignInOutcome =
  | { kind: "accepted" | "notYet" | "expired" | "unclear" }
  | {
      kind: "impossible";
      /** Of https://learn.microsoft.com/entra/identity-platform/reference-error-codes */
      code: number;
      /** A sentence for people. */
      reason: string;
    };

/** Tries a secret of the application `appId` in the tenant, with one request on a connection of its own. Nothing is kept. */
export type ProveSignIn = (appId: string, secret: string, tenantId: string) => Promise<SignInOutcome>;

/** After these the secret was taken: what failed comes later in signing in. */
const AFTER_AUTHENTICATION = new Set([500011, 53003, 65001]);

const tokenAnswer = z.object({ token_type: z.literal("Bearer"), access_token: z.string().min(1) });
const errorAnswer = z.object({ error_codes: z.array(z.number()).min(1) });

/** The token is looked at no further and neither it nor the secret is logged or kept. */
export function createSignInProof(config: Pick<Config, "cloud">): ProveSignIn {
  return async (clientId, clientSecret, tenantId) => {
    try {
      const { status, body } = await requestToken(config, { tenantId, clientId, clientSecret });
      return outcomeOf(status, body);
    } catch (error) {
      if (error instanceof Error && ["RestError", "AbortError", "TimeoutError"].includes(error.name)) {
        return { kind: "unclear" };
      }
      throw error;
    }
  };
}

/** By the code alone: texts differ, and Microsoft says that they change. */
function outcomeOf(status: number, json: unknown): SignInOutcome {
  if (status === 200) return { kind: tokenAnswer.safeParse(json).success ? "accepted" : "unclear" };
  const code = errorAnswer.safeParse(json).data?.error_codes[0];
  if (code === undefined) return { kind: "unclear" };
  if (AFTER_AUTHENTICATION.has(code)) return { kind: "accepted" };
  if (code === 7000215) return { kind: "notYet" };
  if (code === 7000222) return { kind: "expired" };
  const reason = SIGN_IN_REFUSALS[code];
  return reason === undefined ? { kind: "unclear" } : { kind: "impossible", code, reason };
}
