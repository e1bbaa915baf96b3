import { badCredential, type Credential } from "../platform/http/admission.ts";
import type { Actor } from "../platform/http/endpoint.ts";
import type { Problem } from "../platform/http/problem.ts";
import type { Clock } from "../platform/runtime.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { API_TOKEN_PREFIX } from "./api-token-text.ts";
import type { ApiTokens } from "./api-tokens.ts";
import { confirmedAtOf } from "./confirmations.ts";
import type { EntraTokens } from "./entra.ts";
import type { Sessions } from "./sessions.ts";
import type { Tokens } from "./tokens.ts";
import { isSignInValid, type UserRow, uidOf } from "./user.ts";
import type { Users } from "./users.ts";

/** Tolerated clock difference to the instance that issued a token. */
const SKEW_MS = MINUTE_MS;

/**
 * Creates the function that authenticates each request. It returns the actor of a credential, or the problem with which to
 * reject the request: 401, and for tokens of Entra also 403 and 503.
 *
 * @param deps.ensureBootstrapAdministrator - Resolves once the bootstrap administrator matches the configuration. It runs
 * before a credential is checked, because a reset revokes earlier tokens. Its result is a function that throws for the bootstrap
 * administrator if the service can't read whether the configured password changed.
 */
export function createAuthentication(deps: {
  tokens: Tokens;
  users: Users;
  sessions: Sessions;
  apiTokens: ApiTokens;
  entra: EntraTokens | undefined;
  /** Returns true if the user must enroll a second factor before anything else. */
  mustEnroll: (user: UserRow) => Promise<boolean>;
  ensureBootstrapAdministrator: () => Promise<(username: string) => void>;
  clock: Clock;
}): (credential: Credential) => Promise<Actor | Problem> {
  const { tokens, users, sessions, apiTokens, entra, mustEnroll, ensureBootstrapAdministrator, clock } = deps;

  /**
   * Returns true if a token claims a future time of issue. A revocation before that time would not end the token. The time of
   * the user's newest sign-in is allowed, because an instance whose clock is ahead may have written it.
   */
  function isFromFuture(issuedAt: Date, { lastSignInAt }: UserRow): boolean {
    const newestMs = lastSignInAt === undefined ? 0 : Date.parse(lastSignInAt);
    return issuedAt.getTime() > Math.max(clock.now().getTime() + SKEW_MS, newestMs);
  }

  async function authenticateToken(token: string): Promise<Actor | undefined> {
    const claims = await tokens.verify(token);
    if (!claims) return undefined;
    (await ensureBootstrapAdministrator())(claims.username);
    const user = await users.find(claims.username);
    if (
      !user ||
      !isSignInValid(user, claims.issuedAt) ||
      isFromFuture(claims.issuedAt, user) ||
      // Another `uid`: the user was deleted, and the name belongs to a new user. Tokens of an earlier version have no `uid`.
      (claims.uid ?? uidOf(user)) !== uidOf(user) ||
      user.revokedTokens.some(({ id }) => id === claims.id)
    ) {
      return undefined;
    }
    const { username, role, mustChangePassword = false } = user;
    const { id, issuedAt: since, expiresAt } = claims;
    const credential = { kind: "token", id, since, expiresAt } as const;
    const confirmedAt = confirmedAtOf(user, id);
    const mustEnrollSecondFactor = await mustEnroll(user);
    return { username, role, credential, confirmedAt, mustChangePassword, mustEnrollSecondFactor };
  }

  async function authenticateSession(cookie: string): Promise<Actor | undefined> {
    const requireCurrent = await ensureBootstrapAdministrator();
    const session = await sessions.find(cookie);
    if (!session) return undefined;
    requireCurrent(session.user.username);
    const { username, role, mustChangePassword = false } = session.user;
    const credential = { kind: "session", id: session.id, since: session.since } as const;
    // Only a user who signed in with the password must change it: a user who signed in with SSO may not know it.
    const byPassword = session.by === "password";
    // The identity provider asks for the second factor of single sign-on.
    const mustEnrollSecondFactor = byPassword && (await mustEnroll(session.user));
    return {
      username,
      role,
      credential,
      confirmedAt: confirmedAtOf(session.user, session.id, session.authenticatedAt),
      mustChangePassword: mustChangePassword && byPassword,
      mustEnrollSecondFactor,
    };
  }

  // Without `mustChangePassword`: a reset of the password revokes the API tokens, and new ones need the new password.
  async function authenticateApiToken(token: string): Promise<Actor | undefined> {
    const requireCurrent = await ensureBootstrapAdministrator();
    const apiToken = await apiTokens.find(token);
    if (!apiToken) return undefined;
    requireCurrent(apiToken.user.username);
    return { username: apiToken.user.username, role: apiToken.role, credential: { kind: "apiToken", id: apiToken.id } };
  }

  return async (credential) => {
    if (credential.kind === "session")
      return (await authenticateSession(credential.cookie)) ?? badCredential("session");
    const { token } = credential;
    if (token.startsWith(API_TOKEN_PREFIX)) return (await authenticateApiToken(token)) ?? badCredential("apiToken");
    return (await entra?.authenticate(token)) ?? (await authenticateToken(token)) ?? badCredential("bearer");
  };
}
