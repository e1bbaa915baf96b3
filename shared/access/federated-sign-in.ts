import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Caller, Role } from "../platform/http/endpoint.ts";
import { Problem, type ProblemCode } from "../platform/http/problem.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { isConflict } from "../platform/storage/conflict.ts";
import { insert, type Tables } from "../platform/storage/tables.ts";
import type { RecentAddresses } from "./recent-addresses.ts";
import type { Sessions } from "./sessions.ts";
import { addressOf } from "./sign-in.ts";
import {
  type ExternalIdentity,
  Identity,
  identityId,
  identityKey,
  newRevision,
  revokedTokenMembers,
  signInMembers,
  USERNAME,
  USERS_PARTITION,
  type UserRecord,
  type UserRow,
  userKey,
} from "./user.ts";
import type { Users } from "./users.ts";
import { userView } from "./views.ts";

/** A person whose sign-in an identity provider confirmed. */
export interface AuthenticatedPerson {
  pair: ExternalIdentity;
  /** The name from the provider. A new user's username is derived from it. */
  name: string | undefined;
  email: string | undefined;
  /** True to create a user for an unknown person. */
  create: boolean;
  /**
   * Returns the role of an SSO user. `now` is the current role, undefined for a new user. Not called for a local user with a
   * linked identity.
   */
  role(now: Role | undefined): Role | { refused: string };
}

/** Single sign-on: signs in people whom an identity provider authenticated. */
export interface FederatedSignIn {
  /**
   * Signs in the user that is linked to the identity, or a new user, and creates a session, in one transaction. A changed role
   * revokes the user's earlier tokens and sessions.
   *
   * @param userAgent - The `User-Agent` header of the browser.
   * @returns The user and the session cookie, or why the sign-in is rejected: `stranger` (unknown person), `removed`,
   * `disabled`, or the reason that `role` returned.
   */
  signIn(
    person: AuthenticatedPerson,
    caller: Caller,
    userAgent: string | undefined,
  ): Promise<{ user: UserRow; cookie: Cookie } | { refused: string }>;
}

/** Attempts while another writer creates or changes the user. */
const ATTEMPTS = 5;

/** @param deps.reserved - Usernames that SSO users can't get, in lower case. */
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

  /** Returns the name from the provider if it is available, else with a suffix from the identity. */
  async function freeName({ pair, name }: AuthenticatedPerson): Promise<string> {
    const id = identityId(pair);
    const wanted = usernameOf(name);
    if (wanted === undefined || reserved.includes(userKey(wanted))) return `sso-${id.slice(0, 16)}`;
    return (await users.find(wanted)) ? `${wanted}-${id.slice(0, 12)}` : wanted;
  }

  async function create(person: AuthenticatedPerson, caller: Caller, userAgent: string | undefined) {
    const role = person.role(undefined);
    if (typeof role !== "string") return role;
    const username = await freeName(person);
    const now = clock.now().toISOString();
    const user: UserRecord = {
      uid: deps.randomness.ulid(clock.now()),
      source: "sso",
      sso: person.pair,
      username,
      ...(person.email === undefined ? {} : { email: person.email }),
      role,
      state: "active",
      tokensValidFrom: now,
      revokedTokens: [],
      lastSignInAt: now,
      lastSsoSignInAt: now,
      createdAt: now,
      createdBy: "sso",
      ...newRevision(deps),
    };
    const session = sessions.begin(userKey(username), { by: "sso", userAgent, caller });
    const event = {
      type: "user.created",
      caller: { ...caller, actor: username },
      target: { type: "user", id: userKey(username) },
      details: { by: "sso", ...person.pair },
    };
    const row = await audited(
      audit,
      event,
      () =>
        users.create({ ...user, ...session.sessionsWith(user) }, [
          insert(Identity, identityKey(person.pair), { user: userKey(username) }),
        ]),
      (made) => ({ after: userView(made) }),
    );
    return { user: row, cookie: session.cookie };
  }

  async function signInExisting(
    known: UserRow,
    person: AuthenticatedPerson,
    caller: Caller,
    userAgent: string | undefined,
  ) {
    if (known.state !== "active") return { refused: "disabled" };
    const linked = known.source !== "sso";
    const role = linked ? known.role : person.role(known.role);
    if (typeof role !== "string") return role;
    const email = linked ? known.email : (person.email ?? known.email);
    const session = sessions.begin(known.rowKey, { by: "sso", userAgent, caller });

    const effect = async () => {
      const user = await users.change(known, (now) => {
        // The decisions above apply to the row that was read. If another writer changed the user, start again.
        if (now.etag !== known.etag) return undefined;
        const changes = role !== now.role || email !== now.email;
        const before = role === now.role ? now : { ...now, role, ...revokedTokenMembers(now, clock) };
        const after = {
          ...before,
          email,
          ...signInMembers(before, clock),
          lastSsoSignInAt: clock.now().toISOString(),
          ...(changes && newRevision(deps)),
        };
        return { ...after, ...session.sessionsWith(after) };
      });
      if (!user) throw new Problem("conflict", "The user was changed at the same time. Sign in again.");
      return user;
    };
    const event = {
      type: "user.updated",
      caller: { ...caller, actor: known.username },
      target: { type: "user", id: known.rowKey },
      details: { by: "sso", role },
    };
    const user =
      role === known.role
        ? await effect()
        : await audited(audit, event, effect, (after) => ({ before: userView(known), after: userView(after) }));
    return { user, cookie: session.cookie };
  }

  async function signInOnce(person: AuthenticatedPerson, caller: Caller, userAgent: string | undefined) {
    const identity = await tables.get(Identity, USERS_PARTITION, identityKey(person.pair));
    if (identity?.refused) return { refused: "removed" };
    if (!identity) return person.create ? await create(person, caller, userAgent) : { refused: "stranger" };
    const user = await users.find(identity.user);
    const theirs = user?.sso?.issuer === person.pair.issuer && user.sso.subject === person.pair.subject;
    return user && theirs ? await signInExisting(user, person, caller, userAgent) : { refused: "removed" };
  }

  return {
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

/** Retries after a conflict: another host signs in the same person, or the username was taken in between. */
async function retryOnConflict<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      const lost = error instanceof Problem ? CONFLICTS.includes(error.code) : isConflict(error);
      if (!lost || attempt === ATTEMPTS) throw error;
    }
  }
}
const CONFLICTS: readonly ProblemCode[] = ["alreadyExists", "conflict"];

/** Maximum length of a name from a provider, so that a suffix still fits. */
const MAX_NAME_LENGTH = 100;
/** Names with another meaning in the audit log, or that look like a user's id. */
const RESERVED = /^(system$|anonymous$|sso-)/i;

/** Converts a name from a provider to a valid username. Undefined if no valid character is left. */
function usernameOf(name: string | undefined): string | undefined {
  const plain = (name ?? "")
    .normalize("NFKD")
    .replace(/\p{M}+/gu, "")
    .replace(/[^A-Za-z0-9._@+-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, MAX_NAME_LENGTH)
    .replace(/-+$/, "");
  return USERNAME.test(plain) && !RESERVED.test(plain) ? plain : undefined;
}
