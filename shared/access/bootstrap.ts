import { timingSafeEqual } from "node:crypto";
import * as z from "zod";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import type { Clock, Logger, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { entity } from "../platform/storage/entity.ts";
import { insert, remove, replace, type Tables } from "../platform/storage/tables.ts";
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

/** The username and password in the configuration when the bootstrap administrator was last created or reset. */
const mark = z.object({
  username: z.string(),
  /**
   * `proof` is the keyed hash of username and password, made with this signing key. With it a start costs one read and no
   * scrypt.
   */
  kid: z.string(),
  proof: z.string(),
  /**
   * Used when the signing key was removed. Not the hash in the user's row, which changes when the user changes the password.
   */
  passwordHash: z.string(),
});
type Mark = z.infer<typeof mark>;
const BootstrapMark = entity("Users", mark);

/** Attempts while other instances start at the same time. */
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
 * Creates the administrator that the configuration names. Resets it if the configured username or password changed since it was
 * last created or reset: this restores access for anyone who controls the configuration. A reset also unlinks SSO identities
 * from the user. Otherwise a user that was deleted or changed stays so. The marker row and the user are written in one
 * transaction, so instances can't race.
 */
export async function bootstrapAdministrator(deps: Dependencies): Promise<void> {
  const { tables, config, clock, randomness, audit, log, passwords } = deps;
  const { BOOTSTRAP_ADMIN_USERNAME: username, BOOTSTRAP_ADMIN_PASSWORD: password, JWT_SIGNING_KEYS: ring } = config;
  if (username === undefined || password === undefined) return;
  const key = userKey(username);
  const proofWith = (secret: Uint8Array) => keyedHash(secret, "bootstrap", `${key}\0${password}`);
  const newest = { username: key, kid: ring[0]!.kid, proof: proofWith(ring[0]!.key) };

  const provenBy = (stored: Mark): boolean => {
    const secret = ring.find(({ kid }) => kid === stored.kid)?.key;
    return secret !== undefined && timingSafeEqual(Buffer.from(proofWith(secret)), Buffer.from(stored.proof));
  };
  let passwordHash: string | undefined;

  await repeatOnConflict(async () => {
    const stored = await tables.get(BootstrapMark, USERS_PARTITION, BOOTSTRAP_KEY);
    const proven = stored !== undefined && provenBy(stored);
    if (proven && stored.kid === newest.kid) return;
    if (stored && (proven || (stored.username === key && (await passwords.verify(password, stored.passwordHash))))) {
      await tables.replace(BootstrapMark, { ...stored, ...newest });
      return;
    }
    passwordHash ??= await passwords.hash(password);
    const [user, directory] = await Promise.all([
      tables.get(User, USERS_PARTITION, key),
      tables.get(Directory, USERS_PARTITION, DIRECTORY_KEY),
    ]);
    const identity = user?.sso && (await tables.get(Identity, USERS_PARTITION, identityKey(user.sso)));
    const now = clock.now().toISOString();
    const administrator: UserRecord = {
      ...(!user && { uid: randomness.ulid(clock.now()) }),
      username,
      createdAt: now,
      createdBy: "system",
      tokensValidFrom: now,
      revokedTokens: [],
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
      apiTokens: [],
      knownAddresses: [],
    };
    const nextMark = { ...newest, passwordHash };
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
          ? replace(BootstrapMark, BOOTSTRAP_KEY, nextMark, stored.etag)
          : insert(BootstrapMark, BOOTSTRAP_KEY, nextMark),
      ]);
      await deps.clearFailures(key);
    });
    log.warn(user ? "Reset the bootstrap administrator" : "Created the bootstrap administrator", { username });
  }, ATTEMPTS);
}
