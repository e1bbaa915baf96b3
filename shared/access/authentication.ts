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
 * Creates the function that returns the actor of a credential, or the problem to answer with: 401, and for tokens of Entra also
 * 403 and 503.
 *
 * @param deps.bootstrapped - Resolves once the bootstrap administrator matches the configuration. A reset revokes earlier
 * tokens, so it must come first.
 */
export function createAuthentication(deps: {
  tokens: Tokens;
  users: Users;
  sessions: Sessions;
  apiTokens: ApiTokens;
  entra: EntraTokens | undefined;
  bootstrapped: () => Promise<void>;
}): (credential: Credential) => Promise<Actor | Problem> {
  const { tokens, users, sessions, apiTokens, entra, bootstrapped } = deps;

  async function ofToken(token: string): Promise<Actor | undefined> {
    const claims = await tokens.verify(token);
    if (!claims) return undefined;
    await bootstrapped();
    const user = await users.find(claims.username);
    if (
      !user ||
      !isSignInValid(user, claims.issuedAt) ||
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

  async function ofSession(cookie: string): Promise<Actor | undefined> {
    await bootstrapped();
    const found = await sessions.find(cookie);
    if (!found) return undefined;
    const { username, role, mustChangePassword = false } = found.user;
    const credential = { kind: "session", id: found.id, since: found.since } as const;
    // An SSO user may not know the password, so only password sign-ins must change it.
    return { username, role, credential, mustChangePassword: mustChangePassword && found.by === "password" };
  }

  async function ofApiToken(token: string): Promise<Actor | undefined> {
    await bootstrapped();
    const found = await apiTokens.find(token);
    if (!found) return undefined;
    return { username: found.user.username, role: found.role, credential: { kind: "apiToken", id: found.id } };
  }

  return async (credential) => {
    if (credential.kind === "session") return (await ofSession(credential.cookie)) ?? badCredential("session");
    const { token } = credential;
    if (token.startsWith(API_TOKEN_PREFIX)) return (await ofApiToken(token)) ?? badCredential("apiToken");
    return (await entra?.authenticate(token)) ?? (await ofToken(token)) ?? badCredential("bearer");
  };
}
