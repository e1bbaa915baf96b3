import { createHash } from "node:crypto";
import pMap from "p-map";
import * as z from "zod";
import type { Audit } from "../../audit/audit.ts";
import { audited } from "../../audit/audited.ts";
import { VAULTS, Vaults, vaultKey } from "../../inventory/vault.ts";
import { CloudFailure } from "../../platform/azure/failure.ts";
import { parseResourceId } from "../../platform/azure/resource-id.ts";
import { isServiceVault } from "../../platform/azure/service-key-vault.ts";
import type { VaultSecretsClients } from "../../platform/azure/vault-secrets.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Caller } from "../../platform/http/endpoint.ts";
import { invalidBody, notFound, type Problem } from "../../platform/http/problem.ts";
import type { Clock, Logger } from "../../platform/runtime.ts";
import { entity, type Row, withoutKeys } from "../../platform/storage/entity.ts";
import { keyEnd } from "../../platform/storage/keys.ts";
import { insert, type Operation, RowExists, type Tables } from "../../platform/storage/tables.ts";
import { failureIfDenied } from "../match-verification.ts";
import { conflict, throwAsProblem } from "../problems.ts";
import type { RotationRecord } from "../rotation.ts";
import { type Place, placeKey, type Target } from "../targets.ts";
import { writtenMatches } from "../written-places.ts";
import { findEngine } from "./engines.ts";
import type { LoginPair, LoginServers } from "./login-servers.ts";
import { type LoginValue, readLogin } from "./login-values.ts";

/**
 * Registrations: which two users of a database server alternate, and which vault secrets store them. An administrator registers
 * them, because no Azure resource lists the users of a database. A registration contains no password.
 */

const LoginPlace = z.object({
  vaultName: z.string(),
  secretName: z.string(),
  /** Resource ID of the vault. After this vault is deleted, another one may get its name. */
  vaultId: z.string(),
  /** User that the secret named, and its version, when the secret was last read: in `by` for whom. */
  user: z.string(),
  version: z.string(),
  comparedAt: z.string(),
  by: z.string(),
});
export type LoginPlace = z.infer<typeof LoginPlace>;

const DatabaseLogin = z.object({
  credentialId: z.string(),
  serverId: z.string(),
  database: z.string(),
  users: z.tuple([z.string(), z.string()]),
  signInAs: z.string(),
  places: z.array(LoginPlace),
  registeredAt: z.string(),
  registeredBy: z.string(),
});
export type DatabaseLogin = z.infer<typeof DatabaseLogin>;

/** Registrations by their ID. */
export const DatabaseLogins = entity("RotationMatches", DatabaseLogin, { signed: true });
export const DATABASE_LOGINS = "databaseLogins";
/** The registration of a user of a server, so that no user is in two pairs. By the hash of both. */
export const RegisteredUsers = entity("RotationMatches", z.object({ credentialId: z.string() }));
const USER_PREFIX = "user|";
const userKey = (serverId: string, user: string): string =>
  `${USER_PREFIX}${hashOf(`${serverId.toLowerCase()}\n${user}`)}`;

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 32);
/** The ID of a registration: a hash of the server and its users, so that it can be registered again. */
export const LOGIN_ID = /^db-[0-9a-f]{32}$/;
const loginId = (serverId: string, users: readonly string[]): string =>
  `db-${hashOf([serverId.toLowerCase(), ...users.toSorted()].join("\n"))}`;

/** What a registered vault secret stores now. */
export interface ComparedLogin extends Target {
  /** Undefined if the secret can't be rotated. It contains the password: do not store or log it. */
  login: LoginValue | undefined;
  version: string | undefined;
  /** Why the secret can't be rotated, as the end of a sentence "The secret …". */
  problem: string | undefined;
}

export interface RegistrationRequest {
  serverId: string;
  database: string;
  users: readonly [string, string];
  signInAs: string;
  places: readonly Place[];
}

/** Registers pairs of database users, and reads the vault secrets that store them. */
export interface LoginRegistrations {
  /**
   * Returns what a registration lacks, as sentences, and the login that it would store.
   *
   * @throws {Problem} invalidRequest; unavailable
   */
  check(request: RegistrationRequest, caller: Caller): Promise<{ login: DatabaseLogin; missing: string[] }>;
  /** @throws {Problem} invalidRequest; unavailable; conflict if something is missing, or a user belongs to another registration. */
  register(request: RegistrationRequest, caller: Caller): Promise<DatabaseLogin>;
  /** Returns all registrations. Leaves out rows that this service did not sign. */
  all(): Promise<DatabaseLogin[]>;
  /** @throws {Problem} notFound, also for a row that this service did not sign. */
  get(credentialId: string): Promise<DatabaseLogin>;
  /** Forgets a registration, also one that this service did not sign. Changes nothing on the server. @throws {Problem} notFound */
  remove(credentialId: string, caller: Caller): Promise<void>;
  /**
   * Reads the secrets of a registration, and returns what each stores now.
   *
   * @throws {CloudFailure} if a secret can't be read now.
   */
  comparePlaces(login: Pick<DatabaseLogin, "serverId" | "users" | "places">): Promise<ComparedLogin[]>;
  /** Returns whether the subscription of a server is monitored. */
  isMonitored(serverId: string): Promise<boolean>;
  /** Stores the places that a completed rotation wrote. Safe to repeat. */
  recordWrittenPlaces(rotation: RotationRecord, at: Date): Promise<void>;
}

const PARALLEL = 4;

export function createLoginRegistrations(deps: {
  tables: Tables;
  config: Pick<Config, "SERVICE_KEY_VAULT_URL">;
  vaults: VaultSecretsClients;
  servers: LoginServers;
  /** Whether a subscription is monitored. */
  isWatched: (subscriptionId: string) => Promise<boolean>;
  audit: Pick<Audit, "append">;
  clock: Clock;
  log: Logger;
}): LoginRegistrations {
  const { tables, config, vaults, servers, isWatched, audit, clock, log } = deps;

  const isMonitored = (serverId: string) => isWatched(parseResourceId(serverId)?.subscriptionId.toLowerCase() ?? "");

  async function requireVault({ vaultName, secretName }: Place): Promise<LoginPlace> {
    const vault = isServiceVault(config, vaultName) ? undefined : await tables.get(Vaults, VAULTS, vaultKey(vaultName));
    if (vault === undefined) throw invalidBody("places", `${vaultName} is no scanned key vault`);
    return { vaultName: vault.name, secretName, vaultId: vault.id, user: "", version: "", comparedAt: "", by: "" };
  }

  async function comparePlace(
    { vaultName, secretName, vaultId }: LoginPlace,
    { users }: Pick<DatabaseLogin, "users">,
    host: string,
  ): Promise<ComparedLogin> {
    const vault = await tables.get(Vaults, VAULTS, vaultKey(vaultName));
    const target = {
      vaultName,
      secretName,
      vaultId,
      vaultUri: vault?.vaultUri ?? "",
      // An administrator registered the place. A rotation tests its value before it writes the place.
      knownAs: "rotated" as const,
      confidence: "likely" as const,
    };
    const refused = (problem: string, rest: Partial<ComparedLogin> = {}): ComparedLogin => ({
      ...target,
      login: undefined,
      version: undefined,
      problem,
      ...rest,
    });
    if (vault === undefined || vault.id.toLowerCase() !== vaultId.toLowerCase() || isServiceVault(config, vaultName))
      return refused("is in a key vault that was replaced or is no longer scanned");
    const current = await failureIfDenied(vaults.open({ name: vaultName, vaultUri: vault.vaultUri }).read(secretName));
    if (current instanceof CloudFailure)
      return refused(`can't be read (${current.code}). ${current.remedy}`, { unreadable: true });
    if (current === undefined) return refused("does not exist");
    if (current.managed) return refused("belongs to a certificate");
    const { login, problem } = readLogin(current.value);
    if (login === undefined) return refused(problem);
    if (!users.includes(login.user)) return refused("names a user that is not one of the two registered users");
    if (login.host !== undefined && login.host !== host) return refused("names the host of another server");
    const { version, createdOn: heldSince } = current;
    return { ...target, confidence: "certain", heldSince, login, version, problem: undefined };
  }

  async function comparePlaces({ serverId, users, places }: Pick<DatabaseLogin, "serverId" | "users" | "places">) {
    const host = await servers.hostOf(serverId);
    return await pMap(places, (place) => comparePlace(place, { users }, host), { concurrency: PARALLEL });
  }

  /** Returns why the users and the stored logins can't be rotated, apart from the secrets. */
  async function problemsOf(pair: LoginPair, compared: readonly ComparedLogin[]): Promise<string[]> {
    const missing = await servers.missing(pair);
    if (missing.length > 0) return missing;
    const login = compared.find((one) => one.login !== undefined)?.login;
    if (login === undefined) return [];
    return await problemsOfLogin(pair, login).catch((error: unknown) => {
      if (error instanceof CloudFailure && (error.code === "notFound" || error.code === "accessDenied"))
        return [`${error.message} ${error.remedy}`];
      throw error;
    });
  }

  async function problemsOfLogin(pair: LoginPair, login: LoginValue): Promise<string[]> {
    const result = await servers.signIn(pair, login.user, login.password);
    if (result === "unclear") return [`The server gave no clear answer to a sign-in as ${login.user}. Try again.`];
    if (result === "rejected") return [`The server rejected the password of ${login.user} that the secret stores.`];
    return await servers.differences(pair, login.user, login.password);
  }

  /** Returns which users another registration has, as sentences: two rotations would change the password of one user. */
  async function registeredTwice({ serverId, users }: RegistrationRequest): Promise<string[]> {
    const onServer = (await all()).filter((one) => one.serverId.toLowerCase() === serverId.toLowerCase());
    const registered = onServer.flatMap((one) => one.users);
    return users.filter((user) => registered.includes(user)).map((user) => `${user} is already registered.`);
  }

  async function check(request: RegistrationRequest, caller: Caller) {
    const { serverId, database, users, signInAs, places } = request;
    if (findEngine(serverId) === undefined)
      throw invalidBody("serverId", "must be the ID of a database server whose logins can be rotated");
    if (users[0] === users[1] || users.includes(signInAs))
      throw invalidBody("users", "must be two users, other than that of the service's identity");
    if (!(await isMonitored(serverId)))
      throw invalidBody("serverId", "must be a server in a subscription that the service monitors");
    const credentialId = loginId(serverId, users);
    const registered = await Promise.all(places.map(requireVault));
    const [pair, comparedAt] = [{ serverId, database, users, signInAs }, clock.now().toISOString()];
    const compared = await comparePlaces({ serverId, users: [...users], places: registered }).catch(throwAsProblem);
    const refused = compared.flatMap((one) => problemOf(one) ?? []);
    const named = [...new Set(compared.flatMap(({ login }) => login?.user ?? []))];
    const missing = [
      ...(await registeredTwice(request)),
      ...refused,
      ...(named.length > 1
        ? [`The secrets name different users: ${named.join(", ")}. Write the same login to all.`]
        : []),
      ...(await problemsOf(pair, compared).catch(throwAsProblem)),
    ];
    const stored = compared.map(({ vaultName, secretName, vaultId, login, version = "" }) => ({
      vaultName,
      secretName,
      vaultId,
      user: login?.user ?? "",
      version,
      comparedAt,
      by: caller.actor,
    }));
    const about = { credentialId, serverId, database, users: [...users] as [string, string], signInAs };
    return { login: { ...about, places: stored, registeredAt: comparedAt, registeredBy: caller.actor }, missing };
  }

  async function get(credentialId: string): Promise<Row<DatabaseLogin>> {
    const id = credentialId.toLowerCase();
    const onCorrupt = ({ message }: Error) => log.error(message);
    const row = LOGIN_ID.test(id) ? await tables.get(DatabaseLogins, DATABASE_LOGINS, id, { onCorrupt }) : undefined;
    if (row === undefined) throw notFoundLogin(credentialId);
    return row;
  }

  async function all(): Promise<DatabaseLogin[]> {
    const logins: DatabaseLogin[] = [];
    // The rows of users have other keys.
    const range = { partitionKey: DATABASE_LOGINS, from: "db-", before: keyEnd("db-"), onCorrupt: "leaveOut" as const };
    for await (const rows of tables.pages(DatabaseLogins, range)) logins.push(...rows.map(withoutKeys));
    return logins;
  }

  /** Returns the keys of the rows of a registration's users, also if the registration itself can't be read. */
  async function userKeysOf(id: string): Promise<string[]> {
    const keys: string[] = [];
    const range = { partitionKey: DATABASE_LOGINS, from: USER_PREFIX, before: keyEnd(USER_PREFIX) };
    for await (const rows of tables.pages(RegisteredUsers, { ...range, onCorrupt: "leaveOut" }))
      keys.push(...rows.filter(({ credentialId }) => credentialId === id).map(({ rowKey }) => rowKey));
    return keys;
  }

  return {
    check,
    all,
    isMonitored,
    comparePlaces,
    get: async (credentialId) => withoutKeys(await get(credentialId)),

    async register(request, caller) {
      const { login, missing } = await check(request, caller);
      if (missing.length > 0) throw conflict(missing.join(" "));
      const { credentialId, serverId, database, users, signInAs, places } = login;
      const details = { serverId, database, users, signInAs, places: places.map(nameOf) };
      const target = { type: "credential", id: credentialId };
      const operations: Operation[] = [
        insert(DatabaseLogins, credentialId, login),
        ...users.map((user) => insert(RegisteredUsers, userKey(serverId, user), { credentialId })),
      ];
      await audited(audit, { type: "rotation.loginRegistered", caller, target, details }, async () => {
        try {
          await tables.transaction(DatabaseLogins.table, DATABASE_LOGINS, operations);
        } catch (error) {
          if (!(error instanceof RowExists)) throw error;
          throw conflict("A user of this server is already registered. Delete that registration first.");
        }
      });
      return login;
    },

    async remove(credentialId, caller) {
      const id = credentialId.toLowerCase();
      const users = await userKeysOf(id);
      let exists = users.length > 0;
      const onCorrupt = () => {
        exists = true;
      };
      if (LOGIN_ID.test(id) && (await tables.get(DatabaseLogins, DATABASE_LOGINS, id, { onCorrupt }))) exists = true;
      if (!exists) throw notFoundLogin(credentialId);
      const target = { type: "credential", id };
      await audited(audit, { type: "rotation.loginForgotten", caller, target, details: {} }, async () => {
        // The registration last, so that a repeat after a crash finds it.
        for (const key of users) await tables.remove(RegisteredUsers, DATABASE_LOGINS, key);
        await tables.remove(DatabaseLogins, DATABASE_LOGINS, id);
      });
    },

    async recordWrittenPlaces(rotation, at) {
      const { loginId: id, newKeyId: user } = rotation;
      if (id === undefined || user === undefined) return;
      const written = new Map(writtenMatches(rotation).map((one) => [placeKey(one), one.writtenVersion!]));
      const update = (stored: Row<DatabaseLogin> | undefined): DatabaseLogin | undefined => {
        // The registration was deleted meanwhile, or someone changed its row. Neither must keep the rotation from ending, because
        // a registration can't be deleted before.
        if (stored === undefined) return undefined;
        const places = stored.places.map((place) => {
          const version = written.get(placeKey(place));
          return version === undefined
            ? place
            : { ...place, user, version, comparedAt: at.toISOString(), by: "rotation" };
        });
        return { ...withoutKeys(stored), places };
      };
      await tables.modify(DatabaseLogins, DATABASE_LOGINS, id, update, { replaceCorrupt: true });
    },
  };
}

const notFoundLogin = (credentialId: string): Problem => notFound(`The credential ${credentialId.slice(0, 64)}`);

const nameOf = ({ vaultName, secretName }: Place): string => `${vaultName}/${secretName}`;

/** Returns the problem of a secret as a sentence. */
export const problemOf = (compared: ComparedLogin): string | undefined =>
  compared.problem === undefined ? undefined : `${nameOf(compared)} ${compared.problem}.`;
