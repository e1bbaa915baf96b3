import * as z from "zod";
import type { Config } from "../config/config.ts";
import { requestToken, SIGN_IN_REFUSALS } from "./token-endpoint.ts";

/**
 * The result of one attempt to sign in an application with a secret.
 * - `accepted`: the secret is valid.
 * - `notYet`: the secret is wrong, or not replicated yet.
 * - `expired`: the application's secrets are expired. Also seen while the newest secret is not replicated yet.
 * - `impossible`: this application can't sign in here with any secret.
 * - `unclear`: the answer says nothing about the secret.
 */
export type SignInOutcome =
  | { kind: "accepted" | "notYet" | "expired" | "unclear" }
  | {
      kind: "impossible";
      /** A code of https://learn.microsoft.com/entra/identity-platform/reference-error-codes */
      code: number;
      /** A sentence for users. */
      reason: string;
    };

/** Tries a secret of the application `appId` in the tenant, with one request on a connection of its own. Stores nothing. */
export type ProveSignIn = (appId: string, secret: string, tenantId: string) => Promise<SignInOutcome>;

/** With these codes the secret was accepted, and a later step of the sign-in failed. */
const AFTER_AUTHENTICATION = new Set([500011, 53003, 65001]);

const tokenAnswer = z.object({ token_type: z.literal("Bearer"), access_token: z.string().min(1) });
const errorAnswer = z.object({ error_codes: z.array(z.number()).min(1) });

/** The token is not used. Neither the token nor the secret is logged or stored. */
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

/** Decided by the code only, because Microsoft changes the texts. */
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
