import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { requireSignedIn } from "./api-tokens.ts";
import { CLOCK_SKEW_MS, confirmationsWith, FRESH_MS } from "./confirmations.ts";
import type { IdentityConfirmation } from "./identity-confirmation.ts";
import type { GivenFactor, SecondFactorVerification } from "./second-factor.ts";
import { hasSecondFactor } from "./second-factor-record.ts";
import type { UserRow } from "./user.ts";
import type { Users } from "./users.ts";

/** Address at which a browser signs in again with single sign-on. */
const SIGN_IN_AGAIN = "/auth/sso/login?prompt=login";

/**
 * Step-up: a signed-in user confirms the current session or token with a second factor before a request by which a secret can
 * leave. The confirmation is stored in the user's row, so it counts on every instance and ends with the session or token.
 */
export interface StepUp {
  /**
   * Confirms the actor's session or token for ten minutes.
   *
   * @returns The time until which it is confirmed, ISO 8601.
   * @throws {Problem} stepUpRequired (the user has no second factor), secondFactorRequired, secondFactorFailed, tooManyAttempts
   */
  confirm(actor: Actor, given: GivenFactor, caller: Caller): Promise<string>;
  /** Returns whether the actor's session or token was confirmed in the last ten minutes. */
  isFresh(actor: Actor): boolean;
  /** Returns the problem that tells the actor how to confirm. */
  problem(actor: Actor): Promise<Problem>;
}

export function createStepUp(deps: {
  users: Users;
  identity: Pick<IdentityConfirmation, "confirmFactor">;
  verification: SecondFactorVerification;
  audit: Audit;
  clock: Clock;
}): StepUp {
  const { users, identity, verification, audit, clock } = deps;

  async function problemOf(actor: Actor, user: UserRow | undefined): Promise<Problem> {
    const { credential } = actor;
    if (credential.kind === "apiToken" || credential.kind === "entra" || !user) {
      const detail =
        credential.kind === "entra"
          ? "Sign in to Entra again and use a token whose claim auth_time is at most ten minutes old. An application's token can't be confirmed: a person must send this request."
          : "API tokens can't be confirmed. A person must send this request: sign in, confirm with POST /auth/step-up, and send it within ten minutes.";
      return new Problem("stepUpRequired", detail, { members: { methods: [] } });
    }
    const session = user.sessions?.find(({ id }) => credential.kind === "session" && id === credential.id);
    const signInUrl = session?.by === "sso" && { signInUrl: SIGN_IN_AGAIN };
    if (hasSecondFactor(user)) {
      const { methods, passkeyOptions } = await verification.challenge(user);
      const again = signInUrl ? `, or sign in again with single sign-on (${SIGN_IN_AGAIN})` : "";
      return new Problem(
        "stepUpRequired",
        `Confirm your identity with POST /auth/step-up and a second factor${again}. Then send the same request again within ten minutes.`,
        { members: { methods, ...(passkeyOptions && { passkeyOptions }), ...signInUrl } },
      );
    }
    const detail = signInUrl
      ? `Sign in again with single sign-on (${SIGN_IN_AGAIN}), and send the same request again within ten minutes. The identity provider must report the time of the sign-in (auth_time).`
      : "This needs a second factor, and you have none. Add an authenticator app (POST /auth/me/second-factor/totp) or a passkey, confirm with POST /auth/step-up, and send the same request again.";
    return new Problem("stepUpRequired", detail, { members: { methods: [], ...signInUrl } });
  }

  return {
    isFresh({ confirmedAt }) {
      if (confirmedAt === undefined) return false;
      // Negative if the clock of the instance that confirmed is ahead of this one's.
      const ageMs = clock.now().getTime() - confirmedAt.getTime();
      return ageMs < FRESH_MS && ageMs >= -CLOCK_SKEW_MS;
    },

    problem: async (actor) =>
      await problemOf(actor, actor.credential.kind === "entra" ? undefined : await users.find(actor.username)),

    async confirm(actor, given, caller) {
      const { credential } = actor;
      const user = await users.find(actor.username);
      if (!user) throw notFound("This user");
      // The endpoint rejects API tokens and Entra tokens before. Here the check also narrows the type.
      if (credential.kind === "apiToken" || credential.kind === "entra" || !hasSecondFactor(user))
        throw await problemOf(actor, user);
      const confirmedAt = clock.now();
      const event = { type: "user.confirmed", caller, target: { type: "user", id: user.rowKey } };
      await audited(
        audit,
        event,
        () =>
          // `latest` is the user's row at the moment of the write, which may have lost the session since it was read.
          identity.confirmFactor(user, given, caller, (latest) => {
            requireSignedIn(actor, latest);
            return { ...latest, confirmations: confirmationsWith(latest, credential.id, confirmedAt.toISOString()) };
          }),
        (method) => ({ details: { secondFactor: method } }),
      );
      return new Date(confirmedAt.getTime() + FRESH_MS).toISOString();
    },
  };
}
