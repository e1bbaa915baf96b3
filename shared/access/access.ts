import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Config } from "../config/config.ts";
import { badCredential, type Credential, SESSION_COOKIE } from "../http/admission.ts";
import type { Actor, Caller } from "../http/endpoint.ts";
import { notFound, Problem } from "../http/problem.ts";
import type { RateLimiter } from "../http/rate-limit.ts";
import type { Cookie } from "../http/reply.ts";
import type { Clock, Logger, Randomness } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import { SECOND_MS } from "../time.ts";
import { type Administration, createAdministration } from "./administration.ts";
import { type UserView, userView } from "./api.ts";
import { bootstrapAdministrator } from "./bootstrap.ts";
import { createSignInFailures } from "./failures.ts";
import { createKnownAddresses } from "./known-addresses.ts";
import { refuseWeakPassword } from "./password-policy.ts";
import { createPasswords, type Passwords } from "./passwords.ts";
import { createSessions, sessionCookie } from "./sessions.ts";
import { addressOf, createSignIn, type SignIn } from "./sign-in.ts";
import { createTokens, keyedHash } from "./tokens.ts";
import { revised, stillRevoked, tokensEnded, type UserRow } from "./user.ts";
import { createUsers } from "./users.ts";

/** Who may come in: users, their passwords and tokens. */
export interface Access {
  /** See `SignIn`. */
  signIn: SignIn["signIn"];
  signInToSession: SignIn["signInToSession"];
  /** Ends the actor's token or session, or every one of the actor, on every instance at once. */
  signOut(actor: Actor, everywhere: boolean, caller: Caller): Promise<void>;
  /**
   * Who a credential stands for now, else what its bearer is told (401): by one uncached read of the user's row, and for a
   * session one of its own.
   */
  authenticate(credential: Credential): Promise<Actor | Problem>;
  /** What makes a browser forget its session. */
  noSession: Cookie;
  /**
   * Ends every token and session of the actor.
   *
   * @throws {Problem} invalidRequest (a wrong current or a weak new password), tooManyAttempts, conflict, rateLimited.
   */
  changePassword(actor: Actor, current: string, next: string, caller: Caller): Promise<void>;
  me(actor: Actor): Promise<UserView>;
  users: Administration;
  /** Removes counts of failed sign-ins that no longer matter, and sessions that have ended. */
  cleanUp(): Promise<void>;
}

/** What the room is made of. */
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
  /** Counts strangers' sign-ins per username, right or wrong; it is given keyed hashes of usernames. */
  limiter: RateLimiter;
  passwords?: Passwords;
}

/**
 * Milliseconds after which a sign-in looks again whether the bootstrap administrator was made, which is one read: storage
 * that was emptied under a running process has nobody who could sign in.
 */
const BOOTSTRAP_HOLDS_MS = 10 * SECOND_MS;

export function createAccess(deps: AccessDependencies): Access {
  const { tables, config, clock, randomness, audit, limiter } = deps;
  const passwords = deps.passwords ?? createPasswords({ randomness });
  const users = createUsers(tables);
  const tokens = createTokens({ config, clock, randomness });
  // A new first key of the ring forgets the failures counted so far; they would have been forgotten in a day anyway.
  const hash = (text: string) => keyedHash(config.JWT_SIGNING_KEYS[0]!.key, "sign-in", text);
  const failures = createSignInFailures({ tables, clock, hash });
  const addresses = createKnownAddresses(config.JWT_SIGNING_KEYS);
  const sessions = createSessions({ tables, users, clock, randomness, cookieName: SESSION_COOKIE });
  const { signIn, signInToSession, isPasswordOf } = createSignIn({
    users,
    passwords,
    tokens,
    sessions,
    failures,
    addresses,
    limiter,
    audit,
    clock,
    hash,
  });

  let bootstrap: { at: number; done: Promise<void> } | undefined;
  /** Before anybody is let in, and again after `holdsMs` or when it failed. */
  async function bootstrapped(holdsMs: number): Promise<void> {
    const now = clock.now().getTime();
    if (!bootstrap || Math.abs(now - bootstrap.at) > holdsMs) {
      bootstrap = { at: now, done: bootstrapAdministrator({ ...deps, passwords, clearFailures: failures.clear }) };
    }
    const current = bootstrap;
    try {
      await current.done;
    } catch (error) {
      if (bootstrap === current) bootstrap = undefined;
      throw error;
    }
  }

  async function rowOf(actor: Actor): Promise<UserRow> {
    const user = await users.find(actor.username);
    if (!user) throw notFound("This user");
    return user;
  }

  async function ofToken(token: string): Promise<Actor | undefined> {
    const claims = await tokens.verify(token);
    if (!claims) return undefined;
    await bootstrapped(Infinity);
    const user = await users.find(claims.username);
    if (
      user?.state !== "active" ||
      claims.issuedAt.getTime() < Date.parse(user.tokensValidFrom) ||
      user.revokedTokens.some(({ id }) => id === claims.id)
    ) {
      return undefined;
    }
    const { username, role } = user;
    return { username, role, credential: { kind: "token", id: claims.id, expiresAt: claims.expiresAt } };
  }

  async function ofSession(cookie: string): Promise<Actor | undefined> {
    const found = await sessions.find(cookie);
    if (!found) return undefined;
    const { username, role } = found.user;
    return { username, role, credential: { kind: "session", id: found.id } };
  }

  return {
    async signIn(credentials, caller) {
      await bootstrapped(BOOTSTRAP_HOLDS_MS);
      return await signIn(credentials, caller);
    },

    async signInToSession(credentials, caller, userAgent) {
      await bootstrapped(BOOTSTRAP_HOLDS_MS);
      return await signInToSession(credentials, caller, userAgent);
    },

    noSession: sessionCookie(SESSION_COOKIE, "", 0),

    async signOut(actor, everywhere, caller) {
      const user = await users.find(actor.username);
      if (!user) return;
      const event = {
        type: "user.signedOut",
        caller,
        target: { type: "user", id: user.rowKey },
        details: { everywhere },
      };
      await audited(audit, event, async () => {
        const { credential } = actor;
        if (everywhere) await users.change(user, (now) => ({ ...now, ...tokensEnded(now, clock) }));
        else if (credential.kind === "session") await sessions.end(user.rowKey, credential.id);
        else if (credential.kind === "token") {
          const revoked = { id: credential.id, until: credential.expiresAt.toISOString() };
          await users.change(user, (now) => ({
            ...now,
            revokedTokens: [...stillRevoked(now, clock), revoked],
          }));
        }
      });
    },

    async authenticate(credential) {
      const actor =
        credential.kind === "session" ? await ofSession(credential.cookie) : await ofToken(credential.token);
      return actor ?? badCredential(credential);
    },

    async changePassword(actor, current, next, caller) {
      if (next === current) throw invalidMember("newPassword", "must differ from the current password");
      const user = await rowOf(actor);
      const event = { type: "user.passwordChanged", caller, target: { type: "user", id: user.rowKey } };
      if (!(await isPasswordOf(user, current, caller))) {
        await audit.refused({ ...event, outcome: "refused", details: { reason: "wrong current password" } });
        throw invalidMember("currentPassword", "is not your current password");
      }
      await refuseWeakPassword(next, user, "newPassword");
      const passwordHash = await passwords.hash(next);
      await audited(audit, event, async () => {
        const changed = await users.change(user, (now) => {
          if (now.passwordHash !== user.passwordHash) {
            throw new Problem("conflict", "The password was changed in the meantime. Sign in again.");
          }
          // Whoever knew the old password may be known elsewhere; here is who changed it.
          const knownAddresses = addresses.with({ ...now, knownAddresses: [] }, addressOf(caller), clock.now());
          return { ...now, passwordHash, knownAddresses, ...tokensEnded(now, clock), ...revised(deps) };
        });
        if (!changed) throw notFound("This user");
      });
    },

    me: async (actor) => userView(await rowOf(actor)),
    users: createAdministration({ users, passwords, failures, audit, clock, randomness }),

    async cleanUp() {
      await failures.cleanUp();
      await sessions.cleanUp();
    },
  };
}

function invalidMember(name: string, message: string): Problem {
  const path = `body.${name}`;
  return new Problem("invalidRequest", `${path} ${message}.`, { errors: [{ path, message }] });
}
