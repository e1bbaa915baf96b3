import pMap from "p-map";
import type * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { requireMatch } from "../platform/http/conditional-requests.ts";
import type { Caller, Role } from "../platform/http/endpoint.ts";
import type { Page, PageRequest } from "../platform/http/paging.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { RowExists } from "../platform/storage/tables.ts";
import type { AccountView, UserChange as ChangeSchema } from "./api.ts";
import { type Identities, identityTaken } from "./identities.ts";
import { rejectWeakPassword } from "./password-policy.ts";
import type { Passwords } from "./passwords.ts";
import type { PasswordSettings, PasswordSignIn } from "./sign-in.ts";
import type { SignInFailures } from "./sign-in-failures.ts";
import { newRevision, revokedTokenMembers, type UserRecord, type UserRow, userKey } from "./user.ts";
import { type Users, userExists } from "./users.ts";
import { accountView, type ViewedUser } from "./views.ts";

/** A local user to create. */
export interface NewUser {
  username: string;
  email?: string | null | undefined;
  password: string;
  role: Role;
  /** Default: the setting `requirePasswordChange`. */
  mustChangePassword?: boolean | undefined;
}

/**
 * A change of a user. Omitted members stay unchanged; null removes a value. A new password is a reset, which also removes the
 * user's known addresses (those of recent sign-ins, which have priority).
 */
export type UserChange = z.output<typeof ChangeSchema>;

/**
 * User administration, for the endpoints under /auth/users and the command line tool. A change that removes access revokes the
 * user's tokens and sessions on every instance.
 */
export interface Administration {
  /** Lists users by name. Costs one extra request for each user, to read the failed sign-ins. */
  list(page: PageRequest): Promise<Page<AccountView>>;
  /** @throws {Problem} notFound */
  get(id: string): Promise<AccountView>;
  /** @throws {Problem} alreadyExists, invalidRequest (a weak password) */
  create(user: NewUser, caller: Caller): Promise<AccountView>;
  /**
   * Changes a user.
   *
   * @throws {Problem} notFound, preconditionFailed, invalidRequest (a weak password), conflict (the last administrator, the
   * caller's own password, an identity that is linked to another user, a member that single sign-on decides).
   */
  update(id: string, change: UserChange, ifMatch: string | undefined, caller: Caller): Promise<AccountView>;
  /**
   * Deletes a user.
   *
   * @throws {Problem} notFound, preconditionFailed, conflict (the last administrator, or the only user who can sign in while
   * passwords are turned off).
   */
  remove(id: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
  /** Deletes the user's failed sign-ins from every address. @throws {Problem} notFound */
  unlock(id: string, caller: Caller): Promise<AccountView>;
}

/** Maximum number of users of a list whose failed sign-ins are read concurrently. */
const MAX_CONCURRENT_READS = 16;

/**
 * Creates the administration of users.
 *
 * @param deps.roleMapped - Returns true if single sign-on assigns the roles of its users.
 * @param deps.passwordSignIn - Decides whether a user may sign in with a password now.
 * @param deps.passwordSettings - The settings of passwords that administrators set.
 */
export function createAdministration(deps: {
  users: Users;
  identities: Identities;
  passwords: Passwords;
  failures: SignInFailures;
  audit: Audit;
  clock: Clock;
  randomness: Randomness;
  roleMapped: () => Promise<boolean>;
  passwordSignIn: PasswordSignIn;
  passwordSettings: PasswordSettings;
}): Administration {
  const { users, identities, passwords, failures, audit, clock } = deps;

  async function readUser(id: string): Promise<UserRow> {
    const user = await users.findById(id);
    if (!user) throw notFound("This user");
    return user;
  }

  const target = (id: string) => ({ type: "user", id: userKey(id) });
  const viewOf = async (user: ViewedUser) => accountView(user, await failures.lockedUntil(userKey(user.username)));

  /**
   * Throws `conflict` for a new password of the caller, and for changes that only single sign-on makes: the password or identity
   * of an SSO user, and a role that the role mapping assigns. Also if the new identity is blocked or linked to another user.
   */
  async function requireAllowedChange(
    user: UserRow,
    { role, password, sso }: UserChange,
    caller: Caller,
  ): Promise<void> {
    const isSsoUser = user.source === "sso";
    if (password !== undefined && caller.actor === user.username) {
      throw new Problem("conflict", "Change your own password with POST /auth/password.");
    }
    if (password !== undefined && isSsoUser) {
      throw new Problem("conflict", "This user signs in with single sign-on and has no password here.");
    }
    if (sso !== undefined && isSsoUser) {
      throw new Problem("conflict", "This user was created for its identity. Link another identity to a local user.");
    }
    if (role !== undefined && role !== user.role && isSsoUser && (await deps.roleMapped())) {
      throw new Problem("conflict", "The roleMapping of single sign-on gives this user its role at every sign-in.");
    }
    if (sso) await identities.requireFree(sso, user.rowKey);
  }

  /** Throws `conflict` if passwords are turned off and this is the only user who can still sign in with one. */
  async function requireNotBreakGlass(user: UserRow): Promise<void> {
    if ((await deps.passwordSignIn(user.rowKey)) !== "breakGlass") return;
    throw new Problem(
      "conflict",
      "Passwords are turned off, and only this user can still sign in with one. Turn ssoOnlyMode off first: PUT /auth/sso/config.",
    );
  }

  const unusedPassword = () => ({ unusedPasswordSince: clock.now().toISOString() });

  /** Returns the row with the change applied. It revokes tokens and sessions if the change removes access. */
  function applyChange(current: UserRow, change: UserChange, passwordHash: string | undefined): UserRecord {
    const { email, role = current.role, state = current.state, sso } = change;
    const isDisabled = state === "disabled" && current.state === "active";
    // The identity is replaced or removed (`null`). A person who signed in with it must not keep access.
    const isUnlinked = sso !== undefined && current.sso !== undefined && !isSameIdentity(current.sso, sso);
    const isReset = passwordHash !== undefined;
    return {
      ...current,
      email: email === undefined ? current.email : (email ?? undefined),
      role,
      state,
      sso: sso === undefined ? current.sso : (sso ?? undefined),
      ...(isReset && { passwordHash, mustChangePassword: true, ...unusedPassword(), knownAddresses: [] }),
      ...((role !== current.role || isDisabled || isUnlinked || isReset) && revokedTokenMembers(current, clock)),
      // Otherwise API tokens stay: they never grant more than the user's current role, and don't depend on the identity.
      ...((isDisabled || isReset) && { apiTokens: [] }),
      ...newRevision(deps),
    };
  }

  return {
    async list(page) {
      const userPage = await users.list(page);
      return { ...userPage, items: await pMap(userPage.items, viewOf, { concurrency: MAX_CONCURRENT_READS }) };
    },

    get: async (id) => await viewOf(await readUser(id)),

    async create({ username, email, password, role, mustChangePassword }, caller) {
      if (await users.find(username)) throw userExists(username);
      await rejectWeakPassword(password, { username, email }, "password");
      const passwordHash = await passwords.hash(password);
      const { revision, updatedAt: createdAt } = newRevision(deps);
      const user: UserRecord = {
        uid: deps.randomness.ulid(clock.now()),
        source: "local",
        username,
        ...(email && { email }),
        role,
        state: "active",
        passwordHash,
        mustChangePassword: mustChangePassword ?? (await deps.passwordSettings()).requirePasswordChange,
        ...unusedPassword(),
        tokensValidFrom: createdAt,
        revokedTokens: [],
        createdAt: createdAt,
        createdBy: caller.actor,
        revision,
        updatedAt: createdAt,
      };
      const created = await viewOf(user);
      const event = { type: "user.created", caller, target: target(username) };
      await audited(
        audit,
        event,
        () => users.create(user),
        () => ({ after: created }),
      );
      return created;
    },

    async update(id, change, ifMatch, caller) {
      const user = await readUser(id);
      requireMatch(accountView(user, undefined).etag, ifMatch, USER);
      await requireAllowedChange(user, change, caller);
      // A change that disables the user, or gives it another role than administrator.
      if (change.state === "disabled" || (change.role ?? "admin") !== "admin") await requireNotBreakGlass(user);
      const { email, role, state, password, sso } = change;
      if (password !== undefined) await rejectWeakPassword(password, { ...user, ...(email && { email }) }, "password");
      const passwordHash = password === undefined ? undefined : await passwords.hash(password);
      const details = { email, role, state, sso, ...(password !== undefined && { passwordReset: true }) };
      const event = { type: "user.updated", caller, target: target(user.rowKey), details };
      const effect = async () => {
        let before = accountView(user, undefined);
        const nextRow = (latest: UserRow) => {
          before = accountView(latest, undefined);
          requireMatch(before.etag, ifMatch, USER);
          return applyChange(latest, change, passwordHash);
        };
        const row = await users
          .change(user, nextRow, (after, previous) => identities.linkOperations(previous, after))
          .catch((error) => {
            throw error instanceof RowExists ? identityTaken() : error;
          });
        if (!row) throw notFound("This user");
        return { before, row };
      };
      const { row } = await audited(audit, event, effect, ({ before, row: changedRow }) => ({
        before,
        after: accountView(changedRow, undefined),
      }));
      return await viewOf(row);
    },

    async remove(id, ifMatch, caller) {
      const user = await readUser(id);
      const before = accountView(user, undefined);
      requireMatch(before.etag, ifMatch, USER);
      await requireNotBreakGlass(user);
      const event = { type: "user.deleted", caller, target: target(user.rowKey) };
      const effect = async () => {
        const removed = await users.remove(user, (latest) => {
          requireMatch(accountView(latest, undefined).etag, ifMatch, USER);
          return identities.blockOperations(latest, caller);
        });
        if (!removed) throw notFound("This user");
      };
      await audited(audit, event, effect, () => ({ before }));
    },

    async unlock(id, caller) {
      const user = await readUser(id);
      const event = { type: "user.unlocked", caller, target: target(user.rowKey) };
      await audited(audit, event, () => failures.clear(user.rowKey));
      return await viewOf(user);
    },
  };
}

const isSameIdentity = (first: UserRecord["sso"], second: UserChange["sso"]): boolean =>
  first?.issuer === second?.issuer && first?.subject === second?.subject;

/** Subject of the texts in problem documents. */
const USER = "The user";
