import * as z from "zod";
import type { Config } from "../config/config.ts";
import { requestToken, SIGN_IN_FAILURES } from "./token-endpoint.ts";

/**
 * Result of one attempt to sign in an application with a client secret. Rotation and matching use it to prove that a secret is
 * valid.
 * - `accepted`: the secret is valid.
 * - `notYet`: the secret is wrong, or the server that responded does not know the secret yet.
 * - `expired`: all secrets of the application that the server knows have expired. The newest secret may be missing there.
 * - `impossible`: this application can't sign in to this tenant with any secret.
 * - `unclear`: the response does not say whether the secret is valid.
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

/** Signs in the application with the secret, by one request on a new connection. Discards the token. */
export type ProveSignIn = (appId: string, secret: string, tenantId: string) => Promise<SignInOutcome>;

/**
 * Error codes of steps after the check of the secret: the secret is valid although the sign-in failed. 500011: Microsoft Graph
 * is unknown in the tenant. 53003: a Conditional Access policy blocks the application. 65001: consent is missing.
 */
const AFTER_AUTHENTICATION = new Set([500011, 53003, 65001]);

const tokenAnswer = z.object({ token_type: z.literal("Bearer"), access_token: z.string().min(1) });
const errorAnswer = z.object({ error_codes: z.array(z.number()).min(1) });

/** Creates the function that tests secrets. It neither logs nor stores the secret or the token. */
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

/**
 * Result of one exchange of a workload's token for a token of the application. `notTrusted`: no federated credential of the
 * application matches the token, or the server that responded does not know the credential yet. `rejected`: the token itself is not
 * valid.
 */
export type ExchangeOutcome = { kind: "accepted" | "notTrusted" | "unclear" } | { kind: "rejected"; code: number };

/** Exchanges a workload's token for one of the application, by one request on a new connection. Discards both tokens. */
export type ProveExchange = (appId: string, assertion: string, tenantId: string) => Promise<ExchangeOutcome>;

/**
 * No federated credential matches the issuer (700211), the audience (700212) or the subject (700213) of the token. 70021: the code of
 * earlier versions.
 */
const NOT_TRUSTED = new Set([70021, 700211, 700212, 700213]);

/** Creates the function that proves federated credentials. It neither logs nor stores a token. */
export function createExchangeProof(config: Pick<Config, "cloud">): ProveExchange {
  return async (clientId, clientAssertion, tenantId) => {
    try {
      const { status, body } = await requestToken(config, { tenantId, clientId, clientAssertion });
      if (status === 200) return { kind: tokenAnswer.safeParse(body).success ? "accepted" : "unclear" };
      const code = errorAnswer.safeParse(body).data?.error_codes[0];
      if (code === undefined || status >= 500 || status === 429) return { kind: "unclear" };
      if (AFTER_AUTHENTICATION.has(code)) return { kind: "accepted" };
      return NOT_TRUSTED.has(code) ? { kind: "notTrusted" } : { kind: "rejected", code };
    } catch (error) {
      if (error instanceof Error && ["RestError", "AbortError", "TimeoutError"].includes(error.name))
        return { kind: "unclear" };
      throw error;
    }
  };
}

/** Evaluates the status and the error code, not the text, which Microsoft can change. */
function outcomeOf(status: number, json: unknown): SignInOutcome {
  if (status === 200) return { kind: tokenAnswer.safeParse(json).success ? "accepted" : "unclear" };
  const code = errorAnswer.safeParse(json).data?.error_codes[0];
  if (code === undefined) return { kind: "unclear" };
  if (AFTER_AUTHENTICATION.has(code)) return { kind: "accepted" };
  // 7000215: the secret is wrong or not known yet. 7000222: the application's secrets have expired.
  if (code === 7000215) return { kind: "notYet" };
  if (code === 7000222) return { kind: "expired" };
  const reason = SIGN_IN_FAILURES[code];
  return reason === undefined ? { kind: "unclear" } : { kind: "impossible", code, reason };
}
