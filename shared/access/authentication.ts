import { badCredential, type Credential } from "../platform/http/admission.ts";
import type { Actor } from "../platform/http/endpoint.ts";
import type { Problem } from "../platform/http/problem.ts";
import { API_TOKEN_PREFIX } from "./api-token-text.ts";
import type { ApiTokens } from "./api-tokens.ts";
import type { EntraTokens } from "./entra.ts";
import type { Sessions } from "./sessions.ts";
import type { Tokens } from "./tokens.ts";
import { isSignInValid, uidOf } from "./user.ts";
import type { Users } from "./users.ts";

/**
 * Creates the function that authenticates each request. It returns the actor of a credential, or the problem with which to
 * reject the request: 401, and for tokens of Entra also 403 and 503.
 *
 * @param deps.ensureBootstrapAdministrator - Resolves once the bootstrap administrator matches the configuration. A reset
 * revokes earlier tokens, so it must come first.
 */
export function createAuthentication(deps: {
  tokens: Tokens;
  users: Users;
  sessions: Sessions;
  apiTokens: ApiTokens;
  entra: EntraTokens | undefined;
  ensureBootstrapAdministrator: () => Promise<void>;
}): (credential: Credential) => Promise<Actor | Problem> {
  const { tokens, users, sessions, apiTokens, entra, ensureBootstrapAdministrator } = deps;

  async function authenticateToken(token: string): Promise<Actor | undefined> {
    const claims = await tokens.verify(token);
    if (!claims) return undefined;
    await ensureBootstrapAdministrator();
    const user = await users.find(claims.username);
    if (
      !user ||
      !isSignInValid(user, claims.issuedAt) ||
      // Another `uid`: the user was deleted, and the name belongs to a new user. Tokens of an earlier version have no `uid`.
      (claims.uid ?? uidOf(user)) !== uidOf(user) ||
      user.revokedTokens.some(({ id }) => id === claims.id)
    ) {
      return undefined;
    }
    const { username, role, mustChangePassword = false } = user;
    const { id, issuedAt: since, expiresAt } = claims;
    const credential = { kind: "token", id, since, expiresAt } as const;
    return { username, role, credential, mustChangePassword };
  }

  async function authenticateSession(cookie: string): Promise<Actor | undefined> {
    await ensureBootstrapAdministrator();
    const session = await sessions.find(cookie);
    if (!session) return undefined;
    const { username, role, mustChangePassword = false } = session.user;
    const credential = { kind: "session", id: session.id, since: session.since } as const;
    // Only a user who signed in with the password must change it: a user who signed in with SSO may not know it.
    return { username, role, credential, mustChangePassword: mustChangePassword && session.by === "password" };
  }

  async function authenticateApiToken(token: string): Promise<Actor | undefined> {
    await ensureBootstrapAdministrator();
    const apiToken = await apiTokens.find(token);
    if (!apiToken) return undefined;
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
