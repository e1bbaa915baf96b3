import { timingSafeEqual } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { entity } from "../platform/storage/entity.ts";
import { insert, remove, replace, StorageCorrupt, type Tables } from "../platform/storage/tables.ts";
import type { Passwords } from "./passwords.ts";
import { keyedHash } from "./tokens.ts";
import {
  BOOTSTRAP_KEY,
  DIRECTORY_KEY,
  Directory,
  Identity,
  identityKey,
  newRevision,
  revokedTokenMembers,
  USERS_PARTITION,
  User,
  type UserRecord,
  userKey,
} from "./user.ts";
import { userOperations } from "./users.ts";

/** The marker row: which configured username and password the bootstrap administrator was last created or reset with. */
const marker = z.object({
  username: z.string(),
  /**
   * ID of the signing key with which `proof` was computed, a keyed hash of username and password. It lets a process recognize
   * an unchanged configuration with one read and without computing a password hash.
   */
  kid: z.string(),
  proof: z.string(),
  /**
   * Hash of the configured password. It replaces `proof` once the signing key of `proof` is removed. The hash in the user's row
   * can't do that, because it changes when the user changes the password.
   */
  passwordHash: z.string(),
  /** Time at which the deployer set the first password (first-password.ts), which works once. */
  exchangedAt: z.string().optional(),
});
type Marker = z.infer<typeof marker>;
/** Signed and listed, like the users. `adopted`: an unsigned row of an earlier version is accepted until it is signed. */
export const BootstrapMarker = entity("Users", marker, { signed: "adopted", listed: true });

/** Attempts to write while other instances start and write at the same time. */
const ATTEMPTS = 20;

interface Dependencies {
  tables: Tables;
  config: Pick<Config, "BOOTSTRAP_ADMIN_USERNAME" | "BOOTSTRAP_ADMIN_PASSWORD" | "JWT_SIGNING_KEYS">;
  clock: Clock;
  randomness: Randomness;
  audit: Audit;
  log: Logger;
  passwords: Passwords;
  /** Deletes the failed sign-ins of a username. */
  clearFailures(username: string): Promise<void>;
}

/**
 * Creates the bootstrap administrator: the user that the configuration names (BOOTSTRAP_ADMIN_USERNAME). If the configured
 * username or password changed since the user was last created or reset, resets the user, which restores access for the owner of
 * the configuration. A reset also unlinks the user's SSO identity and removes the second factor. Otherwise a deleted or changed
 * user stays unchanged. The marker row and the user are written in one transaction, so that concurrent instances write them once.
 */
async function bootstrapAdministrator(deps: Dependencies): Promise<void> {
  const { tables, config, clock, randomness, audit, log, passwords } = deps;
  const {
    BOOTSTRAP_ADMIN_USERNAME: username,
    BOOTSTRAP_ADMIN_PASSWORD: password,
    JWT_SIGNING_KEYS: signingKeys,
  } = config;
  if (username === undefined || password === undefined) return;
  const key = userKey(username);
  const proofWith = (secret: Uint8Array) => keyedHash(secret, "bootstrap", `${key}\0${password}`);
  const newestProof = { username: key, kid: signingKeys[0]!.kid, proof: proofWith(signingKeys[0]!.key) };

  /** Returns true if the stored proof matches the configured username and password. */
  const isUnchanged = (stored: Marker): boolean => {
    const secret = signingKeys.find(({ kid }) => kid === stored.kid)?.key;
    return secret !== undefined && timingSafeEqual(Buffer.from(proofWith(secret)), Buffer.from(stored.proof));
  };
  let passwordHash: string | undefined;

  await repeatOnConflict(async () => {
    const stored = await tables.get(BootstrapMarker, USERS_PARTITION, BOOTSTRAP_KEY);
    const hasValidProof = stored !== undefined && isUnchanged(stored);
    if (hasValidProof && stored.kid === newestProof.kid) return;
    // The configured user and password are unchanged, but an older or removed signing key computed the proof: only renew the
    // proof.
    if (
      stored &&
      (hasValidProof || (stored.username === key && (await passwords.verify(password, stored.passwordHash))))
    ) {
      await tables.replace(BootstrapMarker, { ...stored, ...newestProof });
      return;
    }
    passwordHash ??= await passwords.hash(password);
    const [user, directory] = await Promise.all([
      tables.get(User, USERS_PARTITION, key),
      tables.get(Directory, USERS_PARTITION, DIRECTORY_KEY),
    ]);
    const identity = user?.sso && (await tables.get(Identity, USERS_PARTITION, identityKey(user.sso)));
    const timestamp = clock.now().toISOString();
    const administrator: UserRecord = {
      ...(!user && { uid: randomness.ulid(clock.now()) }),
      username,
      createdAt: timestamp,
      createdBy: "system",
      tokensValidFrom: timestamp,
      revokedTokens: [],
      // An existing user keeps its own values of the members above. The members below are reset.
      ...user,
      ...(user && revokedTokenMembers(user, clock)),
      ...newRevision(deps),
      // The reset user belongs to the owner of the configuration, not to the person who signed in with SSO.
      source: "local",
      sso: undefined,
      role: "admin",
      state: "active",
      passwordHash,
      mustChangePassword: false,
      unusedPasswordSince: undefined,
      secondFactor: undefined,
      apiTokens: [],
      knownAddresses: [],
    };
    const nextMarker = { ...newestProof, passwordHash, exchangedAt: stored?.exchangedAt };
    const caller: Caller = { actor: "system", requestId: randomness.ulid(clock.now()) };
    const event = {
      type: user ? "user.bootstrapReset" : "user.bootstrapped",
      target: { type: "user", id: key },
      caller,
    };
    await audited(audit, event, async () => {
      await tables.transaction(User.table, USERS_PARTITION, [
        ...userOperations(user, administrator, directory),
        ...(identity?.user === key ? [remove(Identity, identity.rowKey, identity.etag)] : []),
        stored
          ? replace(BootstrapMarker, BOOTSTRAP_KEY, nextMarker, stored.etag)
          : insert(BootstrapMarker, BOOTSTRAP_KEY, nextMarker),
      ]);
      await deps.clearFailures(key);
    });
    log.warn(user ? "Reset the bootstrap administrator" : "Created the bootstrap administrator", { username });
  }, ATTEMPTS);
}

/**
 * Creates the function that creates or resets the bootstrap administrator before the first sign-in of a process, and again after
 * `maxAgeMs` or after a failure.
 *
 * @param bootstrapUser - Result of `userKey` for the configured username; undefined if there is none.
 * @returns a function that returns a check of the user who signs in. If a stored row is unreadable, the service can't tell
 *   whether the configured password changed, so the password and tokens of the bootstrap administrator may be outdated. The check
 *   then throws `StorageCorrupt` for this user.
 */
export function createBootstrapCheck(deps: Dependencies, bootstrapUser: string | undefined) {
  let last: { startedAtMs: number; done: Promise<void> } | undefined;

  return async (maxAgeMs: number): Promise<(username: string) => void> => {
    const nowMs = deps.clock.now().getTime();
    if (!last || Math.abs(nowMs - last.startedAtMs) > maxAgeMs)
      last = { startedAtMs: nowMs, done: bootstrapAdministrator(deps) };
    const current = last;
    try {
      await current.done;
      return () => {};
    } catch (error) {
      if (last === current) last = undefined;
      if (!(error instanceof StorageCorrupt)) throw error;
      return (username) => {
        if (userKey(username) === bootstrapUser) throw error;
      };
    }
  };
}
