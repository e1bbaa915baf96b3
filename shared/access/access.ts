import type * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import type { Config } from "../config/config.ts";
import type { Actor, Caller, Role } from "../http/endpoint.ts";
import type { Page, PageRequest } from "../http/paging.ts";
import { notFound, Problem, retryLater } from "../http/problem.ts";
import type { RateLimiter } from "../http/rate-limit.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { audited } from "./audited.ts";
import { bootstrapAdministrator } from "./bootstrap.ts";
import { type Attempt, createSignInFailures } from "./failures.ts";
import { createPasswords, type Passwords } from "./passwords.ts";
import { createTokens, keyedHash, TOKEN_SECONDS } from "./tokens.ts";
import { createTurns } from "./turns.ts";
import { revised, tokensEnded, type UserRecord, type UserRow, type UserView, userKey, userView } from "./user.ts";
import { createUsers, userExists } from "./users.ts";

interface SignedIn {
  access_token: string;
  token_type: "bearer";
  /** Seconds. */
  expires_in: number;
}

interface NewUser {
  username: string;
  email?: string | undefined;
  password: string;
  role: Role;
}

interface UserChange {
  email?: string | null | undefined;
  role?: Role | undefined;
}

type View = z.infer<typeof UserView>;

/** Who may come in: users, their passwords and tokens. */
export interface Access {
  /**
   * @throws {Problem} invalidCredentials, the same for an unknown user and a wrong password; tooManyAttempts after
   * failures; rateLimited when this username or this instance is busy with sign-ins.
   */
  signIn(credentials: { username: string; password: string }, caller: Caller): Promise<SignedIn>;
  /** Ends the actor's token, on every instance at once. */
  signOut(actor: Actor, caller: Caller): Promise<void>;
  /** Who a token stands for now, by one uncached read of the user's row. */
  authenticate(token: string): Promise<{ kind: "valid"; actor: Actor } | { kind: "invalid" }>;
  /** Ends every token of the actor. @throws {Problem} invalidRequest, tooManyAttempts, conflict, rateLimited. */
  changePassword(actor: Actor, current: string, next: string, caller: Caller): Promise<void>;
  me(actor: Actor): Promise<View>;
  users: {
    list(page: PageRequest): Promise<Page<View>>;
    /** @throws {Problem} notFound */
    get(id: string): Promise<View>;
    /** @throws {Problem} alreadyExists */
    create(user: NewUser, caller: Caller): Promise<View>;
    /** A new role ends the user's tokens. @throws {Problem} notFound, preconditionFailed, conflict (last administrator). */
    update(id: string, change: UserChange, ifMatch: string | undefined, caller: Caller): Promise<View>;
    /** @throws {Problem} notFound, preconditionFailed, conflict (last administrator). */
    remove(id: string, ifMatch: string | undefined, caller: Caller): Promise<void>;
    /** Forgets the user's failed sign-ins from every address. @throws {Problem} notFound */
    unlock(id: string, caller: Caller): Promise<View>;
  };
  /** Removes counts of failed sign-ins that no longer matter. */
  cleanUp(): Promise<void>;
}

export interface AccessDependencies {
  tables: Tables;
  config: Pick<
    Config,
    "JWT_SIGNING_KEYS" | "JWT_ISSUER" | "JWT_AUDIENCE" | "BOOTSTRAP_ADMIN_USERNAME" | "BOOTSTRAP_ADMIN_PASSWORD"
  >;
  clock: Clock;
  randomness: Randomness;
  audit: Audit;
  log: Logger;
  /** Counts sign-ins per username, right or wrong; it is given keyed hashes of usernames. */
  limiter: RateLimiter;
  passwords?: Passwords;
}

/** Sign-ins that wait behind the one being checked; more are turned away. */
const MAX_WAITING_SIGN_INS = 32;

export function createAccess(deps: AccessDependencies): Access {
  const { tables, config, clock, randomness, audit, limiter } = deps;
  const passwords = deps.passwords ?? createPasswords({ randomness });
  const users = createUsers({ tables, randomness });
  const tokens = createTokens({ config, clock, randomness });
  // A new first key of the ring forgets the failures counted so far; they would have been forgotten in a day anyway.
  const hash = (text: string) => keyedHash(config.JWT_SIGNING_KEYS[0]!.key, "sign-in", text);
  const failures = createSignInFailures({ tables, clock, randomness, hash });
  // One at a time, so that several right sign-ins at once are not taken for several failures: see SignInFailures.
  const signIns = createTurns(MAX_WAITING_SIGN_INS);

  let bootstrap: Promise<void> | undefined;
  /** Once per process, before anybody is let in; again at the next call when it failed. */
  function bootstrapped(): Promise<void> {
    bootstrap ??= bootstrapAdministrator({ ...deps, passwords, clearFailures: failures.clear }).catch(
      (error: unknown) => {
        bootstrap = undefined;
        throw error;
      },
    );
    return bootstrap;
  }

  const addressOf = (caller: Caller) => caller.address ?? "unknown";

  /** Of a user who does not exist only a hash is told: people type passwords into the field for their name. */
  const targetOf = (name: string, user: UserRow | undefined) => ({
    type: "user",
    id: user ? user.rowKey : `unknown:${hash(name).slice(0, 16)}`,
  });

  const tooMany = (seconds: number) =>
    retryLater("tooManyAttempts", "Too many failed sign-ins. Wait as long as Retry-After says.", seconds);

  /** Tells of a refused sign-in, then refuses it. */
  async function refuseSignIn(name: string, reason: string, problem: Problem, caller: Caller): Promise<never> {
    const target = targetOf(name, await users.find(name));
    await audit.refused({ type: "user.signInRefused", outcome: "refused", caller, target, details: { reason } });
    throw problem;
  }

  /** `entered` when the password was right: the user as its sign-in left it. */
  async function checkSignIn(name: string, password: string, caller: Caller) {
    const attempt = await failures.begin(name, addressOf(caller));
    if ("waitSeconds" in attempt)
      return await refuseSignIn(name, "tooManyAttempts", tooMany(attempt.waitSeconds), caller);
    const checked = await orWithdraw(attempt, async () => {
      const known = await users.find(name);
      const right = await passwords.verify(password, known?.state === "active" ? known.passwordHash : undefined);
      return { known, entered: known && right ? await enterSignIn(known) : undefined };
    });
    if (checked.entered) await failures.succeeded(attempt);
    return checked;
  }

  /** Writes the sign-in with the ETag of the row its password was checked against; undefined when that no longer holds. */
  async function enterSignIn(known: UserRow): Promise<UserRow | undefined> {
    return await users.change(known, (now) => {
      if (now.state !== "active" || now.passwordHash !== known.passwordHash) return undefined;
      const at = Math.max(clock.now().getTime(), ...[now.tokensValidFrom, now.lastSignInAt ?? 0].map(instantOf));
      return { ...now, lastSignInAt: new Date(at).toISOString(), revokedTokens: stillRevoked(now) };
    });
  }

  async function orWithdraw<T>(attempt: Attempt, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      await failures.withdraw(attempt);
      throw error;
    }
  }

  const stillRevoked = (user: UserRecord) =>
    user.revokedTokens.filter(({ until }) => Date.parse(until) > clock.now().getTime());

  async function existing(id: string, ifMatch?: string): Promise<UserRow> {
    const user = await users.find(id);
    if (!user) throw notFound("This user");
    checkRevision(user, ifMatch);
    return user;
  }

  return {
    async signIn({ username, password }, caller) {
      await bootstrapped();
      const name = userKey(username);
      const waitSeconds = await failures.wait(name, addressOf(caller));
      if (waitSeconds > 0) return await refuseSignIn(name, "tooManyAttempts", tooMany(waitSeconds), caller);
      const { allowed, retryAfterSeconds } = await limiter.take(`username:${hash(name)}`);
      if (!allowed) {
        const problem = retryLater("rateLimited", "Too many sign-ins of this user. Wait a while.", retryAfterSeconds);
        return await refuseSignIn(name, "rateLimited", problem, caller);
      }
      const { known, entered } = await signIns.take(() => checkSignIn(name, password, caller));
      const target = targetOf(name, known);
      if (!entered) {
        await audit.refused({ type: "user.signInFailed", outcome: "failure", caller, target });
        throw new Problem("invalidCredentials", "Check the username and the password.", {
          headers: { "WWW-Authenticate": "Bearer" },
        });
      }
      const token = await tokens.issue(entered.rowKey, new Date(entered.lastSignInAt!));
      const signedIn = { ...caller, actor: entered.username };
      await audit.append({ type: "user.signedIn", outcome: "success", caller: signedIn, target });
      return { access_token: token, token_type: "bearer", expires_in: TOKEN_SECONDS };
    },

    async signOut(actor, caller) {
      const user = await users.find(actor.username);
      if (!user) return;
      await audited(audit, { type: "user.signedOut", caller, target: targetOf(user.rowKey, user) }, async () => {
        const revoked = { id: actor.tokenId, until: actor.tokenExpiresAt.toISOString() };
        await users.change(user, (now) => ({ ...now, revokedTokens: [...stillRevoked(now), revoked] }));
        return {};
      });
    },

    async authenticate(token) {
      const claims = await tokens.verify(token);
      if (!claims) return { kind: "invalid" };
      await bootstrapped();
      const user = await users.find(claims.username);
      if (
        user?.state !== "active" ||
        claims.issuedAt.getTime() < Date.parse(user.tokensValidFrom) ||
        user.revokedTokens.some(({ id }) => id === claims.id)
      ) {
        return { kind: "invalid" };
      }
      const { username, role } = user;
      return { kind: "valid", actor: { username, role, tokenId: claims.id, tokenExpiresAt: claims.expiresAt } };
    },

    async changePassword(actor, current, next, caller) {
      if (next === current) throw invalidMember("newPassword", "must differ from the current password");
      const user = await existing(actor.username);
      const attempt = await failures.begin(user.rowKey, addressOf(caller));
      if ("waitSeconds" in attempt) throw tooMany(attempt.waitSeconds);
      const right = await orWithdraw(attempt, () => passwords.verify(current, user.passwordHash));
      const event = { type: "user.passwordChanged", caller, target: targetOf(user.rowKey, user) };
      if (!right) {
        await audit.refused({ ...event, outcome: "refused", details: { reason: "wrong current password" } });
        throw invalidMember("currentPassword", "is not your current password");
      }
      await failures.succeeded(attempt);
      const passwordHash = await passwords.hash(next);
      await audited(audit, event, async () => {
        const changed = await users.change(user, (now) => {
          if (now.passwordHash !== user.passwordHash) {
            throw new Problem("conflict", "The password was changed in the meantime. Sign in again.");
          }
          return { ...now, passwordHash, ...tokensEnded(now, clock), ...revised(deps) };
        });
        if (!changed) throw notFound("This user");
        return {};
      });
    },

    me: async (actor) => userView(await existing(actor.username)),

    users: {
      list: (page) => users.list(page),
      get: async (id) => userView(await existing(id)),

      async create({ username, email, password, role }, caller) {
        const target = { type: "user", id: userKey(username) };
        if (await users.find(username)) throw userExists(username);
        const passwordHash = await passwords.hash(password);
        const now = clock.now().toISOString();
        const user: UserRecord = {
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
        await audited(audit, { type: "user.created", caller, target }, async () => {
          await users.create(user);
          return { after };
        });
        return after;
      },

      async update(id, { email, role }, ifMatch, caller) {
        const user = await existing(id, ifMatch);
        const event = { type: "user.updated", caller, target: targetOf(user.rowKey, user), details: { email, role } };
        let after = userView(user);
        await audited(audit, event, async () => {
          let before = after;
          const changed = await users.change(user, (now) => {
            checkRevision(now, ifMatch);
            before = userView(now);
            return {
              ...now,
              email: email === undefined ? now.email : (email ?? undefined),
              ...(role === undefined || role === now.role ? {} : { role, ...tokensEnded(now, clock) }),
              ...revised(deps),
            };
          });
          if (!changed) throw notFound("This user");
          after = userView(changed);
          return { before, after };
        });
        return after;
      },

      async remove(id, ifMatch, caller) {
        const user = await existing(id, ifMatch);
        const event = { type: "user.deleted", caller, target: targetOf(user.rowKey, user) };
        await audited(audit, event, async () => {
          if (!(await users.remove(user, (now) => checkRevision(now, ifMatch)))) throw notFound("This user");
          return { before: userView(user) };
        });
      },

      async unlock(id, caller) {
        const user = await existing(id);
        const event = { type: "user.unlocked", caller, target: targetOf(user.rowKey, user) };
        await audited(audit, event, async () => {
          await failures.clear(user.rowKey);
          return {};
        });
        return userView(user);
      },
    },

    cleanUp: () => failures.cleanUp(),
  };
}

const instantOf = (value: string | number): number => new Date(value).getTime();

/** RFC 9110 §13.1.1: `*` or a list of ETags. */
function checkRevision(user: UserRow, ifMatch: string | undefined): void {
  if (ifMatch === undefined || ifMatch.trim() === "*") return;
  if (ifMatch.split(",").some((etag) => etag.trim() === userView(user).etag)) return;
  throw new Problem("preconditionFailed", "The user was changed since you read it. Read it again, then repeat.");
}

function invalidMember(name: string, message: string): Problem {
  const path = `body.${name}`;
  return new Problem("invalidRequest", `${path} ${message}.`, { errors: [{ path, message }] });
}
