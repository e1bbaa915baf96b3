import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { AssignmentRecord } from "../platform/azure/role-assignments.ts";
import type { Config } from "../platform/config/config.ts";
import { type Credential, SESSION_COOKIE } from "../platform/http/admission.ts";
import type { Actor, Caller } from "../platform/http/endpoint.ts";
import { notFound, Problem } from "../platform/http/problem.ts";
import type { RateLimiter } from "../platform/http/rate-limit.ts";
import type { Cookie } from "../platform/http/reply.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import type { RowKeys } from "../platform/storage/signing.ts";
import { StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import { SECOND_MS } from "../platform/time.ts";
import { DEFINITIONS } from "../settings/definitions.ts";
import { type Administration, createAdministration } from "./administration.ts";
import { type Administrators, createAdministrators } from "./administrators.ts";
import type { Principal } from "./api.ts";
import { type ApiTokens, createApiTokens } from "./api-tokens.ts";
import { createAuthentication } from "./authentication.ts";
import { createBootstrapCheck } from "./bootstrap.ts";
import type { EntraTokens } from "./entra.ts";
import { createFederatedSignIn, type FederatedSignIn } from "./federated-sign-in.ts";
import { createFirstPassword, type FirstPassword } from "./first-password.ts";
import { createIdentities, type Identities } from "./identities.ts";
import { createIdentityConfirmation } from "./identity-confirmation.ts";
import { createKnownAddresses } from "./known-addresses.ts";
import { createPasskeys } from "./passkeys.ts";
import { rejectWeakPassword } from "./password-policy.ts";
import { createPasswords, type Passwords } from "./passwords.ts";
import { createRecentAddresses, type RecentAddresses } from "./recent-addresses.ts";
import { createSecondFactorVerification } from "./second-factor.ts";
import { createSecondFactorEnrollment, type SecondFactorEnrollment } from "./second-factor-enrollment.ts";
import { hasSecondFactor } from "./second-factor-record.ts";
import { createSessionAdministration, type SessionAdministration } from "./session-administration.ts";
import { createSessions, sessionCookie } from "./sessions.ts";
import {
  addressOf,
  createSignIn,
  hasExpiredUnused,
  type PasswordSettings,
  type PasswordSignIn,
  type SignIn,
} from "./sign-in.ts";
import { createSignInFailures } from "./sign-in-failures.ts";
import { createStepUp, type StepUp } from "./step-up.ts";
import { createTokens, keyedHash } from "./tokens.ts";
import { createTotpSecrets } from "./totp.ts";
import {
  isAdministrator,
  newRevision,
  type ProviderSession,
  revokedTokenMembers,
  type UserRow,
  unexpiredRevocations,
  userKey,
} from "./user.ts";
import { createUsers } from "./users.ts";
import { entraView, userView } from "./views.ts";

/**
 * The access module: users, passwords, access tokens, sessions and API tokens. The HTTP layer calls it to authenticate each
 * request, and the endpoints under /auth call it to sign users in and out and to manage them.
 */
export interface Access {
  /** Signs in with a password and returns a token: see `SignIn`. */
  signIn: SignIn["signIn"];
  /** Signs in with a password and returns a session cookie: see `SignIn`. */
  signInToSession: SignIn["signInToSession"];
  /** The addresses with a recent successful sign-in. Sign-ins from them don't wait behind those from other addresses. */
  recentAddresses: Pick<RecentAddresses, "has">;
  /**
   * Sets the password of the bootstrap administrator for the deployer, once. Returns the administrator's username.
   *
   * @throws {Problem} conflict, forbidden, unavailable, invalidRequest.
   */
  setFirstPassword(given: FirstPassword, caller: Caller): Promise<string>;
  /**
   * Revokes the actor's current token or session, or all of them, on every instance at once.
   *
   * @returns The session at the identity provider, if the actor's current session is by single sign-on. That session stays active.
   */
  signOut(actor: Actor, scope: SignOutScope, caller: Caller): Promise<ProviderSession | undefined>;
  /**
   * Returns the actor that a credential belongs to, or the problem with which to reject the request (401, for tokens of Entra
   * also 403 and 503). Costs one uncached read of the user's row, and one write when a session is extended or an API token is
   * used for the first time on a day. A token of Entra is checked without storage, so this service can't revoke it before it
   * expires.
   */
  authenticate(credential: Credential): Promise<Actor | Problem>;
  /** The cookie that makes a browser delete its session cookie. */
  noSession: Cookie;
  /**
   * Changes the actor's password, and revokes all tokens and sessions of the actor; API tokens only if `apiTokens` is set.
   *
   * @throws {Problem} invalidRequest (a wrong current or a weak new password), tooManyAttempts, conflict, rateLimited.
   */
  changePassword(actor: Actor, change: PasswordChange, caller: Caller): Promise<void>;
  /** Returns the signed-in caller, as GET /auth/me shows it. @throws {Problem} notFound if the user was deleted */
  me(actor: Actor): Promise<Principal>;
  users: Administration;
  identities: Pick<Identities, "refusals" | "allow">;
  apiTokens: ApiTokens;
  secondFactor: SecondFactorEnrollment;
  stepUp: StepUp;
  administrators: Administrators;
  sessions: SessionAdministration;
  federated: FederatedSignIn;
  /**
   * Returns true if the bootstrap administrator is an active administrator with a password, who can restore access for others.
   * Costs one read of the user's row.
   */
  hasBootstrapAdministrator(): Promise<boolean>;
  /** Deletes expired counts of failed sign-ins, expired sessions and expired API tokens. */
  cleanUp(): Promise<void>;
}

/** Scope of a sign-out: the current token or session, or all tokens and sessions of the user. */
export interface SignOutScope {
  /** True to revoke all tokens and sessions. */
  everywhere: boolean;
  /** True to revoke the API tokens too. Requires `everywhere`. */
  apiTokens: boolean;
}

/** A change of the caller's own password. */
export interface PasswordChange {
  currentPassword: string;
  newPassword: string;
  /** True to revoke the API tokens too. */
  apiTokens: boolean;
}

/** The services and settings that `createAccess` needs. */
export interface AccessDependencies {
  tables: Tables;
  config: Pick<
    Config,
    | "JWT_SIGNING_KEYS"
    | "JWT_ISSUER"
    | "JWT_AUDIENCE"
    | "BOOTSTRAP_ADMIN_USERNAME"
    | "BOOTSTRAP_ADMIN_PASSWORD"
    | "DEPLOYER_OBJECT_ID"
    | "SERVICE_KEY_VAULT_ID"
    | "OPERATOR_ADDRESSES_SET"
    | "SSO_TOKEN_MAX_IDLE_DAYS"
    | "PUBLIC_BASE_URL"
  >;
  clock: Clock;
  randomness: Randomness;
  audit: Audit;
  log: Logger;
  /**
   * Limits sign-ins per username, successful or not, from addresses at which the user has not signed in recently. Its keys are
   * keyed hashes of usernames.
   */
  limiter: RateLimiter;
  passwords?: Passwords;
  /** Returns true if single sign-on assigns the roles of its users. Default: false. */
  roleMapped?: () => Promise<boolean>;
  /** Decides whether a user may sign in with a password now. Default: always allowed. */
  passwordSignIn?: PasswordSignIn;
  /** The settings of passwords that administrators set. Default: the defaults of these settings. */
  passwordSettings?: PasswordSettings;
  /** Keys that encrypt TOTP secrets. Without them, users can't enroll an authenticator app. */
  secondFactorKeys?: RowKeys | undefined;
  /** Reads role assignments, for the first password. Default: finds no role assignment. */
  readAssignment?: (id: string) => Promise<AssignmentRecord | undefined>;
  /** Verifies access tokens of Entra. Without it, none is accepted. */
  entra?: EntraTokens;
}

/**
 * Milliseconds after which a sign-in checks again that the bootstrap administrator exists, which costs one read. If storage was
 * emptied under a running process, no other user could sign in.
 */
const BOOTSTRAP_CHECK_MS = 10 * SECOND_MS;

const DEFAULT_PASSWORD_SETTINGS = {
  requirePasswordChange: DEFINITIONS.requirePasswordChange.default,
  unusedPasswordDays: DEFINITIONS.unusedPasswordDays.default,
  requireSecondFactor: DEFINITIONS.requireSecondFactor.default,
};

/** Creates the access module: connects users, tokens, sessions and the bootstrap administrator. */
export function createAccess(deps: AccessDependencies): Access {
  const { tables, config, clock, randomness, audit, limiter } = deps;
  const passwords = deps.passwords ?? createPasswords({ randomness });
  const tokens = createTokens({ config, clock, randomness });
  const passwordSettings: PasswordSettings = deps.passwordSettings ?? (async () => DEFAULT_PASSWORD_SETTINGS);
  const { BOOTSTRAP_ADMIN_USERNAME: bootstrapUsername } = config;
  const reservedUsernames = bootstrapUsername === undefined ? [] : [userKey(bootstrapUsername)];
  const passwordRules = { passwordSettings, clock, bootstrapUser: reservedUsernames[0] };
  const users = createUsers(tables, (user) => hasExpiredUnused(user, passwordRules));
  // A new first signing key changes all hashes, so the service ignores the earlier failure counts. They expire within a day
  // anyway.
  const hashName = (text: string) => keyedHash(config.JWT_SIGNING_KEYS[0]!.key, "sign-in", text);
  const failures = createSignInFailures({ tables, clock, hash: hashName });
  const addresses = createKnownAddresses(config.JWT_SIGNING_KEYS);
  const recentAddresses = createRecentAddresses();
  const sessions = createSessions({ tables, users, clock, randomness, cookieName: SESSION_COOKIE });
  const maxIdleDays = config.SSO_TOKEN_MAX_IDLE_DAYS;
  const apiTokens = createApiTokens({ tables, users, audit, clock, randomness, maxIdleDays });
  const identities = createIdentities({ tables, audit, clock });
  const roleMapped = deps.roleMapped ?? (async () => false);
  const passwordSignIn: PasswordSignIn = deps.passwordSignIn ?? (async () => "allowed");

  const totpSecrets = createTotpSecrets({ keys: deps.secondFactorKeys, randomness });
  const passkeys = createPasskeys({ config, clock, randomness });
  const verification = createSecondFactorVerification({ totpSecrets, passkeys, clock, randomness });
  const identity = createIdentityConfirmation({ users, passwords, failures, addresses, secondFactor: verification });
  const { signIn, signInToSession } = createSignIn({
    ...passwordRules,
    users,
    passwords,
    tokens,
    sessions,
    failures,
    addresses,
    recentAddresses,
    limiter,
    audit,
    hash: hashName,
    passwordSignIn,
    secondFactor: verification,
  });

  /**
   * Returns true if a user who signed in with the password must enroll a second factor first. False if this deployment supports
   * no second factor: otherwise administrators could not sign in to change the setting. While the stored settings can't be read,
   * every user without a second factor must enroll one. Administrators can then still sign in and find the unreadable row in the
   * audit log.
   */
  async function mustEnroll(user: UserRow): Promise<boolean> {
    if (hasSecondFactor(user) || !(totpSecrets.available || passkeys.available)) return false;
    try {
      const { requireSecondFactor } = await passwordSettings();
      return requireSecondFactor === "everyone" || (requireSecondFactor === "administrators" && user.role === "admin");
    } catch (error) {
      if (error instanceof StorageCorrupt) return true;
      throw error;
    }
  }

  const ensureBootstrapAdministrator = createBootstrapCheck(
    { ...deps, passwords, clearFailures: failures.clear },
    reservedUsernames[0],
  );

  const setFirstPassword = createFirstPassword({
    ...deps,
    readAssignment: deps.readAssignment ?? (async () => undefined),
    passwords,
    ensureBootstrapAdministrator: async () =>
      (await ensureBootstrapAdministrator(BOOTSTRAP_CHECK_MS))(bootstrapUsername ?? ""),
    clearFailures: failures.clear,
  });

  async function readUser(actor: Actor): Promise<UserRow> {
    const user = await users.find(actor.username);
    if (!user) throw notFound("This user");
    return user;
  }

  return {
    async signIn(credentials, caller) {
      (await ensureBootstrapAdministrator(BOOTSTRAP_CHECK_MS))(credentials.username);
      return await signIn(credentials, caller);
    },

    async signInToSession(credentials, caller, userAgent) {
      (await ensureBootstrapAdministrator(BOOTSTRAP_CHECK_MS))(credentials.username);
      return await signInToSession(credentials, caller, userAgent);
    },

    recentAddresses,
    setFirstPassword,

    noSession: sessionCookie(SESSION_COOKIE, "", 0),

    async signOut(actor, scope, caller) {
      const user = await users.find(actor.username);
      if (!user) return undefined;
      const event = {
        type: "user.signedOut",
        caller,
        target: { type: "user", id: user.rowKey },
        details: { ...scope },
      };
      await audited(audit, event, async () => {
        // The endpoint rejects API tokens and tokens of Entra, which have no sign-in to end.
        const { credential } = actor;
        if (scope.everywhere) {
          await users.change(user, (latest) => ({
            ...latest,
            ...revokedTokenMembers(latest, clock),
            ...clearedApiTokens(scope),
          }));
        } else if (credential.kind === "session") await sessions.end(user, credential.id);
        else if (credential.kind === "token") {
          const revoked = { id: credential.id, until: credential.expiresAt.toISOString() };
          await users.change(user, (latest) => ({
            ...latest,
            revokedTokens: [...unexpiredRevocations(latest, clock), revoked],
          }));
        }
      });
      const current = user.sessions?.find(
        ({ id }) => actor.credential.kind === "session" && id === actor.credential.id,
      );
      if (current?.by !== "sso") return undefined;
      // A session of an earlier version has no details of the provider's session.
      return current.provider ?? (user.sso && { issuer: user.sso.issuer });
    },

    authenticate: createAuthentication({
      tokens,
      users,
      sessions,
      apiTokens,
      entra: deps.entra,
      mustEnroll,
      clock,
      // Without a maximum age: after the first success, requests with a token or session don't check again.
      ensureBootstrapAdministrator: () => ensureBootstrapAdministrator(Infinity),
    }),

    async changePassword(actor, change, caller) {
      const { currentPassword: current, newPassword: next } = change;
      if (next === current) throw invalidMember("newPassword", "must differ from the current password");
      const user = await readUser(actor);
      if (user.passwordHash === undefined) {
        throw new Problem("conflict", "You sign in with single sign-on and have no password here.");
      }
      const event = {
        type: "user.passwordChanged",
        caller,
        target: { type: "user", id: user.rowKey },
        details: { apiTokens: change.apiTokens },
      };
      if (!(await identity.isPasswordOf(user, current, caller))) {
        await audit.refused({ ...event, outcome: "refused", details: { reason: "wrong current password" } });
        throw invalidMember("currentPassword", "is not your current password");
      }
      await rejectWeakPassword(next, user, "newPassword");
      const passwordHash = await passwords.hash(next);
      await audited(audit, event, async () => {
        const changed = await users.change(user, (latest) => {
          if (latest.passwordHash !== user.passwordHash) {
            throw new Problem("conflict", "The password was changed in the meantime. Sign in again.");
          }
          // Someone who knew the old password may have known addresses. Keep only the address of this change.
          const knownAddresses = addresses.with({ ...latest, knownAddresses: [] }, addressOf(caller), clock.now());
          const revocations = { ...revokedTokenMembers(latest, clock), ...clearedApiTokens(change) };
          return {
            ...latest,
            passwordHash,
            mustChangePassword: false,
            unusedPasswordSince: undefined,
            knownAddresses,
            ...revocations,
            ...newRevision(deps),
          };
        });
        if (!changed) throw notFound("This user");
      });
    },

    async me(actor) {
      // The role of the credential, not of the user: an API token may have a lower role than its user.
      const { role, mustEnrollSecondFactor = false } = actor;
      const operatorAddressesSet = role === "admin" ? config.OPERATOR_ADDRESSES_SET : undefined;
      const operators = operatorAddressesSet === undefined ? {} : { operatorAddressesSet };
      if (actor.credential.kind === "entra") return { ...entraView(actor), ...operators };
      const user = await readUser(actor);
      const secondFactorEnrolled = hasSecondFactor(user);
      return { ...userView(user), role, secondFactorEnrolled, mustEnrollSecondFactor, ...operators };
    },
    users: createAdministration({
      users,
      identities,
      passwords,
      failures,
      audit,
      clock,
      randomness,
      roleMapped,
      passwordSignIn,
      passwordSettings,
    }),
    identities,
    apiTokens,
    secondFactor: createSecondFactorEnrollment({
      users,
      identity,
      verification,
      totpSecrets,
      passkeys,
      audit,
      clock,
      randomness,
    }),
    stepUp: createStepUp({ users, identity, verification, audit, clock }),
    administrators: createAdministrators({ tables, users }),
    sessions: createSessionAdministration({ users, sessions, audit }),
    federated: createFederatedSignIn({
      tables,
      users,
      sessions,
      recentAddresses,
      audit,
      clock,
      randomness,
      reserved: reservedUsernames,
    }),

    async hasBootstrapAdministrator() {
      const user = bootstrapUsername === undefined ? undefined : await users.find(bootstrapUsername);
      return isAdministrator(user);
    },

    async cleanUp() {
      await failures.cleanUp();
      await sessions.cleanUp();
      await apiTokens.cleanUp();
    },
  };
}

/** Returns the members of the user's row that revoke the API tokens, if requested. */
const clearedApiTokens = ({ apiTokens }: { apiTokens: boolean }) => (apiTokens ? { apiTokens: [] } : {});

function invalidMember(name: string, message: string): Problem {
  const path = `body.${name}`;
  return new Problem("invalidRequest", `${path} ${message}.`, { errors: [{ path, message }] });
}
