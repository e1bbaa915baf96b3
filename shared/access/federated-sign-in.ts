import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller, Role } from "../platform/http/endpoint.ts";
import { Problem, type ProblemCode } from "../platform/http/problem.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { insert, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { usernameOf } from "./provider-username.ts";
import type { RecentAddresses } from "./recent-addresses.ts";
import type { Sessions } from "./sessions.ts";
import { addressOf } from "./sign-in.ts";
import {
  AFTER_USERS,
  type ExternalIdentity,
  Identity,
  identityId,
  identityKey,
  newRevision,
  type ProviderSession,
  revokedTokenMembers,
  signInMembers,
  USERS_PARTITION,
  User,
  type UserRecord,
  type UserRow,
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";
import { userView } from "./views.ts";

/** A person whose sign-in an identity provider confirmed. */
export interface AuthenticatedPerson {
  /** Issuer and subject of the person at the provider. */
  identity: ExternalIdentity;
  /** The name from the provider. A new user's username is derived from it. */
  name: string | undefined;
  email: string | undefined;
  /** The session at the provider, which the new session belongs to. */
  session: ProviderSession;
  /** The time at which the provider authenticated the person, ISO 8601, if it is known. */
  authenticatedAt?: string | undefined;
  /** True to create a user for an unknown person. */
  create: boolean;
  /**
   * Returns the role of an SSO user, or why the user is rejected. Not called for a local user with a linked identity.
   *
   * @param currentRole - Undefined for a new user.
   */
  role(currentRole: Role | undefined): Role | { refused: string };
}

/** The sessions that an identity provider ends. */
export interface EndedSessions {
  issuer: string;
  /** Subject at the issuer. Undefined: any user of the issuer who has one of the sessions. This reads all users. */
  subject: string | undefined;
  /** Returns true for a session that ends. `provider` is undefined for sessions that an earlier version created. */
  matches(provider: ProviderSession | undefined): boolean;
}

/** Signs in people whom an identity provider authenticated. The single sign-on module (shared/sso) calls it. */
export interface FederatedSignIn {
  /**
   * Signs in the user that is linked to the identity, or a new user, and creates a session, in one transaction. A changed role
   * revokes the user's earlier tokens and sessions.
   *
   * @param userAgent - The `User-Agent` header of the browser.
   * @returns The user and the session cookie, or why the sign-in is rejected: `stranger` (unknown person), `removed` (the user
   * was deleted), `disabled`, or the reason that `role` returned.
   */
  signIn(
    person: AuthenticatedPerson,
    caller: Caller,
    userAgent: string | undefined,
  ): Promise<{ user: UserRow; cookie: Cookie } | { refused: string }>;
  /** Ends sessions by SSO, on every instance at once. Sessions by password, tokens and API tokens stay. @returns Their number */
  endSessions(ended: EndedSessions, caller: Caller): Promise<number>;
}

/** Attempts to sign in while another request creates or changes the user. */
const ATTEMPTS = 5;

/**
 * Creates the sign-in of people whom an identity provider authenticated.
 *
 * @param deps.reserved - Usernames that SSO users can't get, in lower case.
 */
export function createFederatedSignIn(deps: {
  tables: Tables;
  users: Users;
  sessions: Sessions;
  recentAddresses: RecentAddresses;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  reserved: readonly string[];
}): FederatedSignIn {
  const { tables, users, sessions, audit, clock, reserved } = deps;

  /**
   * Returns the name from the provider. Appends a part of the identity's hash if another user has the name. If the name is
   * not valid or reserved, returns `sso-` and a part of the hash.
   */
  async function availableUsername({ identity, name }: AuthenticatedPerson): Promise<string> {
    const id = identityId(identity);
    const preferredName = usernameOf(name);
    if (preferredName === undefined || reserved.includes(userKey(preferredName))) return `sso-${id.slice(0, 16)}`;
    return (await users.find(preferredName)) ? `${preferredName}-${id.slice(0, 12)}` : preferredName;
  }

  async function createUser(person: AuthenticatedPerson, caller: Caller, userAgent: string | undefined) {
    const role = person.role(undefined);
    if (typeof role !== "string") return role;
    const username = await availableUsername(person);
    const timestamp = clock.now().toISOString();
    const user: UserRecord = {
      uid: deps.randomness.ulid(clock.now()),
      source: "sso",
      sso: person.identity,
      username,
      ...(person.email === undefined ? {} : { email: person.email }),
      role,
      state: "active",
      tokensValidFrom: timestamp,
      revokedTokens: [],
      lastSignInAt: timestamp,
      lastSsoSignInAt: timestamp,
      createdAt: timestamp,
      createdBy: "sso",
      ...newRevision(deps),
    };
    const session = sessions.begin(userKey(username), sessionOf(person, userAgent, caller));
    const event = {
      type: "user.created",
      caller: { ...caller, actor: username },
      target: { type: "user", id: userKey(username) },
      details: { by: "sso", ...person.identity },
    };
    const row = await audited(
      audit,
      event,
      () =>
        users.create({ ...user, ...session.sessionsWith(user) }, [
          insert(Identity, identityKey(person.identity), { user: userKey(username) }),
        ]),
      (created) => ({ after: userView(created) }),
    );
    return { user: row, cookie: session.cookie };
  }

  async function signInExisting(
    existing: UserRow,
    person: AuthenticatedPerson,
    caller: Caller,
    userAgent: string | undefined,
  ) {
    if (existing.state !== "active") return { refused: "disabled" };
    const isLocalUser = existing.source !== "sso";
    const role = isLocalUser ? existing.role : person.role(existing.role);
    if (typeof role !== "string") return role;
    const email = isLocalUser ? existing.email : (person.email ?? existing.email);
    const session = sessions.begin(existing.rowKey, sessionOf(person, userAgent, caller));

    const effect = async () => {
      const user = await users.change(existing, (latest) => {
        // The decisions above apply to the row that was read. If another writer changed the user, start again.
        if (latest.etag !== existing.etag) return undefined;
        // A sign-in alone is no change that users of the API see, so it keeps the user's ETag (`revision`).
        const isChanged = role !== latest.role || email !== latest.email;
        const withRole = role === latest.role ? latest : { ...latest, role, ...revokedTokenMembers(latest, clock) };
        const signedInRow = {
          ...withRole,
          email,
          ...signInMembers(withRole, clock),
          lastSsoSignInAt: clock.now().toISOString(),
          ...(isChanged && newRevision(deps)),
        };
        return { ...signedInRow, ...session.sessionsWith(signedInRow) };
      });
      if (!user) throw new Problem("conflict", "The user was changed at the same time. Sign in again.");
      return user;
    };
    const event = {
      type: "user.updated",
      caller: { ...caller, actor: existing.username },
      target: { type: "user", id: existing.rowKey },
      details: { by: "sso", role },
    };
    const user =
      role === existing.role
        ? await effect()
        : await audited(audit, event, effect, (after) => ({ before: userView(existing), after: userView(after) }));
    return { user, cookie: session.cookie };
  }

  async function signInOnce(person: AuthenticatedPerson, caller: Caller, userAgent: string | undefined) {
    const identityRow = await tables.get(Identity, USERS_PARTITION, identityKey(person.identity));
    if (identityRow?.refused) return { refused: "removed" };
    if (!identityRow) return person.create ? await createUser(person, caller, userAgent) : { refused: "stranger" };
    const user = await users.find(identityRow.user);
    const hasIdentity = user?.sso?.issuer === person.identity.issuer && user.sso.subject === person.identity.subject;
    return user && hasIdentity ? await signInExisting(user, person, caller, userAgent) : { refused: "removed" };
  }

  /** Yields the row keys of the users with an identity of the issuer: one if the subject is known. */
  async function* usersOf({ issuer, subject }: EndedSessions): AsyncGenerator<string> {
    if (subject !== undefined) {
      const identityRow = await tables.get(Identity, USERS_PARTITION, identityKey({ issuer, subject }));
      if (identityRow?.user !== undefined) yield identityRow.user;
      return;
    }
    // A row that can't be read is left out. The tables report it.
    const range = { partitionKey: USERS_PARTITION, before: AFTER_USERS, select: ["username", "sso"] as const };
    for await (const rows of tables.pages(User, { ...range, onCorrupt: () => {} }))
      for (const { rowKey, sso } of rows) if (sso?.issuer === issuer) yield rowKey;
  }

  /** Ends the matching sessions of one user. Returns their number. */
  async function endSessionsOf(username: string, ended: EndedSessions, caller: Caller): Promise<number> {
    const { issuer, subject } = ended;
    const user = await users.find(username);
    if (user?.sso?.issuer !== issuer || (subject !== undefined && user.sso.subject !== subject)) return 0;
    const matching = (await sessions.ofUser(user)).filter(
      ({ by, provider }) => by === "sso" && ended.matches(provider),
    );
    if (matching.length === 0) return 0;
    const details = { by: "provider", issuer, sessions: matching.length };
    const event = { type: "user.signedOut", caller, target: { type: "user", id: user.rowKey }, details };
    await audited(audit, event, async () => {
      for (const { id } of matching) await sessions.end(user, id);
    });
    return matching.length;
  }

  return {
    async endSessions(ended, caller) {
      let count = 0;
      const failures: unknown[] = [];
      for await (const username of usersOf(ended)) {
        try {
          count += await endSessionsOf(username, ended, caller);
        } catch (error) {
          // One user must not keep the sessions of the others. The tables have reported a row that can't be read.
          if (!(error instanceof StorageCorrupt)) failures.push(error);
        }
      }
      if (failures.length > 0) throw failures[0];
      return count;
    },

    async signIn(person, caller, userAgent) {
      const result = await retryOnConflict(() => signInOnce(person, caller, userAgent));
      if ("user" in result) {
        deps.recentAddresses.add(addressOf(caller));
        await audit.append({
          type: "user.signedIn",
          outcome: "success",
          caller: { ...caller, actor: result.user.username },
          target: { type: "user", id: result.user.rowKey },
          details: { to: "session", by: "sso" },
        });
      }
      return result;
    },
  };
}

/** Returns the details of a new session. */
const sessionOf = (
  { session, authenticatedAt }: AuthenticatedPerson,
  userAgent: string | undefined,
  caller: Caller,
) => ({
  by: "sso" as const,
  provider: session,
  authenticatedAt,
  userAgent,
  caller,
});

/** Retries after a conflict: another instance signed in the same person, or another user got the username in between. */
async function retryOnConflict<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      const isRetryable = error instanceof Problem ? CONFLICTS.includes(error.code) : isConflict(error);
      if (!isRetryable || attempt === ATTEMPTS) throw error;
    }
  }
}
const CONFLICTS: readonly ProblemCode[] = ["alreadyExists", "conflict"];
