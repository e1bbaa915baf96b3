import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { requireMatch } from "../http/conditional.ts";
import type { Caller, Role } from "../http/endpoint.ts";
import type { Page, PageRequest } from "../http/paging.ts";
import { notFound } from "../http/problem.ts";
import type { Clock, Randomness } from "../runtime.ts";
import { type UserView, userView } from "./api.ts";
import type { SignInFailures } from "./failures.ts";
import { refuseWeakPassword } from "./password-policy.ts";
import type { Passwords } from "./passwords.ts";
import { revised, tokensEnded, type UserRecord, type UserRow, userKey } from "./user.ts";
import { type Users, userExists } from "./users.ts";

export interface NewUser {
  username: string;
  email?: string | undefined;
  password: string;
  role: Role;
}

/** What is left out stays as it is. */
export interface UserChange {
  /** Null removes it. */
  email?: string | null | undefined;
  role?: Role | undefined;
  state?: UserRecord["state"] | undefined;
  /** A reset: the user's known addresses are forgotten, too. */
  password?: string | undefined;
}

/** What an administrator does with users. Whatever takes something away ends the user's tokens on every instance. */
export interface Administration {
  list(page: PageRequest): Promise<Page<UserView>>;
  /** @throws {Problem} notFound */
  get(id: string): Promise<UserView>;
  /** @throws {Problem} alreadyExists, invalidRequest (a weak password) */
  create(user: NewUser, caller: Caller): Promise<UserView>;
  /** @throws {Problem} notFound, preconditionFailed, invalidRequest (a weak password), conflict (last administrator). */
  update(id: string, change: UserChange, ifMatch: string | undefined, caller: Caller): Promise<UserView>;
  /** @throws {Problem} notFound, preconditionFailed, conflict (last administrator). */
  remove(id: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Forgets the user's failed sign-ins from every address. @throws {Problem} notFound */
  unlock(id: string, caller: Caller): Promise<UserView>;
}

export function createAdministration(deps: {
  users: Users;
  passwords: Passwords;
  failures: SignInFailures;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
}): Administration {
  const { users, passwords, failures, audit, clock } = deps;

  async function existing(id: string): Promise<UserRow> {
    const user = await users.find(id);
    if (!user) throw notFound("This user");
    return user;
  }

  const target = (id: string) => ({ type: "user", id: userKey(id) });

  /** The user as the change leaves it; what the caller may do no longer ends with the tokens that allowed it. */
  function changed(now: UserRow, change: UserChange, passwordHash: string | undefined): UserRecord {
    const { email, role = now.role, state = now.state } = change;
    const endsTokens =
      role !== now.role || (state === "disabled" && now.state === "active") || passwordHash !== undefined;
    return {
      ...now,
      email: email === undefined ? now.email : (email ?? undefined),
      role,
      state,
      ...(passwordHash !== undefined && { passwordHash, knownAddresses: [] }),
      ...(endsTokens && tokensEnded(now, clock)),
      ...revised(deps),
    };
  }

  return {
    list: (page) => users.list(page),
    get: async (id) => userView(await existing(id)),

    async create({ username, email, password, role }, caller) {
      if (await users.find(username)) throw userExists(username);
      await refuseWeakPassword(password, { username, email }, "password");
      const passwordHash = await passwords.hash(password);
      const now = clock.now().toISOString();
      const user: UserRecord = {
        uid: deps.randomness.ulid(clock.now()),
        source: "local",
        username,
        ...(email === undefined ? {} : { email }),
        role,
        state: "active",
        passwordHash,
        tokensValidFrom: now,
        revokedTokens: [],
        createdAt: now,
        createdBy: caller.actor,
        ...revised(deps),
      };
      const after = userView(user);
      const event = { type: "user.created", caller, target: target(username) };
      await audited(
        audit,
        event,
        () => users.create(user),
        () => ({ after }),
      );
      return after;
    },

    async update(id, change, ifMatch, caller) {
      const user = await existing(id);
      requireMatch(userView(user).etag, ifMatch, USER);
      const { email, role, state, password } = change;
      if (password !== undefined) await refuseWeakPassword(password, { ...user, ...(email && { email }) }, "password");
      const passwordHash = password === undefined ? undefined : await passwords.hash(password);
      const details = { email, role, state, ...(password !== undefined && { passwordReset: true }) };
      const event = { type: "user.updated", caller, target: target(user.rowKey), details };
      const effect = async () => {
        let before = userView(user);
        const row = await users.change(user, (now) => {
          before = userView(now);
          requireMatch(before.etag, ifMatch, USER);
          return changed(now, change, passwordHash);
        });
        if (!row) throw notFound("This user");
        return { before, after: userView(row) };
      };
      return (await audited(audit, event, effect, (result) => result)).after;
    },

    async remove(id, ifMatch, caller) {
      const user = await existing(id);
      const before = userView(user);
      requireMatch(before.etag, ifMatch, USER);
      const event = { type: "user.deleted", caller, target: target(user.rowKey) };
      const effect = async () => {
        const removed = await users.remove(user, (now) => {
          requireMatch(userView(now).etag, ifMatch, USER);
          return [];
        });
        if (!removed) throw notFound("This user");
      };
      await audited(audit, event, effect, () => ({ before }));
    },

    async unlock(id, caller) {
      const user = await existing(id);
      const event = { type: "user.unlocked", caller, target: target(user.rowKey) };
      await audited(audit, event, () => failures.clear(user.rowKey));
      return userView(user);
    },
  };
}

/** As a problem names it. */
const USER = "The user";
