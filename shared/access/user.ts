import { createHash } from "node:crypto";
import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { entity, type Row } from "../platform/storage/entity.ts";
import { secondFactor } from "./second-factor-record.ts";

// Rows of the table Users and functions on them. All rows are in one partition: users, the directory (which counts them and
// lists the administrators), SSO identities, API tokens and the marker of the bootstrap administrator.

/** Format of usernames. */
export const USERNAME = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$/;

/** All users share one partition, so that a user and the directory change in one transaction. */
export const USERS_PARTITION = "user";
// Row keys that can't be usernames: `|` is not allowed in a username and sorts after all allowed characters.
export const DIRECTORY_KEY = "|directory";
export const BOOTSTRAP_KEY = "|bootstrap";
/** The end of the range of users' row keys, exclusive. */
export const AFTER_USERS = "|";

const providerSession = z.object({
  /** Issuer or entity id of the provider. */
  issuer: z.string(),
  /** The provider's identifier of its session: `sid` in OIDC, `SessionIndex` in SAML. */
  sessionId: z.string().optional(),
  /** The `login_hint` claim, which Entra expects as `logout_hint`. */
  logoutHint: z.string().optional(),
  /** The NameID of the assertion, which a SAML logout request must repeat. */
  nameId: z
    .object({
      value: z.string(),
      format: z.string().optional(),
      nameQualifier: z.string().optional(),
      spNameQualifier: z.string().optional(),
    })
    .optional(),
});
/** The session at the identity provider that a session of SSO belongs to. It contains identifiers, never a token. */
export type ProviderSession = z.infer<typeof providerSession>;

const session = z.object({
  /** SHA-256 of the secret in the cookie. */
  id: z.string(),
  /** Time of the sign-in. Revoking the user's tokens also revokes sessions with an earlier time. */
  createdAt: z.string(),
  idleEndsAt: z.string(),
  endsAt: z.string(),
  by: z.enum(["password", "sso"]),
  /** Set for sessions by SSO. Absent from rows of earlier versions. */
  provider: providerSession.optional(),
  /** Set for sessions by SSO: the time at which the provider authenticated the person, if it is known. */
  authenticatedAt: z.string().optional(),
  address: z.string().optional(),
  /** `User-Agent` header of the browser. */
  userAgent: z.string().optional(),
});
export type SessionRecord = z.infer<typeof session>;

const apiTokenDetails = z.object({
  /** SHA-256 of the token, which does not reveal its 32 random bytes. */
  id: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  createdAt: z.string(),
  expiresAt: z.string(),
  /** Date in UTC. */
  lastUsedOn: z.string().optional(),
});
export type ApiTokenDetails = z.infer<typeof apiTokenDetails>;

const userRecord = z.object({
  /**
   * Unique ID of the user. It does not change, and a new user with the name of a deleted one has another. Absent from rows of
   * earlier versions: see `uidOf`.
   */
  uid: z.string().optional(),
  /** The username with upper and lower case as it was created. */
  username: z.string(),
  email: z.string().optional(),
  role: z.enum(ROLES),
  state: z.enum(["active", "disabled"]),
  /**
   * `local` if the user was created here, `sso` if by single sign-on. Absent from rows of earlier versions, which had local
   * users only.
   */
  source: z.enum(["local", "sso"]).optional(),
  /** The linked identity. A row `|sso|...` maps the identity to the user, so that it can't be linked twice. */
  sso: z.object({ issuer: z.string(), subject: z.string() }).optional(),
  /** Absent for a user without a password, who signs in with SSO. */
  passwordHash: z.string().optional(),
  /** True until the user has replaced a password that an administrator set. */
  mustChangePassword: z.boolean().optional(),
  /**
   * Time at which an administrator set the password, until the first sign-in with it. Absent from rows of earlier versions, whose
   * passwords don't expire.
   */
  unusedPasswordSince: z.string().optional(),
  /** Tokens issued before this time are revoked. */
  tokensValidFrom: z.string(),
  /** Revoked tokens that have not expired yet. The rate limits of sign-ins limit their number. */
  revokedTokens: z.array(z.object({ id: z.string(), until: z.string() })),
  /**
   * The user's browser sessions. Other sessions are not valid, except those in rows of earlier versions (see `EarlierSession`).
   */
  sessions: z.array(session).optional(),
  /** Ids of the user's API tokens. Other tokens are not valid. Expired ids stay until the next token is created. */
  apiTokens: z.array(z.string()).optional(),
  /**
   * Details of the API tokens, so that a request reads only this row. Tokens that an earlier version created and that were not
   * used since have their details in their own rows only. Details of tokens that are not in `apiTokens` are ignored.
   */
  apiTokenDetails: z.array(apiTokenDetails).optional(),
  /** The user's ETag in the API. It changes with each visible change of the user, but not with a sign-in. */
  revision: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  /**
   * Time of the last sign-in, and so of the newest token. A revocation sets `tokensValidFrom` to a later time, even if the
   * clocks of two instances differ.
   */
  lastSignInAt: z.string().optional(),
  lastSsoSignInAt: z.string().optional(),
  /** Addresses of recent sign-ins: see KnownAddresses. Absent from rows of earlier versions. */
  knownAddresses: z.array(z.object({ hash: z.string(), lastAt: z.string() })).optional(),
  /** The second factor of sign-ins with the password. Absent if the user never started to enroll one. */
  secondFactor: secondFactor.optional(),
  /** The recent step-ups: the token's or session's ID, and the time of its second factor. */
  confirmations: z.array(z.object({ id: z.string(), at: z.string() })).optional(),
});
export type UserRecord = z.infer<typeof userRecord>;
export type UserRow = Row<UserRecord>;

/**
 * Row key: the username in lower case. The rows of this file are signed and listed, so that changed, removed and older rows are
 * detected. `adopted`: unsigned rows of earlier versions are accepted until they are signed.
 */
export const User = entity("Users", userRecord, { signed: "adopted", listed: true });

/** An SSO identity: the issuer or entity id, and the subject there. Never an email address. */
export type ExternalIdentity = NonNullable<UserRecord["sso"]>;

const identityRecord = z.object({
  /** The row key of the linked user, who may have been deleted since. */
  user: z.string(),
  /** True after the user was deleted, until an administrator unblocks the identity. A blocked identity can't sign in. */
  refused: z.boolean().optional(),
});
/** Maps an SSO identity to its user. Row key: see `identityKey`. */
export const Identity = entity("Users", identityRecord, { signed: "adopted", listed: true });
export const identityKey = (identity: ExternalIdentity): string => identityRow(identityId(identity));
/** Returns the row key of an identity. @param id - The result of `identityId`. */
export const identityRow = (id: string): string => `|sso|${id}`;
/** Returns the ID of an identity: a hash of issuer and subject. */
export const identityId = ({ issuer, subject }: ExternalIdentity): string =>
  createHash("sha256").update(`${issuer}\0${subject}`).digest("hex");

/**
 * Returns the user's id in the API: `sso-` and the identity's hash for a user that single sign-on created, else the username in
 * lower case, which can't start with `sso-`.
 */
export const userId = ({ username, source, sso }: Pick<UserRecord, "username" | "source" | "sso">): string =>
  source === "sso" && sso ? `sso-${identityId(sso)}` : userKey(username);

const refusal = z.object({
  issuer: z.string(),
  subject: z.string(),
  username: z.string(),
  refusedAt: z.string(),
  refusedBy: z.string(),
});
export type RefusalRecord = z.infer<typeof refusal>;
/** Details of a blocked identity, for the list of them. Row key: `|refused|` and the identity's id. */
export const Refusal = entity("Users", refusal, { signed: "adopted", listed: true });
export const REFUSALS = "|refused|";

/** The directory: one row with the number of users and the administrators, so that the last administrator can't be removed. */
const directory = z.object({
  /**
   * Row keys of the active users with the role admin and a password. A change of one of them replaces this row in the same
   * transaction.
   */
  administrators: z.array(z.string()),
  total: z.number(),
});
export type DirectoryRow = Row<z.infer<typeof directory>>;
export const Directory = entity("Users", directory, { signed: "adopted", listed: true });

/** Returns the row key of a user. */
export const userKey = (username: string): string => username.toLowerCase();

/**
 * Returns true if the user can restore access for others: an active administrator with a password, because single sign-on may
 * fail.
 */
export const isAdministrator = (user: UserRecord | undefined): boolean =>
  user?.role === "admin" && user.state === "active" && user.passwordHash !== undefined;

/** Returns the user's `uid`. For a row without one it is the creation time, which no other user of that name has. */
export const uidOf = (user: UserRecord): string => user.uid ?? user.createdAt;

/** Returns true if a sign-in at this time is still valid: the user is active and sign-ins were not revoked since. */
export const isSignInValid = (user: UserRecord, since: Date): boolean =>
  user.state === "active" && since.getTime() >= Date.parse(user.tokensValidFrom);

/** Returns new values of the members that change with each visible change of a user. */
export const newRevision = (deps: { clock: Clock; randomness: Randomness }) => {
  const now = deps.clock.now();
  return { revision: deps.randomness.ulid(now), updatedAt: now.toISOString() };
};

/** Returns the revoked tokens that have not expired yet. */
export const unexpiredRevocations = (user: UserRecord, clock: Clock): UserRecord["revokedTokens"] =>
  user.revokedTokens.filter(({ until }) => Date.parse(until) > clock.now().getTime());

/**
 * Returns the members that a sign-in writes. Its time is never before the last revocation, even if the clocks of two instances
 * differ.
 */
export function signInMembers(user: UserRecord, clock: Clock): Pick<UserRecord, "lastSignInAt" | "revokedTokens"> {
  const previousTimes = [user.tokensValidFrom, user.lastSignInAt].map((at) => (at === undefined ? 0 : Date.parse(at)));
  const signInMs = Math.max(clock.now().getTime(), ...previousTimes);
  return { lastSignInAt: new Date(signInMs).toISOString(), revokedTokens: unexpiredRevocations(user, clock) };
}

/** Returns the members that revoke every token and session issued so far, on every instance. */
export function revokedTokenMembers(
  user: UserRecord,
  clock: Clock,
): Pick<UserRecord, "tokensValidFrom" | "revokedTokens" | "sessions"> {
  const afterNewest = user.lastSignInAt === undefined ? 0 : Date.parse(user.lastSignInAt) + 1;
  const validFromMs = Math.max(clock.now().getTime(), afterNewest, Date.parse(user.tokensValidFrom));
  return { tokensValidFrom: new Date(validFromMs).toISOString(), revokedTokens: [], sessions: [] };
}
