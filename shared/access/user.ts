import { createHash } from "node:crypto";
import * as z from "zod";
import { ROLES } from "../platform/http/endpoint.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { entity, type Row } from "../platform/storage/entity.ts";

export const USERNAME = /^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$/;

/** All users stand in one partition, so that a change of one and of the directory is one transaction. */
export const USERS_PARTITION = "user";
/** Row keys that no username can be: `|` is not among its characters, and sorts after all of them. */
export const DIRECTORY_KEY = "|directory";
export const BOOTSTRAP_KEY = "|bootstrap";
export const AFTER_USERS = "|";

const session = z.object({
  /** The SHA-256 of the secret in its cookie. */
  id: z.string(),
  /** The sign-in's instant: what ends the user's tokens ends it too. */
  createdAt: z.string(),
  idleEndsAt: z.string(),
  endsAt: z.string(),
  by: z.enum(["password", "sso"]),
  address: z.string().optional(),
  /** What the browser says it is. */
  userAgent: z.string().optional(),
});
export type SessionRecord = z.infer<typeof session>;

const apiTokenDetails = z.object({
  /** The token's SHA-256, which tells nothing of its 32 random bytes. */
  id: z.string(),
  name: z.string(),
  role: z.enum(ROLES),
  createdAt: z.string(),
  expiresAt: z.string(),
  /** The day, in UTC. */
  lastUsedOn: z.string().optional(),
});
export type ApiTokenDetails = z.infer<typeof apiTokenDetails>;

const userRecord = z.object({
  /**
   * Never changes, and never comes again when a user of the same name is made anew. Rows written before it was kept have
   * none: see `uidOf`.
   */
  uid: z.string().optional(),
  /** As it was written when the user was made. */
  username: z.string(),
  email: z.string().optional(),
  role: z.enum(ROLES),
  state: z.enum(["active", "disabled"]),
  /** Whether it was made here or by single sign-on. Absent in rows written before there was any. */
  source: z.enum(["local", "sso"]).optional(),
  /** Whom single sign-on knows it as. A row `|sso|...` leads from the pair to the user, so that no two have the same. */
  sso: z.object({ issuer: z.string(), subject: z.string() }).optional(),
  /** Absent for a user who signs in elsewhere. */
  passwordHash: z.string().optional(),
  /** True from an administrator's reset until the user has chosen a password. */
  mustChangePassword: z.boolean().optional(),
  /** Tokens issued before this instant are no longer valid. */
  tokensValidFrom: z.string(),
  /** Tokens that were signed out and would otherwise be valid until then. The limits on signing in bound how many. */
  revokedTokens: z.array(z.object({ id: z.string(), until: z.string() })),
  /** The user's sessions of browsers: no other one holds, but those in rows of their own (see `EarlierSession`). */
  sessions: z.array(session).optional(),
  /** Ids of the user's API tokens: no other one holds. Expired ones until the next is made. */
  apiTokens: z.array(z.string()).optional(),
  /**
   * What else is known of them, so that a call reads this row alone. Of those that an earlier version made, and that were not
   * used since, only rows of their own tell; what is here of one that is not in `apiTokens` counts for nothing.
   */
  apiTokenDetails: z.array(apiTokenDetails).optional(),
  /** Changes with what people see of the user, not with each sign-in: the resource's ETag. */
  revision: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  /** The instant of the newest token, too: `tokensValidFrom` is set after it, whatever the clocks of two instances say. */
  lastSignInAt: z.string().optional(),
  lastSsoSignInAt: z.string().optional(),
  /** Where the user signed in from lately; see KnownAddresses. Absent in rows written before it was kept. */
  knownAddresses: z.array(z.object({ hash: z.string(), lastAt: z.string() })).optional(),
});
export type UserRecord = z.infer<typeof userRecord>;
export type UserRow = Row<UserRecord>;

/** Row key: the username in lower case. */
export const User = entity("Users", userRecord);

/** Whom single sign-on knows somebody as: the issuer or entity id, and who it is there. Never an e-mail address. */
export type Pair = NonNullable<UserRecord["sso"]>;

const identity = z.object({
  /** The row key of whoever it signs in, or signed in before the user was deleted. */
  user: z.string(),
  /** From the deletion of the user until an administrator takes it back: nobody signs in with it. */
  refused: z.boolean().optional(),
});
/** Leads from a pair to the user; see `identityKey`. */
export const Identity = entity("Users", identity);
export const identityKey = (pair: Pair): string => identityRow(identityId(pair));
/** @param id - See `identityId`. */
export const identityRow = (id: string): string => `|sso|${id}`;
export const identityId = ({ issuer, subject }: Pair): string =>
  createHash("sha256").update(`${issuer}\0${subject}`).digest("hex");

/**
 * What the API knows a user by: `sso-` and the identity's hash for one whom single sign-on made, whatever name it got; the
 * username in lower case for everybody else, which can't begin so.
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
/** Stands beside each refused identity, for their list. Row key: `|refused|` and the identity's id. */
export const Refusal = entity("Users", refusal);
export const REFUSALS = "|refused|";

const directory = z.object({
  /**
   * Row keys of the active users with the role admin and a password. Every change of them replaces this row in its
   * transaction.
   */
  administrators: z.array(z.string()),
  total: z.number(),
});
export type DirectoryRow = Row<z.infer<typeof directory>>;
export const Directory = entity("Users", directory);

export const userKey = (username: string): string => username.toLowerCase();

/** Whether the user can let others in again: with a password, since single sign-on may fail. */
export const isAdministrator = (user: UserRecord | undefined): boolean =>
  user?.role === "admin" && user.state === "active" && user.passwordHash !== undefined;

/** Of a row that has none the instant it was made, which no other user of that name has. */
export const uidOf = (user: UserRecord): string => user.uid ?? user.createdAt;

/** Whether a sign-in of this instant still lets the user in: nothing that ends sign-ins came after it. */
export const signInHolds = (user: UserRecord, since: Date): boolean =>
  user.state === "active" && since.getTime() >= Date.parse(user.tokensValidFrom);

/** What every change that people see writes along. */
export const revised = (deps: { clock: Clock; randomness: Randomness }) => {
  const now = deps.clock.now();
  return { revision: deps.randomness.ulid(now), updatedAt: now.toISOString() };
};

/** The tokens that were signed out and would otherwise still be valid. */
export const stillRevoked = (user: UserRecord, clock: Clock): UserRecord["revokedTokens"] =>
  user.revokedTokens.filter(({ until }) => Date.parse(until) > clock.now().getTime());

/** What a sign-in writes: its instant is never before what ended earlier ones, whatever the clocks of two instances say. */
export function signedIn(user: UserRecord, clock: Clock): Pick<UserRecord, "lastSignInAt" | "revokedTokens"> {
  const earlier = [user.tokensValidFrom, user.lastSignInAt].map((at) => (at === undefined ? 0 : Date.parse(at)));
  const at = Math.max(clock.now().getTime(), ...earlier);
  return { lastSignInAt: new Date(at).toISOString(), revokedTokens: stillRevoked(user, clock) };
}

/** What ends every token and session so far, on every instance. */
export function tokensEnded(
  user: UserRecord,
  clock: Clock,
): Pick<UserRecord, "tokensValidFrom" | "revokedTokens" | "sessions"> {
  const afterNewest = user.lastSignInAt === undefined ? 0 : Date.parse(user.lastSignInAt) + 1;
  const from = Math.max(clock.now().getTime(), afterNewest, Date.parse(user.tokensValidFrom));
  return { tokensValidFrom: new Date(from).toISOString(), revokedTokens: [], sessions: [] };
}
