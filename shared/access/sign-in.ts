import pLimit from "p-limit";
import type { Audit } from "../audit/audit.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock } from "../platform/runtime.ts";
import { DAY_MS } from "../platform/time.ts";
import type { SettingValues } from "../settings/definitions.ts";
import { confirmationsWith } from "./confirmations.ts";
import { createFairQueue } from "./fair-queue.ts";
import { type KnownAddresses, UNKNOWN_ADDRESS } from "./known-addresses.ts";
import type { Passwords } from "./passwords.ts";
import type { RecentAddresses } from "./recent-addresses.ts";
import {
  type GivenFactor,
  isFactorGiven,
  type SecondFactorVerification,
  type VerifiedFactor,
} from "./second-factor.ts";
import type { SecondFactorMethod } from "./second-factor-api.ts";
import { hasSecondFactor } from "./second-factor-record.ts";
import type { NewSession, Sessions } from "./sessions.ts";
import { type CountedAttempt, type SignInFailures, verifyCounted } from "./sign-in-failures.ts";
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

/** The username, the password and, for a user who enrolled one, the second factor of a sign-in. */
export interface Credentials extends GivenFactor {
  username: string;
  password: string;
}

/**
 * Decides whether a user may sign in with a password now. `breakGlass`: yes, although passwords are turned off for other users.
 */
export type PasswordSignIn = (username: string) => Promise<"allowed" | "refused" | "breakGlass">;

/** Returns the settings of passwords that administrators set. */
export type PasswordSettings = () => Promise<
  Pick<SettingValues, "requirePasswordChange" | "unusedPasswordDays" | "requireSecondFactor">
>;

/** Sign-in with username and password, for POST /auth/login. */
export interface SignIn {
  /**
   * Returns a token if the password is correct. Requests from the user's known addresses have priority, so that other clients
   * can't lock out the user: known addresses neither wait behind unknown ones nor are blocked by their failures.
   *
   * @throws {Problem} invalidCredentials, the same for an unknown user and a wrong password; tooManyAttempts after failures;
   * rateLimited if this username or this instance is busy with sign-ins; ssoOnly. Only if the password is correct:
   * passwordExpired, secondFactorRequired without a second factor, and secondFactorFailed with a wrong one.
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
}

/** A sign-in whose password was correct, and which waits for its second factor. It stays counted as a failure until then. */
interface AwaitingFactor {
  attempt: CountedAttempt;
  user: UserRow;
}

/** The result of a sign-in: the user after it, or why it was rejected. After a wrong password, no member is set. */
interface SignInResult {
  rejection?: Problem | undefined;
  signedIn?: UserRow | undefined;
  /** The second factor that was used. */
  method?: SecondFactorMethod | undefined;
}

/** The address of a sign-in, and the session to store with it. */
interface SignInDetails {
  address: string;
  /** True if the user recently signed in from the address. */
  isKnownAddress: boolean;
  session: NewSession | undefined;
}

/**
 * Maximum number of sign-ins that wait in each queue. A sign-in takes about 300 ms, so the last of the known addresses waits
 * about ten seconds. For unknown addresses it is the number that the rate limit allows one address in a minute. The platform
 * allows an instance only a few concurrent requests.
 */
const MAX_WAITING = { known: 32, unknown: 10 };

/**
 * Maximum number of concurrent reads of users for sign-ins from unknown addresses, so that capacity remains for other requests.
 */
const MAX_CONCURRENT_READS = 4;

/** Returns the client address of a request, or UNKNOWN_ADDRESS. */
export const addressOf = (caller: Caller): string => caller.address ?? UNKNOWN_ADDRESS;

/**
 * Creates the sign-in with username and password.
 *
 * @param deps.limiter - Limits sign-ins per username from unknown addresses. Its keys are keyed hashes of usernames.
 */
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
  secondFactor: SecondFactorVerification;
  /** Row key of the bootstrap administrator. Undefined if none is configured. */
  bootstrapUser: string | undefined;
}): SignIn {
  const { users, passwords, tokens, sessions, failures, addresses, recentAddresses, limiter, audit, clock, hash } =
    deps;
  const { secondFactor } = deps;
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
   * Returns the target of the audit entry. For an unknown user it contains only a hash, because people sometimes type a password
   * into the username field.
   */
  const targetOf = (name: string, user: UserRow | undefined) => ({
    type: "user",
    id: user ? user.rowKey : `unknown:${hash(name).slice(0, 16)}`,
  });

  /**
   * Verifies the password of a sign-in that has reached the front of the queue, and signs in a user without a second factor.
   */
  async function verifyPassword(
    name: string,
    user: UserRow | undefined,
    password: string,
    { address, isKnownAddress, session }: SignInDetails,
  ): Promise<SignInResult | AwaitingFactor> {
    if (!isKnownAddress) {
      const { allowed, retryAfterSeconds } = await limiter.take(`username:${hash(name)}`);
      if (!allowed) return { rejection: rateLimited(retryAfterSeconds) };
    }
    const attempt = await failures.begin({ username: name, address, isKnownAddress });
    if ("waitSeconds" in attempt) return { rejection: tooManyAttempts(attempt.waitSeconds) };
    const signedIn = await verifyCounted(failures, attempt, async () => {
      // Without a hash, `verify` takes as long, so that the time of the answer does not show whether the user exists.
      const isCorrect = await passwords.verify(password, user?.state === "active" ? user.passwordHash : undefined);
      if (!user || !isCorrect) return undefined;
      if (await hasExpiredUnused(user, deps)) return "expired";
      return hasSecondFactor(user) ? "awaitingFactor" : await writeSignIn(user, address, session);
    });
    // The attempt stays counted as a failure.
    if (signedIn === "expired") return { rejection: passwordExpired() };
    if (signedIn === "awaitingFactor") return { attempt, user: user! };
    if (signedIn) await failures.succeeded(attempt);
    else if (user) await forgetAddress(user, attempt, { address, isKnownAddress });
    return { signedIn };
  }

  /** Removes an address from the user's known addresses after too many failures from it. */
  async function forgetAddress(
    user: UserRow,
    attempt: CountedAttempt,
    { address, isKnownAddress }: Pick<SignInDetails, "address" | "isKnownAddress">,
  ): Promise<void> {
    if (!isKnownAddress || !attempt.isLast) return;
    await users.change(user, (latest) => ({ ...latest, knownAddresses: addresses.without(latest, address) }));
  }

  /**
   * Verifies the second factor of a sign-in with a correct password. Runs outside of the queue of sign-ins: reading the key of
   * TOTP secrets from the key vault must not delay other sign-ins.
   */
  async function verifySecondFactor(
    { attempt, user }: AwaitingFactor,
    given: GivenFactor,
    { address, isKnownAddress, session }: SignInDetails,
  ): Promise<SignInResult> {
    if (!isFactorGiven(given)) {
      // A missing factor is no failure. It must not count as a success either, which would reset the count of wrong codes.
      await failures.withdraw(attempt);
      return { rejection: await secondFactorProblem(secondFactor, "secondFactorRequired", user) };
    }
    const { factor, signedIn } = await verifyCounted(failures, attempt, async () => {
      const factor = await secondFactor.verify(user, given);
      return { factor, signedIn: factor && (await writeSignIn(user, address, session, factor)) };
    });
    if (signedIn) {
      await failures.succeeded(attempt);
      return { signedIn, method: factor?.method };
    }
    await forgetAddress(user, attempt, { address, isKnownAddress });
    return { rejection: await secondFactorProblem(secondFactor, "secondFactorFailed", user) };
  }

  /**
   * Writes the sign-in to the user's row, and uses up the second factor. Returns undefined if the user has been disabled, if the
   * password changed or a second factor was enrolled since the user was read, or if the factor was used before.
   */
  async function writeSignIn(
    user: UserRow,
    address: string,
    session: NewSession | undefined,
    factor?: VerifiedFactor,
  ): Promise<UserRow | undefined> {
    return await users.change(user, (latest) => {
      if (latest.state !== "active" || latest.passwordHash !== user.passwordHash) return undefined;
      if (!factor && hasSecondFactor(latest)) return undefined;
      const factorAfter = factor ? factor.use(latest) : latest.secondFactor;
      if (factor && !factorAfter) return undefined;
      const knownAddresses = addresses.with(latest, address, clock.now());
      const signIn = { ...signInMembers(latest, clock), knownAddresses, unusedPasswordSince: undefined };
      const confirmations = factor && session && confirmationsWith(latest, session.id, signIn.lastSignInAt!);
      const after = { ...latest, ...signIn, secondFactor: factorAfter, ...(confirmations && { confirmations }) };
      return { ...after, ...session?.sessionsWith(after) };
    });
  }

  /** Signs in a user. @param begin - Creates the session to store, if any. @returns The user after the sign-in. */
  async function signInAs(
    { username, password, ...given }: Credentials,
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
    const position = { queue: isKnownAddress ? "known" : "unknown", source: address } as const;
    const attemptDetails = { address, isKnownAddress, session };
    const verified = await queue.run(position, () => verifyPassword(name, user, password, attemptDetails));
    const result = "attempt" in verified ? await verifySecondFactor(verified, given, attemptDetails) : verified;
    const { rejection, signedIn, method } = result;

    if (signedIn) recentAddresses.add(address);
    const target = targetOf(name, user);
    if (rejection) {
      const details = { reason: rejection.code };
      const isFailure = rejection.code === "secondFactorFailed";
      await audit.refused({
        ...(isFailure ? FAILED : ({ type: "user.signInRefused", outcome: "refused" } as const)),
        caller,
        target,
        details,
      });
      throw rejection;
    }
    if (!signedIn) {
      await audit.refused({ ...FAILED, caller, target });
      throw new Problem("invalidCredentials", "Check the username and the password.", {
        headers: { "WWW-Authenticate": "Bearer" },
      });
    }
    const success = { outcome: "success", caller: { ...caller, actor: signedIn.username }, target } as const;
    if (passwordSignIn === "breakGlass") await audit.append({ type: "access.breakGlass", ...success });
    const details = { to: session ? "session" : "token", ...(method && { secondFactor: method }) };
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
  };
}

/** Type and outcome of the audit entry for a wrong password or second factor. */
const FAILED = { type: "user.signInFailed", outcome: "failure" } as const;

export const tooManyAttempts = (seconds: number): Problem =>
  retryLater("tooManyAttempts", "Too many failed sign-ins. Wait for the time in Retry-After.", seconds);

const rateLimited = (seconds: number): Problem =>
  retryLater("rateLimited", "Too many sign-ins of this user. Wait for the time in Retry-After.", seconds);

const passwordExpired = (): Problem =>
  new Problem(
    "passwordExpired",
    "An administrator set this password, and it expired before it was used. Ask an administrator for a new one.",
  );

/** Returns a problem that lists the user's methods, with a new challenge for passkeys. */
export async function secondFactorProblem(
  secondFactor: SecondFactorVerification,
  code: "secondFactorRequired" | "secondFactorFailed",
  user: UserRow,
): Promise<Problem> {
  const { methods, passkeyOptions } = await secondFactor.challenge(user);
  const detail =
    code === "secondFactorRequired"
      ? "Send the same request with a second factor: totp, recoveryCode or passkey. methods lists those of the user."
      : "The second factor is wrong, expired, or was used before. Send the same request with another one.";
  return new Problem(code, detail, {
    headers: { "WWW-Authenticate": "Bearer" },
    members: { methods, ...(passkeyOptions && { passkeyOptions }) },
  });
}

/**
 * Returns true if an administrator set the password too long ago and the user never signed in with it. The bootstrap
 * administrator's password never expires, because it is kept for an emergency.
 */
export async function hasExpiredUnused(
  { rowKey, unusedPasswordSince: since }: UserRow,
  deps: { bootstrapUser: string | undefined; passwordSettings: PasswordSettings; clock: Clock },
): Promise<boolean> {
  if (since === undefined || rowKey === deps.bootstrapUser) return false;
  const { unusedPasswordDays } = await deps.passwordSettings();
  return Date.parse(since) + unusedPasswordDays * DAY_MS <= deps.clock.now().getTime();
}
