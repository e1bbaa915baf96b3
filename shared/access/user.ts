import * as z from "zod";
import { ROLES } from "../http/endpoint.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { entity, type Row } from "../storage/entity.ts";

/** All users stand in one partition, so that a change of one and of the directory is one transaction. */
export const USERS_PARTITION = "user";
/** Row keys that no username can be: `|` is not among its characters, and sorts after all of them. */
export const DIRECTORY_KEY = "|directory";
export const BOOTSTRAP_KEY = "|bootstrap";
export const AFTER_USERS = "|";

const userRecord = z.object({
  /** As it was written when the user was made. */
  username: z.string(),
  email: z.string().optional(),
  role: z.enum(ROLES),
  state: z.enum(["active", "disabled"]),
  /** Absent for a user who signs in elsewhere. */
  passwordHash: z.string().optional(),
  /** Tokens issued before this instant are no longer valid. */
  tokensValidFrom: z.string(),
  /** Tokens that were signed out and would otherwise be valid until then. The limits on signing in bound how many. */
  revokedTokens: z.array(z.object({ id: z.string(), until: z.string() })),
  /** Changes with what people see of the user, not with each sign-in: the resource's ETag. */
  revision: z.string(),
  createdAt: z.string(),
  createdBy: z.string(),
  updatedAt: z.string(),
  /** The instant of the newest token, too: `tokensValidFrom` is set after it, whatever the clocks of two instances say. */
  lastSignInAt: z.string().optional(),
  /** Where the user signed in from lately; see KnownAddresses. Absent in rows written before it was kept. */
  knownAddresses: z.array(z.object({ hash: z.string(), lastAt: z.string() })).optional(),
});
export type UserRecord = z.infer<typeof userRecord>;
export type UserRow = Row<UserRecord>;

/** Row key: the username in lower case. */
export const User = entity("Users", userRecord);

const directory = z.object({
  /** Row keys of the active users with the role admin. Every change of them replaces this row in its transaction. */
  administrators: z.array(z.string()),
  total: z.number(),
});
export type DirectoryRow = Row<z.infer<typeof directory>>;
export const Directory = entity("Users", directory);

export const userKey = (username: string): string => username.toLowerCase();

export const isAdministrator = (user: UserRecord | undefined): boolean =>
  user?.role === "admin" && user.state === "active";

/** What every change that people see writes along. */
export const revised = (deps: { clock: Clock; randomness: Randomness }) => {
  const now = deps.clock.now();
  return { revision: deps.randomness.ulid(now), updatedAt: now.toISOString() };
};

/** The tokens that were signed out and would otherwise still be valid. */
export const stillRevoked = (user: UserRecord, clock: Clock): UserRecord["revokedTokens"] =>
  user.revokedTokens.filter(({ until }) => Date.parse(until) > clock.now().getTime());

/** What ends every token issued so far, on every instance. */
export function tokensEnded(user: UserRecord, clock: Clock): Pick<UserRecord, "tokensValidFrom" | "revokedTokens"> {
  const afterNewest = user.lastSignInAt === undefined ? 0 : Date.parse(user.lastSignInAt) + 1;
  const from = Math.max(clock.now().getTime(), afterNewest, Date.parse(user.tokensValidFrom));
  return { tokensValidFrom: new Date(from).toISOString(), revokedTokens: [] };
}
