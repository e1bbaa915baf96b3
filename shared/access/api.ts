import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import { USERNAME } from "./user.ts";

/** Users, sign-ins and passwords as the API shows and takes them. */

export const Username = z
  .string()
  .regex(USERNAME, "must be 1 to 128 letters, digits or . _ @ + -, a letter or digit first")
  .meta({ description: "Upper and lower case are the same user.", example: "maria.lopez" });

/** What the audit log calls those who are no users, and how single sign-on names its own. */
const RESERVED = /^(system|anonymous|sso-.*)$/i;

export const NewUsername = Username.refine((name) => !RESERVED.test(name), "is reserved: choose another name");

export const NewPassword = z
  .string()
  .min(12, "must have at least 12 characters")
  .max(256, "must have at most 256 characters")
  .meta({
    description: "12 to 256 characters, none of the passwords that are guessed first. Never returned.",
    writeOnly: true,
    format: "password",
  });

/** Whatever somebody types: only its length is bounded, so that nothing is told of how usernames or passwords look. */
const typed = z.string().min(1).max(256);
const typedPassword = typed.meta({ format: "password", writeOnly: true });

export const Credentials = z
  .strictObject({
    username: typed,
    password: typedPassword,
    session: z
      .boolean()
      .default(false)
      .meta({ description: "For browsers: sets a session's cookie and answers the user instead of a token." }),
    grantType: z
      .literal("password")
      .optional()
      .meta({ description: "Taken, and not needed, for clients that send the form of RFC 6749, 4.3.2." }),
  })
  .meta({ id: "Credentials" });

export const SignedIn = z
  .object({
    access_token: z.string().meta({ description: "A JWT: send it as `Authorization: Bearer`." }),
    token_type: z.literal("bearer").meta({ description: "Always `bearer`." }),
    expires_in: z.int().meta({ description: "Seconds." }),
  })
  .meta({ id: "SignedIn" });

const apiTokens = z.boolean().default(false);

export const SignOut = z
  .strictObject({
    everywhere: z
      .boolean()
      .default(false)
      .meta({ description: "Ends every token and session of yours, wherever it was got, not only this one." }),
    apiTokens: apiTokens.meta({ description: "Ends your API tokens as well. Only beside everywhere." }),
  })
  .refine(({ everywhere, apiTokens }) => everywhere || !apiTokens, {
    path: ["apiTokens"],
    error: "stands only beside everywhere: true",
  })
  .meta({ id: "SignOut" });

export const SignedOut = z
  .object({ signedOut: z.literal(true).meta({ description: "Always true: the token or session has ended." }) })
  .meta({ id: "SignedOut" });

export const PasswordChange = z
  .strictObject({
    currentPassword: typedPassword.meta({ description: "The password so far. Never returned." }),
    newPassword: NewPassword,
    apiTokens: apiTokens.meta({ description: "Ends your API tokens as well." }),
  })
  .meta({ id: "PasswordChange" });

export const PasswordChanged = z
  .object({
    passwordChanged: z
      .literal(true)
      .meta({ description: "Always true. Every token and session that was got with the old one has ended." }),
  })
  .meta({ id: "PasswordChanged" });

const instant = z.iso.datetime();

/** A user as the API shows it. */
export const UserView = z
  .object({
    id: z.string().meta({
      description: "The username in lower case; `sso-` and a hash of the identity for who was made by single sign-on.",
      example: "maria.lopez",
    }),
    username: z.string(),
    email: z.string().nullable(),
    role: z.enum(ROLES),
    source: z.enum(["local", "sso"]).meta({ description: "Whether it was made here or by single sign-on." }),
    state: z
      .enum(["active", "disabled"])
      .meta({ description: "`disabled`: may not sign in, and every token and session has ended." }),
    mustChangePassword: z.boolean().meta({
      description: "After an administrator's reset. Until then the password opens only POST /auth/password.",
    }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    lastSignInAt: instant.nullable(),
    etag: z.string(),
  })
  .meta({ id: "User" });
export type UserView = z.infer<typeof UserView>;

/** Who calls with an access token of Entra: nobody keeps a user for it here. */
export const EntraView = z
  .object({
    id: z.string().meta({ description: "As the audit log names its actions: entra:<tenant>:<object id>." }),
    username: z.string(),
    role: z.enum(ROLES).meta({ description: "As the token's app roles say." }),
    source: z.literal("entra").meta({ description: "Always `entra`: no user is kept here." }),
  })
  .meta({ id: "EntraPrincipal" });

/** Who is signed in, by either way. */
export type Principal = UserView | z.infer<typeof EntraView>;

const tier = z.enum(["core", "pro"]).meta({ description: "The tier that is licensed now." });
export const Me = z.union([
  UserView.extend({ tier }).meta({ id: "SignedInUser" }),
  EntraView.extend({ tier }).meta({ id: "SignedInPrincipal" }),
]);

const SsoIdentity = z
  .strictObject({
    issuer: z.string().min(1).max(1024).meta({ description: "The provider's issuer, or its SAML entity id." }),
    subject: z.string().min(1).max(1024).meta({ description: "Who it is there: never an e-mail address." }),
  })
  .meta({ id: "SsoIdentity" });

/** A user as administrators see it. */
export const AccountView = UserView.extend({
  sso: SsoIdentity.nullable().meta({ description: "Whom single sign-on knows the user as." }),
  lockedUntil: instant.nullable().meta({
    description: "Until when failed sign-ins keep this user out, from at least one address. Null when they do not.",
  }),
}).meta({ id: "UserAccount" });
export type AccountView = z.infer<typeof AccountView>;

const Email = z.email("must be an e-mail address").max(254);

export const NewUser = z
  .strictObject({
    username: NewUsername,
    email: Email.nullable().optional(),
    password: NewPassword,
    role: z.enum(ROLES).default("user"),
  })
  .meta({ id: "NewUser" });

export const UserChange = z
  .strictObject({
    email: Email.nullable(),
    role: z.enum(ROLES),
    state: z.enum(["active", "disabled"]).meta({
      description: "`disabled` ends every token and session of the user at once; `active` lets the user sign in again.",
    }),
    password: NewPassword.meta({ description: "A reset: the user must choose another one at the next sign-in." }),
    sso: SsoIdentity.nullable().meta({
      description: "Lets this identity sign in as the user; nobody else may have it. Null takes it away.",
    }),
  })
  .partial()
  .meta({ id: "UserChange" });

/** An identity of a deleted user, with which nobody signs in. */
export const RefusedIdentity = z
  .object({
    id: z.string(),
    issuer: z.string(),
    subject: z.string(),
    username: z.string().meta({ description: "The name of the user who was deleted." }),
    refusedAt: instant.meta({ description: "When its user was deleted." }),
    refusedBy: z.string().meta({ description: "Who deleted the user." }),
  })
  .meta({ id: "RefusedIdentity" });
export type RefusedIdentity = z.infer<typeof RefusedIdentity>;

/** A session as the API shows it. */
export const SessionView = z
  .object({
    id: z.string().meta({ description: "The username in lower case, a dot and the hash of what the cookie holds." }),
    user: z.string().meta({ description: "The id of the user it belongs to." }),
    current: z.boolean().meta({ description: "Whether this request was made with it." }),
    createdAt: instant,
    idleEndsAt: instant.meta({ description: "When it ends unless it is used before." }),
    endsAt: instant.meta({ description: "When it ends in any case." }),
    by: z.enum(["password", "sso"]).meta({ description: "How the user signed in." }),
    address: z.string().nullable().meta({ description: "From where the user signed in." }),
    userAgent: z.string().nullable().meta({ description: "What the browser says it is." }),
  })
  .meta({ id: "Session" });
export type SessionView = z.infer<typeof SessionView>;

const TokenName = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .meta({ description: "What it is for; no two tokens of a user have the same.", example: "nightly report" });

export const MAX_TOKEN_DAYS = 365;

export const NewApiToken = z
  .strictObject({
    name: TokenName,
    role: z.enum(ROLES).default("user").meta({
      description: "Your own role or `user`; an administrator may give any. It never counts for more than your role.",
    }),
    expiresInDays: z
      .int()
      .min(1)
      .max(MAX_TOKEN_DAYS)
      .default(90)
      .meta({ description: "Days until it ends, 1 to 365." }),
  })
  .meta({ id: "NewApiToken" });

/** An API token as the API shows it. */
export const ApiTokenView = z
  .object({
    id: z.string(),
    user: z.string().meta({ description: "The id of the user it belongs to." }),
    name: z.string(),
    role: z.enum(ROLES).meta({ description: "Counts for no more than the user's role is now." }),
    createdAt: instant,
    expiresAt: instant,
    expired: z.boolean(),
    lastUsedOn: z.iso.date().nullable().meta({ description: "The day it was last used on, in UTC." }),
  })
  .meta({ id: "ApiToken" });
export type ApiTokenView = z.infer<typeof ApiTokenView>;

export const CreatedApiToken = ApiTokenView.extend({
  token: z.string().meta({ description: "Shown only now. Send it as Authorization: Bearer." }),
}).meta({ id: "CreatedApiToken" });
export type CreatedApiToken = z.infer<typeof CreatedApiToken>;

/** Whose sessions or tokens are asked for. */
export const userParameter = {
  user: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "A user's id. Others than oneself are for administrators." }),
};
