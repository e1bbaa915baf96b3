import { createHash, timingSafeEqual } from "node:crypto";
import type { Audit } from "../audit/audit.ts";
import { audited } from "../audit/audited.ts";
import { CloudFailure } from "../platform/azure/failure.ts";
import type { AssignmentRecord } from "../platform/azure/role-assignments.ts";
import type { Config } from "../platform/config/config.ts";
import type { Caller } from "../platform/http/endpoint.ts";
import { Problem, retryLater } from "../platform/http/problem.ts";
import type { Clock, Randomness } from "../platform/runtime.ts";
import { repeatOnConflict } from "../platform/storage/conflict.ts";
import { replace, type Tables } from "../platform/storage/tables.ts";
import { MINUTE_MS } from "../platform/time.ts";
import { BootstrapMarker } from "./bootstrap.ts";
import { rejectWeakPassword } from "./password-policy.ts";
import type { Passwords } from "./passwords.ts";
import {
  BOOTSTRAP_KEY,
  DIRECTORY_KEY,
  Directory,
  newRevision,
  revokedTokenMembers,
  USERS_PARTITION,
  User,
  type UserRow,
  userKey,
} from "./user.ts";
import { userOperations } from "./users.ts";

/*
 * The first password: the person who deployed the service exchanges the sign-in to Azure for a password of the bootstrap
 * administrator. The deployer proves the identity by a role assignment on the service's key vault. Azure Resource Manager
 * records who created it. Its description commits to a secret (the verifier) that only the deployer knows. The service receives
 * no access token. docs/decisions/0026-first-password.md has the alternatives.
 */

/** The proof, and the password to set. */
export interface FirstPassword {
  /** Name of the role assignment on the service's key vault, a GUID. */
  roleAssignment: string;
  /** Random bytes whose SHA-256 is in the assignment's description, in base64url. */
  verifier: string;
  password: string;
}

/** Start of the description of the role assignment. The hash of the verifier in base64url follows. */
export const DESCRIPTION_PREFIX = "first-password:";

/**
 * Age at which an assignment no longer proves anything, because its creator may have left it behind. The deployer's command
 * needs about a minute.
 */
const MAX_AGE_MS = 15 * MINUTE_MS;
/** Maximum time by which the clock of Azure may be ahead of the service's. */
const CLOCK_SKEW_MS = 5 * MINUTE_MS;
/** Attempts to write while other requests write the same rows. As many as for the bootstrap administrator (bootstrap.ts). */
const ATTEMPTS = 20;

interface Dependencies {
  tables: Tables;
  config: Pick<Config, "BOOTSTRAP_ADMIN_USERNAME" | "DEPLOYER_OBJECT_ID" | "SERVICE_KEY_VAULT_ID">;
  /** Reads a role assignment by its resource id. Undefined if it does not exist. @throws {CloudFailure} */
  readAssignment: (id: string) => Promise<AssignmentRecord | undefined>;
  clock: Clock;
  randomness: Randomness;
  audit: Audit;
  passwords: Passwords;
  /** Creates the bootstrap administrator if there is none yet. */
  ensureBootstrapAdministrator: () => Promise<void>;
  /** Deletes the failed sign-ins of a username. */
  clearFailures(username: string): Promise<void>;
}

/**
 * Creates the function that sets the first password. It works once for a store, and only while the bootstrap administrator is
 * the only user and never signed in.
 *
 * @returns a function that returns the name of the bootstrap administrator. It throws {Problem} conflict if the exchange is not
 * possible (any more), forbidden if the proof is not valid, unavailable if the role assignment can't be read yet, and
 * invalidRequest for a weak password.
 */
export function createFirstPassword(deps: Dependencies) {
  const { tables, config, clock, audit, passwords } = deps;
  const { BOOTSTRAP_ADMIN_USERNAME: username, DEPLOYER_OBJECT_ID: deployer, SERVICE_KEY_VAULT_ID: vaultId } = config;

  return async (given: FirstPassword, caller: Caller): Promise<string> => {
    if (username === undefined || deployer === undefined || vaultId === undefined) {
      throw new Problem(
        "conflict",
        "This deployment names no deployer (DEPLOYER_OBJECT_ID, SERVICE_KEY_VAULT_ID). Sign in with the bootstrap password.",
      );
    }
    await deps.ensureBootstrapAdministrator();
    // Before the proof is read, so that requests to a service in use never cause calls to Azure.
    const { user } = await readUnused(tables, username);
    const target = { type: "user", id: user.rowKey };
    const details = { roleAssignment: given.roleAssignment, deployer };
    const event = { type: "user.firstPasswordSet", caller, target, details };

    const id = `${vaultId}/providers/Microsoft.Authorization/roleAssignments/${given.roleAssignment}`;
    const assignment = await deps.readAssignment(id).catch((error: unknown) => {
      // The message names the vault, and this endpoint is open to anyone.
      if (error instanceof CloudFailure) throw unreadable(error.code);
      throw error;
    });
    if (assignment === undefined) throw unreadable("notFound");
    const rejectionReason = rejectionReasonOf(assignment, given.verifier, { deployer, vaultId, now: clock.now() });
    if (rejectionReason !== undefined) {
      await audit.refused({ ...event, outcome: "refused", details: { ...details, reason: rejectionReason } });
      throw new Problem("forbidden", `The role assignment proves nothing: ${rejectionReason}.`);
    }
    await rejectWeakPassword(given.password, user, "password");
    const passwordHash = await passwords.hash(given.password);
    await audited(audit, event, async () => {
      await repeatOnConflict(async () => {
        const { user: latest, marker, directory } = await readUnused(tables, username);
        const changed = {
          ...latest,
          ...revokedTokenMembers(latest, clock),
          ...newRevision(deps),
          passwordHash,
          mustChangePassword: false,
          unusedPasswordSince: undefined,
        };
        await tables.transaction(User.table, USERS_PARTITION, [
          ...userOperations(latest, changed, directory),
          replace(BootstrapMarker, BOOTSTRAP_KEY, { ...marker, exchangedAt: clock.now().toISOString() }, marker.etag),
        ]);
      }, ATTEMPTS);
      await deps.clearFailures(user.rowKey);
    });
    return user.username;
  };
}

const unreadable = (code: string): Problem =>
  retryLater("unavailable", `Azure Resource Manager does not show this role assignment yet (${code}).`, 5);

/**
 * Reads the rows of a service that no person has used yet: the bootstrap administrator, its marker and the number of users. The
 * marker is the row that remembers the configured bootstrap password, and that the first password was set (`exchangedAt`).
 *
 * @throws {Problem} conflict if the first password was set, an administrator signed in, or there is another user
 */
async function readUnused(tables: Tables, username: string) {
  const [user, marker, directory] = await Promise.all([
    tables.get(User, USERS_PARTITION, userKey(username)),
    tables.get(BootstrapMarker, USERS_PARTITION, BOOTSTRAP_KEY),
    tables.get(Directory, USERS_PARTITION, DIRECTORY_KEY),
  ]);
  const alreadyUsed = (reason: string) =>
    new Problem("conflict", `${reason} To reset the first administrator, use make-secrets with --password-stdin.`);
  if (marker?.exchangedAt !== undefined) throw alreadyUsed("The first password was set already.");
  if (!user || !marker || !isUntouched(user) || directory?.total !== 1) {
    throw alreadyUsed("An administrator has used this service already.");
  }
  return { user, marker, directory };
}

/** Returns whether the bootstrap administrator never signed in, and still has its role, its state and no SSO identity. */
const isUntouched = (user: UserRow): boolean =>
  user.role === "admin" &&
  user.state === "active" &&
  user.sso === undefined &&
  user.lastSignInAt === undefined &&
  user.lastSsoSignInAt === undefined;

/** Returns why a role assignment does not prove that the deployer sends the verifier. Undefined if it does. */
function rejectionReasonOf(
  { scope, description, createdBy, updatedBy, updatedOn }: AssignmentRecord,
  verifier: string,
  expected: { deployer: string; vaultId: string; now: Date },
): string | undefined {
  const isDeployer = (objectId: string | undefined) => objectId?.toLowerCase() === expected.deployer.toLowerCase();
  // Both must be the deployer, because anyone who may write assignments can change the description of an existing one.
  if (!isDeployer(createdBy) || !isDeployer(updatedBy)) return "another identity than the deployer wrote it";
  if (scope.toLowerCase() !== expected.vaultId.toLowerCase()) return "it is not on the service's key vault";
  const ageMs = expected.now.getTime() - Date.parse(updatedOn ?? "");
  // The condition is also true for a time that can't be parsed.
  if (!(ageMs <= MAX_AGE_MS && ageMs >= -CLOCK_SKEW_MS)) return "it was not written within the last 15 minutes";
  const commitment = `${DESCRIPTION_PREFIX}${createHash("sha256").update(verifier).digest("base64url")}`;
  const [stored, computed] = [Buffer.from(description ?? ""), Buffer.from(commitment)];
  if (stored.length !== computed.length || !timingSafeEqual(stored, computed)) return "it is for another verifier";
  return undefined;
}
