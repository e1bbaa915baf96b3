import pLimit from "p-limit";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS } from "../platform/time.ts";
import type { SettingValues } from "../settings/definitions.ts";
import { createFairQueue } from "./fair-queue.ts";
import { type KnownAddresses, UNKNOWN_ADDRESS } from "./known-addresses.ts";
import type { Passwords } from "./passwords.ts";
import type { RecentAddresses } from "./recent-addresses.ts";
import type { NewSession, Sessions } from "./sessions.ts";
import type { CountedAttempt, SignInFailures } from "./sign-in-failures.ts";
import { TOKEN_SECONDS, type Tokens } from "./tokens.ts";
import { signInMembers, type UserRow, uidOf, userKey } from "./user.ts";
import type { Users } from "./users.ts";

/** The token response, with the names of RFC 6749, 5.1. */
export interface TokenResponse {
  access_token: string;
  token_type: "bearer";
  /** Lifetime in seconds. */
  expires_in: number;
}

/** The username and password of a sign-in. */
export interface Credentials {
  username: string;
  password: string;
}

/**
 * Decides whether a user may sign in with a password now. `breakGlass`: yes, although passwords are turned off for other users.
 */
export type PasswordSignIn = (username: string) => Promise<"allowed" | "refused" | "breakGlass">;

/** Returns the settings of passwords that administrators set. */
export type PasswordSettings = () => Promise<Pick<SettingValues, "requirePasswordChange" | "unusedPasswordDays">>;

/** Sign-in with username and password, for POST /auth/login and for users who must confirm their password. */
export interface SignIn {
  /**
   * Returns a token if the password is correct. Requests from the user's known addresses have priority, so that other clients
   * can't lock out the user: known addresses neither wait behind unknown ones nor are blocked by their failures.
   *
   * @throws {Problem} invalidCredentials, the same for an unknown user and a wrong password; tooManyAttempts after failures;
   * rateLimited if this username or this instance is busy with sign-ins; ssoOnly; passwordExpired, only if the password is
   * correct.
   */
  signIn(credentials: Credentials, caller: Caller): Promise<TokenResponse>;
  /**
   * Signs in a browser: as `signIn`, but returns a session cookie instead of a token.
   *
   * @param userAgent - The `User-Agent` header of the browser.
   */
  signInToSession(
    credentials: Credentials,
    caller: Caller,
    userAgent: string | undefined,
  ): Promise<{ user: UserRow; cookie: Cookie }>;
  /**
   * Returns true if this is the password of a signed-in user. A wrong password counts as a failed sign-in.
   *
   * @throws {Problem} tooManyAttempts
   */
  isPasswordOf(user: UserRow, password: string, caller: Caller): Promise<boolean>;
}

/**
 * Maximum number of sign-ins that wait in each queue. For unknown addresses it is the number that the rate limit allows one
 * address in a minute. A sign-in takes about 300 ms, and the platform allows an instance only a few concurrent requests.
 */
const MAX_WAITING = { known: 32, unknown: 10 };

/**
 * Maximum number of concurrent reads of users for sign-ins from unknown addresses, so that capacity remains for other requests.
 */
const MAX_CONCURRENT_READS = 4;

/** Returns the client address of a request, or UNKNOWN_ADDRESS. */
export const addressOf = (caller: Caller): string => caller.address ?? UNKNOWN_ADDRESS;

/** @param deps.limiter - Limits sign-ins per username from unknown addresses. Its keys are keyed hashes of usernames. */
export function createSignIn(deps: {
  users: Users;
  passwords: Passwords;
  tokens: Tokens;
  sessions: Sessions;
  failures: SignInFailures;
  addresses: KnownAddresses;
  recentAddresses: RecentAddresses;
  limiter: RateLimiter;
  audit: Audit;
  clock: Clock;
  hash: (text: string) => string;
  passwordSignIn: PasswordSignIn;
  passwordSettings: PasswordSettings;
  /** Row key of the bootstrap administrator. Undefined if none is configured. */
  bootstrapUser: string | undefined;
}): SignIn {
  const { users, passwords, tokens, sessions, failures, addresses, recentAddresses, limiter, audit, clock, hash } =
    deps;
  // Sign-ins run one at a time: `SignInFailures` counts each as a failure until its password is verified, so concurrent correct
  // sign-ins would block each other.
  const queue = createFairQueue(MAX_WAITING);
  const limitReads = pLimit(MAX_CONCURRENT_READS);

  /** Returns the user, and whether the user may sign in with a password now. */
  async function readUser(name: string) {
    const passwordSignIn = await deps.passwordSignIn(name);
    return { passwordSignIn, user: passwordSignIn === "refused" ? undefined : await users.find(name) };
  }

  /**
   * For a user who does not exist, the audit entry contains only a hash: people sometimes type a password into the username
   * field.
   */
  const targetOf = (name: string, user: UserRow | undefined) => ({
    type: "user",
    id: user ? user.rowKey : `unknown:${hash(name).slice(0, 16)}`,
  });

  /**
   * Verifies a sign-in that has reached the front of the queue. Returns `rejection` if the sign-in is blocked or the password has
   * expired, and `signedIn`, the updated user, if the password was correct. Both are undefined after a wrong password.
   */
  async function verifySignIn(
    name: string,
    user: UserRow | undefined,
    password: string,
    { address, known, session }: { address: string; known: boolean; session: NewSession | undefined },
  ) {
    if (!known) {
      const { allowed, retryAfterSeconds } = await limiter.take(`username:${hash(name)}`);
      if (!allowed) return { rejection: rateLimited(retryAfterSeconds) };
    }
    const attempt = await failures.begin({ username: name, address, known });
    if ("waitSeconds" in attempt) return { rejection: tooManyAttempts(attempt.waitSeconds) };
    const signedIn = await orWithdraw(attempt, async () => {
      const isCorrect = await passwords.verify(password, user?.state === "active" ? user.passwordHash : undefined);
      if (!user || !isCorrect) return undefined;
      return (await hasExpiredUnused(user)) ? "expired" : await writeSignIn(user, address, session);
    });
    // The attempt stays counted as a failure.
    if (signedIn === "expired") return { rejection: passwordExpired() };
    if (signedIn) await failures.succeeded(attempt);
    else if (user && known && attempt.isLast) {
      // After too many wrong passwords from a known address, it loses its priority.
      await users.change(user, (latest) => ({ ...latest, knownAddresses: addresses.without(latest, address) }));
    }
    return { signedIn };
  }

  /**
   * Returns true if an administrator set the password too long ago and the user never signed in with it. The bootstrap
   * administrator's password never expires, because it is kept for an emergency.
   */
  async function hasExpiredUnused({ rowKey, unusedPasswordSince: since }: UserRow): Promise<boolean> {
    if (since === undefined || rowKey === deps.bootstrapUser) return false;
    const { unusedPasswordDays } = await deps.passwordSettings();
    return Date.parse(since) + unusedPasswordDays * DAY_MS <= clock.now().getTime();
  }

  /**
   * Writes the sign-in to the user's row. Returns undefined if the user has been disabled or the password changed since the
   * user was read.
   */
  async function writeSignIn(
    user: UserRow,
    address: string,
    session: NewSession | undefined,
  ): Promise<UserRow | undefined> {
    return await users.change(user, (latest) => {
      if (latest.state !== "active" || latest.passwordHash !== user.passwordHash) return undefined;
      const knownAddresses = addresses.with(latest, address, clock.now());
      const after = { ...latest, ...signInMembers(latest, clock), knownAddresses, unusedPasswordSince: undefined };
      return { ...after, ...session?.sessionsWith(after) };
    });
  }

  /** Does the work that verifies the password. If it throws, the attempt is not counted as a failure. */
  async function orWithdraw<T>(attempt: CountedAttempt, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      await failures.withdraw(attempt);
      throw error;
    }
  }

  /** Signs in a user. @param begin - Creates the session to store, if any. @returns The user after the sign-in. */
  async function signInAs(
    { username, password }: Credentials,
    caller: Caller,
    begin?: (name: string) => NewSession,
  ): Promise<{ user: UserRow; session: NewSession | undefined }> {
    const [name, address] = [userKey(username), addressOf(caller)];
    const { passwordSignIn, user } = await (recentAddresses.has(address)
      ? readUser(name)
      : limitReads(() => readUser(name)));
    if (passwordSignIn === "refused") {
      const details = { reason: "ssoOnly" };
      const event = { type: "user.signInRefused", caller, target: targetOf(name, undefined), details };
      await audit.refused({ ...event, outcome: "refused" });
      throw new Problem("ssoOnly", "Sign in with single sign-on: GET /auth/sso/login, in a browser.");
    }
    const isKnownAddress = user !== undefined && addresses.has(user, address);
    const session = begin?.(name);
    // The read of the user is the only storage request before the queue, so a request that finds the queue full costs one read.
    const position = { queue: isKnownAddress ? "known" : "unknown", owner: address } as const;
    const attemptDetails = { address, known: isKnownAddress, session };
    const { rejection, signedIn } = await queue.run(position, () => verifySignIn(name, user, password, attemptDetails));

    if (signedIn) recentAddresses.add(address);
    const target = targetOf(name, user);
    if (rejection) {
      const details = { reason: rejection.code };
      await audit.refused({ type: "user.signInRefused", outcome: "refused", caller, target, details });
      throw rejection;
    }
    if (!signedIn) {
      await audit.refused({ type: "user.signInFailed", outcome: "failure", caller, target });
      throw new Problem("invalidCredentials", "Check the username and the password.", {
        headers: { "WWW-Authenticate": "Bearer" },
      });
    }
    const success = { outcome: "success", caller: { ...caller, actor: signedIn.username }, target } as const;
    if (passwordSignIn === "breakGlass") await audit.append({ type: "access.breakGlass", ...success });
    const details = { to: session ? "session" : "token" };
    await audit.append({ type: "user.signedIn", ...success, details });
    return { user: signedIn, session };
  }

  return {
    async signIn(credentials, caller) {
      const { user } = await signInAs(credentials, caller);
      const token = await tokens.issue({ username: user.rowKey, uid: uidOf(user) }, new Date(user.lastSignInAt!));
      return { access_token: token, token_type: "bearer", expires_in: TOKEN_SECONDS };
    },

    async signInToSession(credentials, caller, userAgent) {
      const begin = (name: string) => sessions.begin(name, { by: "password", userAgent, caller });
      const { user, session } = await signInAs(credentials, caller, begin);
      return { user, cookie: session!.cookie };
    },

    async isPasswordOf(user, password, caller) {
      // The caller is signed in, so the address counts as known.
      const attempt = await failures.begin({ username: user.rowKey, address: addressOf(caller), known: true });
      if ("waitSeconds" in attempt) throw tooManyAttempts(attempt.waitSeconds);
      const isCorrect = await orWithdraw(attempt, () => passwords.verify(password, user.passwordHash));
      if (isCorrect) await failures.succeeded(attempt);
      return isCorrect;
    },
  };
}

const tooManyAttempts = (seconds: number): Problem =>
  retryLater("tooManyAttempts", "Too many failed sign-ins. Wait for the time in Retry-After.", seconds);

const rateLimited = (seconds: number): Problem =>
  retryLater("rateLimited", "Too many sign-ins of this user. Wait for the time in Retry-After.", seconds);

const passwordExpired = (): Problem =>
  new Problem(
    "passwordExpired",
    "An administrator set this password, and it expired before it was used. Ask an administrator for a new one.",
  );
