import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import { type UserRecord, userKey } from "./user.ts";

/** Users, sign-ins and passwords as the API shows and takes them. */

export const Username = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$/,
    "must be 1 to 128 letters, digits or . _ @ + -, a letter or digit first",
  )
  .meta({ description: "Upper and lower case are the same user.", example: "maria.lopez" });

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
    access_token: z.string(),
    token_type: z.literal("bearer"),
    expires_in: z.int().meta({ description: "Seconds." }),
  })
  .meta({ id: "SignedIn" });

export const SignOut = z
  .strictObject({
    everywhere: z
      .boolean()
      .default(false)
      .meta({ description: "Ends every token of yours, on whatever machine it was got, not only this one." }),
  })
  .meta({ id: "SignOut" });

export const SignedOut = z.object({ signedOut: z.literal(true) }).meta({ id: "SignedOut" });

export const PasswordChange = z
  .strictObject({ currentPassword: typedPassword, newPassword: NewPassword })
  .meta({ id: "PasswordChange" });

export const PasswordChanged = z.object({ passwordChanged: z.literal(true) }).meta({ id: "PasswordChanged" });

const instant = z.iso.datetime();

/** A user as the API shows it. */
export const UserView = z
  .object({
    id: z.string().meta({ description: "The username in lower case.", example: "maria.lopez" }),
    username: z.string(),
    email: z.string().nullable(),
    role: z.enum(ROLES),
    state: z.enum(["active", "disabled"]),
    createdAt: instant,
    createdBy: z.string(),
    updatedAt: instant,
    lastSignInAt: instant.nullable(),
    etag: z.string(),
  })
  .meta({ id: "User" });
export type UserView = z.infer<typeof UserView>;

/** The members of a row that its view is made of. */
export const VIEWED = [
  "username",
  "email",
  "role",
  "state",
  "revision",
  "createdAt",
  "createdBy",
  "updatedAt",
  "lastSignInAt",
] as const satisfies readonly (keyof UserRecord)[];

export function userView(user: Pick<UserRecord, (typeof VIEWED)[number]>): UserView {
  return {
    id: userKey(user.username),
    username: user.username,
    email: user.email ?? null,
    role: user.role,
    state: user.state,
    createdAt: user.createdAt,
    createdBy: user.createdBy,
    updatedAt: user.updatedAt,
    lastSignInAt: user.lastSignInAt ?? null,
    etag: `"${user.revision}"`,
  };
}
