import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import { pageParameters } from "../platform/http/paging.ts";
import { factorMembers, hasOneFactorAtMost, ONE_FACTOR } from "./second-factor-api.ts";
import { USERNAME } from "./user.ts";

// Schemas of users, sign-ins, sessions, API tokens and passwords in the API. The endpoints validate requests with them and
// generate the API description from them.

export const Username = z
  .string()
  .regex(USERNAME, "must be 1 to 128 letters, digits or . _ @ + -, a letter or digit first")
  .meta({ description: "Not case-sensitive.", example: "maria.lopez" });

/** Usernames with another meaning: `system` and `anonymous` are actors in the audit log, `sso-…` are IDs of SSO users. */
const RESERVED = /^(system|anonymous|sso-.*)$/i;

export const NewUsername = Username.refine((name) => !RESERVED.test(name), "is reserved: choose another name");

export const NewPassword = z
  .string()
  .min(12, "must have at least 12 characters")
  .max(256, "must have at most 256 characters")
  .meta({
    description: "12 to 256 characters. Common passwords are rejected. Never returned.",
    writeOnly: true,
    format: "password",
  });

/**
 * A username or password as a user types it. Only the length is limited, so that an error message reveals no rule for usernames
 * or passwords.
 */
const anyText = z.string().min(1).max(256);
const anyPassword = anyText.meta({ format: "password", writeOnly: true });

export const Credentials = z
  .strictObject({
    username: anyText,
    password: anyPassword,
    session: z
      .boolean()
      .default(false)
      .meta({ description: "For browsers: sets a session cookie and returns the user instead of a token." }),
    grantType: z
      .literal("password")
      .optional()
      .meta({ description: "Accepted and ignored, for clients that send the form of RFC 6749, section 4.3.2." }),
    ...factorMembers,
  })
  .refine(hasOneFactorAtMost, ONE_FACTOR)
  .meta({ id: "Credentials" });

export const SignedIn = z
  .object({
    access_token: z.string().meta({ description: "A JWT. Send it as `Authorization: Bearer`." }),
    token_type: z.literal("bearer").meta({ description: "Always `bearer`." }),
    expires_in: z.int().meta({ description: "Lifetime in seconds." }),
  })
  .meta({ id: "SignedIn" });

const apiTokens = z.boolean().default(false);

export const SignOut = z
  .strictObject({
    everywhere: z
      .boolean()
      .default(false)
      .meta({ description: "`true` ends all your tokens and sessions, not only this one." }),
    apiTokens: apiTokens.meta({ description: "`true` also revokes your API tokens. Requires `everywhere`." }),
  })
  .refine(({ everywhere, apiTokens }) => everywhere || !apiTokens, {
    path: ["apiTokens"],
    error: "must be sent with everywhere: true",
  })
  .meta({ id: "SignOut" });

export const SignedOut = z
  .object({
    signedOut: z.literal(true).meta({ description: "Always true: the token or session has ended." }),
    logoutUrl: z.string().nullable().optional().meta({
      example: "https://login.example.com/logout?client_id=lifecycle",
      description:
        "URL that ends the session at the identity provider. Open it in the browser that signed in. Null if the provider has no such URL. Absent if the session was not created by single sign-on.",
    }),
  })
  .meta({ id: "SignedOut" });

export const FirstPasswordRequest = z
  .strictObject({
    roleAssignment: z.guid().meta({
      description: "Name of a role assignment on the service's key vault that the deployer created for this request.",
      example: "2f6f8a4c-5d0b-4b53-9a3e-0d1c7a6a9e11",
    }),
    verifier: z
      .string()
      .regex(/^[A-Za-z0-9_-]{43}$/, "must be 32 bytes in base64url")
      .meta({
        description:
          "32 random bytes in base64url. The assignment's description must be `first-password:` and their SHA-256 (of the text) in base64url.",
        writeOnly: true,
      }),
    password: NewPassword,
  })
  .meta({ id: "FirstPasswordRequest" });

export const FirstPasswordSet = z
  .object({ username: z.string().meta({ description: "Username of the bootstrap administrator.", example: "admin" }) })
  .meta({ id: "FirstPasswordSet" });

export const PasswordChange = z
  .strictObject({
    currentPassword: anyPassword.meta({ description: "Current password. Never returned." }),
    newPassword: NewPassword,
    apiTokens: apiTokens.meta({ description: "`true` also revokes your API tokens." }),
  })
  .meta({ id: "PasswordChange" });

export const PasswordChanged = z
  .object({
    passwordChanged: z.literal(true).meta({
      description: "Always true. All tokens and sessions that were created with the old password have ended.",
    }),
  })
  .meta({ id: "PasswordChanged" });

const instant = z.iso.datetime();

/** A user in API responses. */
export const UserView = z
  .object({
    id: z.string().meta({
      description: "Username in lower case. For users created by single sign-on, `sso-` and a hash of the identity.",
      example: "maria.lopez",
    }),
    username: z.string(),
    email: z.string().nullable(),
    role: z.enum(ROLES),
    source: z.enum(["local", "sso"]).meta({ description: "Whether the user was created here or by single sign-on." }),
    state: z
      .enum(["active", "disabled"])
      .meta({ description: "`disabled`: the user can't sign in, and all tokens and sessions have ended." }),
    mustChangePassword: z.boolean().meta({
      description:
        "True if the user must replace a password that an administrator set. Until then, it opens only POST /auth/password.",
    }),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    lastSignInAt: instant.nullable(),
    etag: z.string(),
  })
  .meta({ id: "User" });
export type UserView = z.infer<typeof UserView>;

const operatorAddressesSet = z.boolean().optional().meta({
  description:
    "False if nobody is notified of problems of the service itself, because the deployment has no addresses for these alerts. Absent for other roles than administrators, and if the deployment does not say.",
});

/** A caller with an access token of Entra. The service stores no user for it. */
export const EntraView = z
  .object({
    id: z.string().meta({ description: "Name in the audit log: entra:<tenant>:<object ID>." }),
    username: z.string(),
    role: z.enum(ROLES).meta({ description: "Role from the app roles of the token." }),
    source: z.literal("entra").meta({ description: "Always `entra`: the service stores no such user." }),
    operatorAddressesSet,
  })
  .meta({ id: "EntraPrincipal" });

const secondFactorEnrolled = z.boolean().meta({
  description: "True if a sign-in with the user's password needs a second factor. Single sign-on never asks for it.",
});

/** The caller, if the service stores the user. */
const SignedInUser = UserView.extend({
  secondFactorEnrolled,
  operatorAddressesSet,
  mustEnrollSecondFactor: z.boolean().meta({
    description:
      "True if the setting requireSecondFactor requires a second factor and the user has none. Until then, the sign-in opens only the endpoints that enroll one.",
  }),
});

/** The signed-in caller: a user, or the bearer of a token of Entra. */
export type Principal = z.infer<typeof SignedInUser> | z.infer<typeof EntraView>;

const tier = z.enum(["core", "pro"]).meta({ description: "Current licensed tier." });
export const Me = z.union([
  SignedInUser.extend({ tier }).meta({ id: "SignedInUser" }),
  EntraView.extend({ tier }).meta({ id: "SignedInPrincipal" }),
]);

const SsoIdentity = z
  .strictObject({
    issuer: z.string().min(1).max(1024).meta({ description: "Issuer of the provider, or its SAML entity ID." }),
    subject: z
      .string()
      .min(1)
      .max(1024)
      .meta({ description: "Identifier of the user at the provider. Never an e-mail address." }),
  })
  .meta({ id: "SsoIdentity" });

/** A user as administrators see it. */
export const AccountView = UserView.extend({
  sso: SsoIdentity.nullable().meta({ description: "Single sign-on identity of the user." }),
  lockedUntil: instant.nullable().meta({
    description: "Time until which failed sign-ins block this user from at least one address. Null when not blocked.",
  }),
  secondFactorEnrolled,
}).meta({ id: "UserAccount" });
export type AccountView = z.infer<typeof AccountView>;

const Email = z.email("must be an e-mail address").max(254);

export const NewUser = z
  .strictObject({
    username: NewUsername,
    email: Email.nullable().optional(),
    password: NewPassword.meta({
      description:
        "12 to 256 characters. Expires after unusedPasswordDays (a setting) if the user never signs in with it.",
    }),
    role: z.enum(ROLES).default("user"),
    mustChangePassword: z.boolean().optional().meta({
      description:
        "True if the user must replace the password at the first sign-in. Default: the setting requirePasswordChange.",
    }),
  })
  .meta({ id: "NewUser" });

export const UserChange = z
  .strictObject({
    email: Email.nullable(),
    role: z.enum(ROLES),
    state: z.enum(["active", "disabled"]).meta({
      description: "`disabled` ends all tokens and sessions of the user at once; `active` lets the user sign in again.",
    }),
    password: NewPassword.meta({
      description:
        "Password reset: the user must choose a new password at the next sign-in. Expires after unusedPasswordDays (a setting) if the user never signs in with it.",
    }),
    sso: SsoIdentity.nullable().meta({
      description: "Identity that can sign in as this user. Each identity belongs to one user. Null removes it.",
    }),
  })
  .partial()
  .meta({ id: "UserChange" });

/** An SSO identity of a deleted user. It is blocked from signing in. */
export const RefusedIdentity = z
  .object({
    id: z.string(),
    issuer: z.string(),
    subject: z.string(),
    username: z.string().meta({ description: "Name of the deleted user." }),
    refusedAt: instant.meta({ description: "Time when the user was deleted." }),
    refusedBy: z.string().meta({ description: "Name of the person who deleted the user." }),
  })
  .meta({ id: "RefusedIdentity" });
export type RefusedIdentity = z.infer<typeof RefusedIdentity>;

/** A session in API responses. */
export const SessionView = z
  .object({
    id: z.string().meta({ description: "Username in lower case, a dot, and the hash of the cookie value." }),
    user: z.string().meta({ description: "ID of the user." }),
    current: z.boolean().meta({ description: "True for the session of this request." }),
    createdAt: instant,
    idleEndsAt: instant.meta({ description: "Time when the session expires if it is not used." }),
    endsAt: instant.meta({ description: "Time when the session expires in any case." }),
    by: z.enum(["password", "sso"]).meta({ description: "How the user signed in." }),
    address: z.string().nullable().meta({ description: "Address from which the user signed in." }),
    userAgent: z.string().nullable().meta({ description: "User agent of the browser." }),
  })
  .meta({ id: "Session" });
export type SessionView = z.infer<typeof SessionView>;

const TokenName = z
  .string()
  .trim()
  .min(1)
  .max(100)
  .meta({ description: "Purpose of the token. Unique for each user.", example: "nightly report" });

export const MAX_TOKEN_DAYS = 365;

export const NewApiToken = z
  .strictObject({
    name: TokenName,
    role: z.enum(ROLES).default("user").meta({
      description:
        "Your own role or `user`; administrators can grant any role. A token never grants more than your current role.",
    }),
    expiresInDays: z
      .int()
      .min(1)
      .max(MAX_TOKEN_DAYS)
      .default(90)
      .meta({ description: "Days until the token expires, 1 to 365." }),
  })
  .meta({ id: "NewApiToken" });

/** An API token in API responses. */
export const ApiTokenView = z
  .object({
    id: z.string(),
    user: z.string().meta({ description: "ID of the user." }),
    name: z.string(),
    role: z.enum(ROLES).meta({ description: "Role of the token. It never grants more than the user's current role." }),
    createdAt: instant,
    expiresAt: instant,
    expired: z.boolean(),
    lastUsedOn: z.iso.date().nullable().meta({ description: "Day of the last use, in UTC." }),
  })
  .meta({ id: "ApiToken" });
export type ApiTokenView = z.infer<typeof ApiTokenView>;

export const CreatedApiToken = ApiTokenView.extend({
  token: z.string().meta({ description: "Returned only once. Send it as `Authorization: Bearer`." }),
}).meta({ id: "CreatedApiToken" });
export type CreatedApiToken = z.infer<typeof CreatedApiToken>;

/** The query of the lists of sessions and API tokens. */
export const UserPageQuery = z.strictObject({
  user: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .meta({ description: "ID of a user. Users other than yourself require an administrator." }),
  ...pageParameters,
});
