import * as z from "zod";
import { NewPassword, UserView } from "../shared/access/user.ts";
import { ok } from "../shared/http/reply.ts";
import { endpoint } from "./kit.ts";

const tag = "Authentication";

/** Whatever somebody types: only its length is bounded, so that nothing is told of how usernames or passwords look. */
const typed = z.string().min(1).max(256);
const typedPassword = typed.meta({ format: "password", writeOnly: true });

const signIn = endpoint({
  name: "signIn",
  method: "POST",
  route: "auth/login",
  summary: "Sign in",
  description:
    "The answer's access_token goes into the header `Authorization: Bearer <token>`. After five failures of a username from one address that pair waits 15 minutes (429 with Retry-After); failures from many addresses slow a username down. Neither ends a token that was issued before.",
  tag,
  access: "open",
  tier: "core",
  rateLimit: "signIn",
  body: z.strictObject({ username: typed, password: typedPassword }).meta({ id: "Credentials" }),
  responds: {
    200: z
      .object({
        access_token: z.string(),
        token_type: z.literal("bearer"),
        expires_in: z.int().meta({ description: "Seconds." }),
      })
      .meta({ id: "SignedIn" }),
  },
  handle: async ({ body, caller, services }) => ok(await services.access.signIn(body, caller)),
});

const signOut = endpoint({
  name: "signOut",
  method: "POST",
  route: "auth/logout",
  summary: "Sign out",
  description: "Ends the token this is called with, on every instance at once.",
  tag,
  access: "user",
  tier: "core",
  responds: { 200: z.object({ signedOut: z.literal(true) }).meta({ id: "SignedOut" }) },
  handle: async ({ actor, caller, services }) => {
    await services.access.signOut(actor, caller);
    return ok({ signedOut: true });
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
  description: "Ends every token of yours, this one too: sign in again with the new password.",
  tag,
  access: "user",
  tier: "core",
  body: z.strictObject({ currentPassword: typedPassword, newPassword: NewPassword }).meta({ id: "PasswordChange" }),
  responds: { 200: z.object({ passwordChanged: z.literal(true) }).meta({ id: "PasswordChanged" }) },
  handle: async ({ body, actor, caller, services }) => {
    await services.access.changePassword(actor, body.currentPassword, body.newPassword, caller);
    return ok({ passwordChanged: true });
  },
});

export const endpoints = [signIn, signOut, getMe, changePassword];
