import * as z from "zod";
import {
  Credentials,
  FirstPasswordRequest,
  FirstPasswordSet,
  Me,
  PasswordChange,
  PasswordChanged,
  SessionView,
  SignedIn,
  SignedOut,
  SignOut,
  UserPageQuery,
  UserView,
} from "../shared/access/api.ts";
import { userView } from "../shared/access/views.ts";
import { SESSION_COOKIE } from "../shared/platform/http/admission.ts";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import { requireSameOrigin } from "../shared/platform/http/origin.ts";
import { pageOf, pageRequest } from "../shared/platform/http/paging.ts";
import { Deleted, deleted, ok } from "../shared/platform/http/reply.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

// Endpoints of sign-in, the signed-in user, passwords and browser sessions. API tokens are in api-tokens.ts.

const tag = "Authentication";

const signIn = endpoint({
  name: "signIn",
  method: "POST",
  route: "auth/login",
  summary: "Sign in",
  description:
    "Accepts JSON or a form. Send the access_token of the response in the header `Authorization: Bearer <token>`. After five failed sign-ins of a username from one address, that combination is blocked for 15 minutes (429 with Retry-After). Failures from many addresses slow down sign-ins of that username, except from addresses with a recent successful sign-in. Tokens that were issued before stay valid. For a user with a second factor, a request with the correct password alone returns 401 `secondFactorRequired` with `methods` and, for passkeys, `passkeyOptions`. Send the same request again with one of `totp`, `recoveryCode` and `passkey`. Each code and challenge works once, and wrong ones count as failed sign-ins.",
  tag,
  access: "open",
  tier: "core",
  rateLimit: "signIn",
  body: Credentials,
  form: true,
  example: { body: { username: "admin", password: "the password that npm start printed" } },
  responds: {
    200: z.union([
      SignedIn,
      z.object({ user: UserView.meta({ description: "The signed-in user. The session is in the cookie." }) }),
    ]),
  },
  problems: [
    "invalidCredentials",
    "tooManyAttempts",
    "crossSite",
    "ssoOnly",
    "passwordExpired",
    "secondFactorRequired",
    "secondFactorFailed",
    // A code of an authenticator app, in a service without a key vault of its own.
    "conflict",
  ],
  cookies: [SESSION_COOKIE],
  handle: async ({ body, caller, headers, origin, services }) => {
    const { session, ...credentials } = body;
    if (!session) return ok(await services.access.signIn(credentials, caller));
    requireSameOrigin(headers, origin);
    const userAgent = headers.get("user-agent")?.slice(0, 200);
    const { user, cookie } = await services.access.signInToSession(credentials, caller, userAgent);
    return { ...ok({ user: userView(user) }), cookies: [cookie] };
  },
});

const setFirstPassword = endpoint({
  name: "setFirstPassword",
  method: "POST",
  route: "auth/bootstrap/azure",
  summary: "Set the first password with a sign-in to Azure",
  description:
    "For `npm run first-password`, which the deployer runs. Sets the password of the bootstrap administrator. The proof is a role assignment on the service's key vault: Azure Resource Manager records that the deployer (DEPLOYER_OBJECT_ID) created it within the last 15 minutes, and its description contains the hash of `verifier`. Don't send an access token. Works once, while the bootstrap administrator is the only user and never signed in; later requests return 409. Returns 403 if the assignment proves nothing, and 503 until Azure shows the assignment.",
  tag,
  access: "open",
  tier: "core",
  rateLimit: "signIn",
  body: FirstPasswordRequest,
  example: {
    body: {
      roleAssignment: "2f6f8a4c-5d0b-4b53-9a3e-0d1c7a6a9e11",
      verifier: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
      password: "a first password of one's own",
    },
  },
  responds: { 200: FirstPasswordSet },
  problems: ["conflict", "forbidden"],
  handle: async ({ body, caller, services }) => ok({ username: await services.access.setFirstPassword(body, caller) }),
});

const signOut = endpoint({
  name: "signOut",
  method: "POST",
  route: "auth/logout",
  summary: "Sign out",
  description:
    "Ends the token or session of this request. For a session by single sign-on, the response has a logoutUrl, which ends the session at the identity provider too; without opening it, the next sign-in may need no password. With `everywhere`, ends all your tokens and sessions on every instance at once. API tokens stay valid, unless `apiTokens` is true.",
  tag,
  access: "user",
  tier: "core",
  // API tokens and Entra tokens are rejected. Also works while the user must replace a password that an administrator set.
  interactive: true,
  beforePasswordChange: true,
  body: SignOut,
  bodyOptional: true,
  example: { body: { everywhere: false } },
  responds: { 200: SignedOut },
  cookies: [SESSION_COOKIE],
  handle: async ({ body, actor, caller, origin, services }) => {
    const session = await services.access.signOut(actor, body, caller);
    const logout = session && { logoutUrl: await services.sso.logoutUrl(session, origin) };
    // A browser may keep answers that have a version, such as rules, on its disk.
    const headers = { "Clear-Site-Data": '"cache"' };
    return { ...ok({ signedOut: true, ...logout }), headers, cookies: [services.access.noSession] };
  },
});

const getMe = endpoint({
  name: "getMe",
  method: "GET",
  route: "auth/me",
  summary: "Get the signed-in user and the licensed tier",
  tag,
  access: "user",
  tier: "core",
  beforePasswordChange: true,
  responds: { 200: Me },
  handle: async ({ actor, services }) => {
    const [me, { tier }] = await Promise.all([services.access.me(actor), services.licensing.status()]);
    return ok({ ...me, tier });
  },
});

const changePassword = endpoint({
  name: "changePassword",
  method: "POST",
  route: "auth/password",
  summary: "Change your password",
  description:
    "Ends all your tokens and sessions, including this one. Sign in again with the new password. API tokens stay valid, unless `apiTokens` is true.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  beforePasswordChange: true,
  body: PasswordChange,
  example: { body: { currentPassword: "the current password", newPassword: "seven green bicycles uphill" } },
  responds: { 200: PasswordChanged },
  problems: ["conflict", "tooManyAttempts"],
  handle: async ({ body, actor, caller, services }) => {
    await services.access.changePassword(actor, body, caller);
    return ok({ passwordChanged: true });
  },
});

const listSessions = endpoint({
  name: "listSessions",
  method: "GET",
  route: "auth/sessions",
  summary: "List sessions",
  description:
    "Returns your own browser sessions, newest first. Administrators can request the sessions of another user.",
  tag,
  access: "user",
  tier: "core",
  query: UserPageQuery,
  responds: { 200: pageOf(SessionView, "SessionList") },
  handle: async ({ query, actor, services }) =>
    ok(await services.access.sessions.list(actor, query.user, pageRequest(query))),
});

const endSession = endpoint({
  name: "endSession",
  method: "DELETE",
  route: "auth/sessions/{session_id}",
  summary: "End a session",
  description:
    "You can end your own sessions; administrators can end any session. All instances reject the session from its next request on.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  params: z.object({ session_id: z.string() }),
  responds: { 200: Deleted },
  problems: ["notFound"],
  handle: async ({ params, actor, caller, services }) => {
    await services.access.sessions.end(actor, params.session_id, caller);
    return deleted();
  },
});

export const endpoints: Endpoint<Services>[] = [
  signIn,
  setFirstPassword,
  signOut,
  getMe,
  changePassword,
  listSessions,
  endSession,
];
