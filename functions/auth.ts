import * as z from "zod";
import {
  Credentials,
  PasswordChange,
  PasswordChanged,
  SignedIn,
  SignedOut,
  SignOut,
  UserView,
  userView,
} from "../shared/access/api.ts";
import { requireSameOrigin } from "../shared/http/origin.ts";
import { ok } from "../shared/http/reply.ts";
import { endpoint } from "./kit.ts";

const tag = "Authentication";

const signIn = endpoint({
  name: "signIn",
  method: "POST",
  route: "auth/login",
  summary: "Sign in",
  description:
    "As JSON or as a form. The answer's access_token goes into the header `Authorization: Bearer <token>`. After five failures of a username from one address that pair waits 15 minutes (429 with Retry-After). Failures from many addresses slow a username down, but not for an address from which it signed in lately. None of it ends a token that was issued before.",
  tag,
  access: "open",
  tier: "core",
  rateLimit: "signIn",
  body: Credentials,
  form: true,
  responds: { 200: z.union([SignedIn, z.object({ user: UserView })]) },
  problems: ["crossSite"],
  handle: async ({ body, caller, headers, origin, services }) => {
    const { session, ...credentials } = body;
    if (!session) return ok(await services.access.signIn(credentials, caller));
    requireSameOrigin(headers, origin);
    const userAgent = headers.get("user-agent")?.slice(0, 200);
    const { user, cookie } = await services.access.signInToSession(credentials, caller, userAgent);
    return { ...ok({ user: userView(user) }), cookies: [cookie] };
  },
});

const signOut = endpoint({
  name: "signOut",
  method: "POST",
  route: "auth/logout",
  summary: "Sign out",
  description:
    "Ends the token or session this is called with, or with everywhere all of yours, on every instance at once.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  body: SignOut,
  bodyOptional: true,
  responds: { 200: SignedOut },
  handle: async ({ body, actor, caller, services }) => {
    await services.access.signOut(actor, body.everywhere, caller);
    return { ...ok({ signedOut: true }), cookies: [services.access.noSession] };
  },
});

const getMe = endpoint({
  name: "getMe",
  method: "GET",
  route: "auth/me",
  summary: "The user who is signed in",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: UserView },
  handle: async ({ actor, services }) => ok(await services.access.me(actor)),
});

const changePassword = endpoint({
  name: "changePassword",
  method: "POST",
  route: "auth/password",
  summary: "Change your own password",
  description: "Ends every token and session of yours, this one too: sign in again with the new password.",
  tag,
  access: "user",
  tier: "core",
  interactive: true,
  body: PasswordChange,
  responds: { 200: PasswordChanged },
  handle: async ({ body, actor, caller, services }) => {
    await services.access.changePassword(actor, body.currentPassword, body.newPassword, caller);
    return ok({ passwordChanged: true });
  },
});

export const endpoints = [signIn, signOut, getMe, changePassword];
